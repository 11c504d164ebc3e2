"""`mt train`: train a model, or resume its training."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from mt import processes
from mt.cli.logs import say, show_logs
from mt.cli.options import RUNS, parse_duration
from mt.errors import ConfigError, MtError

if TYPE_CHECKING:
    from mt.config.config import Config
    from mt.run_directory import RunDirectory
    from mt.training.run import Outcome


def train(
    config: Annotated[Path, typer.Option("--config", "-c", metavar="FILE", help="The YAML config file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override an option, such as model.d_model=512; repeatable."
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option("--run", metavar="PATH", help="The run directory. Default: runs/NAME for NAME.yaml."),
    ] = None,
    max_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Save and stop after 90s, 45m, 3h50m or 1d2h, with exit code 75."),
    ] = None,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="Move an existing run aside and start over, every time it is given."),
    ] = False,
    from_checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--from-checkpoint",
            metavar="PATH",
            help="Start a new --run that continues from an older checkpoint of another run, such as "
            "runs/x/checkpoints/step_0002000.",
        ),
    ] = None,
) -> None:
    """Train a model from a config file, into a run directory.

    Running the same command again resumes a stopped run exactly where it stopped.

    Exit codes:

      0  the run is finished.
      2  there is a mistake in the input, which a message explains.
     75  stopped by --max-time: saved, and can be resumed.
    129  stopped by SIGHUP, for example because the terminal was closed: saved.
    130  stopped by Ctrl-C (SIGINT): saved, unless it was pressed twice.
    138  stopped by SIGUSR1, which SLURM can send before a time limit: saved.
    143  stopped by SIGTERM: saved.

    A signal that is ignored at the start (nohup) stays ignored. If stderr
    is closed, training continues; all messages are in the run's train.log.
    """
    from mt.config.load import load_config
    from mt.run_directory import as_run

    show_logs()
    if restart and from_checkpoint is not None:
        raise ConfigError("--restart moves a run aside, --from-checkpoint starts a new one: choose one.")
    max_seconds = parse_duration(max_time) if max_time is not None else None
    with _said_once_a_machine():
        loaded = load_config(config, overrides or [], label="--set")
    if run is None:
        _refuse_config_of_run(config)
    directory = as_run(run or RUNS / config.stem)
    if processes.is_first():
        directory.check_not_in_use()
    # After the checks above, because importing torch is slow.
    from mt.training.run import run_training

    outcome = run_training(
        loaded, directory, restart=restart, from_checkpoint=from_checkpoint, max_seconds=max_seconds
    )
    if processes.is_first():
        _report(outcome, directory, loaded, restart=restart, branches_off=from_checkpoint is not None)
    raise typer.Exit(outcome.exit_code)


def _refuse_config_of_run(file: Path) -> None:
    """Check that the config is not that of a run, which would begin another run named after the file."""
    if file.name == "config.yaml" and (file.parent / "checkpoints").is_dir():
        raise ConfigError(
            f"{file} belongs to the run {file.parent}. To continue that run, add --run "
            f"{quote(str(file.parent))}; to train a new one, name its directory with --run PATH."
        )


@contextmanager
def _said_once_a_machine() -> Iterator[None]:
    """Report an error in the ``with`` block once per machine, because all its processes have the same one."""
    try:
        yield
    except MtError as error:
        if processes.is_first_on_machine():
            raise
        raise typer.Exit(1) from error


def _say_how_to_resume(outcome: "Outcome", *, restart: bool, branches_off: bool) -> None:
    flag = "--restart" if restart else "--from-checkpoint" if branches_off else None
    without = f" without {flag}" if flag and outcome.was_started else ""
    say(f"The same command{without} resumes the run.")


def _report(
    outcome: "Outcome", run: "RunDirectory", config: "Config", *, restart: bool, branches_off: bool
) -> None:
    """Print what to do next; the log says how the run ended."""
    from mt.training.schedule import has_ended

    if outcome.finished is None:
        _say_how_to_resume(outcome, restart=restart, branches_off=branches_off)
        return
    if outcome.was_finished and has_ended(outcome.counters.step, config.schedule):
        also = "" if branches_off else ", or start over with --restart"
        say(
            f"{run.path} is finished: {outcome.finished}. Its cosine schedule has ended as well: to train "
            f"longer, raise that limit and schedule.total_steps in another run with --run PATH{also}."
        )
        return
    if outcome.was_finished:
        also = " and leave out --from-checkpoint" if branches_off else "; to start over, add --restart"
        say(f"{run.path} is finished: {outcome.finished}. To train it further, raise that limit{also}.")
        return
    say(
        f'Translate with it:  mt translate --run {quote(str(run.path))} "..."\n'
        f"Score it:           mt evaluate --run {quote(str(run.path))} --split test\n"
        f"Watch the curves:   tensorboard --logdir {quote(str(run.tensorboard_dir))}"
    )
