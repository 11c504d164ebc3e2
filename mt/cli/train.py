"""`mt train`: train a model, or resume its training."""

import operator
import re
import time
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from typer import Exit, Option

from mt import processes
from mt.cli.logs import say
from mt.cli.options import RUNS, InitFromOption, OverridesOption, load_config_and_run, parse_origin
from mt.errors import ConfigError, MtError
from mt.run_directory import RunDirectory

if TYPE_CHECKING:
    from mt.config.config import Config
    from mt.training.run import Outcome


def train(
    config: Annotated[Path, Option("--config", "-c", help="The YAML config file.")],
    overrides: OverridesOption = None,
    run: Annotated[Path | None, Option(help="The run directory. Default: runs/NAME for NAME.yaml.")] = None,
    max_time: Annotated[
        str | None, Option(help="Save and stop after 90s, 45m, 3h50m or 1d2h, with exit code 75.")
    ] = None,
    restart: Annotated[bool, Option(help="Move an existing run aside and start over.")] = False,
    init_from: InitFromOption = None,
) -> None:
    """Train a model from a config file, into a run directory.

    Running the same command again resumes a stopped run exactly where it stopped.

    Exit codes:

      0  the run is finished.
      1  a bug of ours, or no memory left.
      2  there is a mistake in the input, which a message explains.
     75  stopped by --max-time: saved, and can be resumed.
    129  stopped by SIGHUP, for example because the terminal was closed: saved.
    130  stopped by Ctrl-C (SIGINT): saved, unless it was pressed twice.
    138  stopped by SIGUSR1, which SLURM can send before a time limit: saved.
    143  stopped by SIGTERM: saved.
    """
    if init_from is not None:
        origin = parse_origin(init_from)
        of_origin = [f"init_from.run={origin.run}", f"init_from.checkpoint={origin.checkpoint}"]
        overrides = [*(overrides or []), *of_origin]
    max_seconds = None if max_time is None else _seconds(max_time)
    loaded, directory = load_config_and_run(config, overrides, run)
    from mt.config.load import load_config
    from mt.config.write import differences

    for file in () if directory.exists else RUNS.glob("*/config.yaml"):
        with suppress(MtError):
            begun = load_config(file)
            same = file.parent
            if begun.data.path == loaded.data.path and not differences(begun, loaded):
                say(f"{same} has the same settings, and is another run: to continue it, add --run {same}")
    if (restart or not directory.exists) and processes.IS_FIRST:
        from mt.data.sources.find import check_sources

        check_sources(loaded.data)
    # After the checks above, because importing torch is slow.
    from mt.training.run import run_training

    # So far, the command has used one processor all the time.
    began = time.perf_counter() - time.process_time()
    outcome = run_training(loaded, directory, restart=restart, max_seconds=max_seconds, began=began)
    say(_what_to_do_next(outcome, directory, loaded, restarted=restart))
    raise Exit(outcome.exit_code)


def _seconds(text: str) -> float:
    """The seconds of a duration such as 90s, 45m, 3h50m or 1d2h."""
    match = re.fullmatch(r"(?:(\d{1,5})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?", text, re.ASCII)
    counts = [int(count or 0) for count in match.groups()] if match else []
    seconds = sum(map(operator.mul, counts, (86400, 3600, 60, 1)))
    if not seconds:
        raise ConfigError(f"--max-time: {text!r} is not a duration. Write it as 90s, 45m, 3h50m or 1d2h.")
    return float(seconds)


def _what_to_do_next(outcome: "Outcome", run: RunDirectory, config: "Config", *, restarted: bool) -> str:
    """What to do next; ``restarted`` is whether the run began with an option that does not resume it."""
    from mt.training.schedule import has_ended

    if outcome.finished is None:
        without = " without --restart" if restarted and outcome.counters.step else ""
        return f"The same command{without} resumes the run."
    if outcome.was_finished:
        limits = "that limit"
        if has_ended(outcome.counters.step, config.schedule):
            limits = "that limit and schedule.total_steps in another run with --run PATH"
        return (
            f"{run.path} is finished: {outcome.finished}. To train longer, raise {limits}; to start over, "
            f"add --restart; for a new run from its weights, {run.adapt_command(config.data.path)}"
        )
    path = quote(str(run.path))
    return (
        f'Translate with it:  mt translate --run {path} "..."\n'
        f"Score it:           mt evaluate --run {path} --split test\n"
        f"Watch the curves:   tensorboard --logdir {quote(str(run.tensorboard_dir))}  "
        "# http://localhost:6006/#timeseries\n"
        f"Compare runs:       tensorboard --logdir {quote(str(run.path.parent))}  # http://localhost:6006/#hparams"
    )
