"""`mt check`: find out what a run will be like, or what went wrong in a batch."""

from pathlib import Path
from typing import Annotated

from typer import Option, echo

from mt.cli.logs import show_logs
from mt.cli.options import OverridesOption, check_needs, run_of_config
from mt.display import aligned, counted
from mt.errors import ConfigError


def check(
    config: Annotated[Path | None, Option("--config", "-c", help="The config file to check.")] = None,
    overrides: OverridesOption = None,
    batch: Annotated[Path | None, Option(help="A batch from the bad_batches folder of a run.")] = None,
    run: Annotated[
        Path | None, Option(help="Default: runs/NAME for NAME.yaml, or the run of the batch.")
    ] = None,
    checkpoint: Annotated[
        str | None, Option(help="With --batch. Default: the one before the step, or the latest.")
    ] = None,
    device: Annotated[str | None, Option(help="With --batch: auto, cpu, cuda or mps. Default: auto.")] = None,
    verbose: Annotated[
        bool, Option("--verbose", "-v", help="With --config: also show details, and some sentences.")
    ] = False,
) -> None:
    """Check before training whether a config works, how good the model can get, and how long it takes.

    Or, with --batch, examine a batch that training skipped because its loss or gradient was not finite.

    With --config it prints a line on the corpus, the vocabulary, the lengths, the model, memory, time
    and disk space, then warnings. It times a few training steps, and writes nothing but the cache.

    With --batch it recomputes the batch in float32, without dropout, with the weights of a
    checkpoint. They are the weights of the skipped step only if they were saved just before it.

    Exit codes:

      0  the run can begin or continue, or the batch was recomputed.
      2  neither is possible; the reason is printed.
    130  stopped by Ctrl-C.
    """
    show_logs()
    if config is not None and batch is None:
        check_needs("--batch", False, checkpoint=checkpoint, device=device)
        _check_config(config, overrides or [], run, verbose=verbose)
    elif batch is not None and config is None:
        check_needs("--config", False, set=overrides, verbose=verbose)
        _check_batch(batch, run, checkpoint, device or "auto")
    else:
        raise ConfigError(
            "give either --config FILE, to check a run before it begins, or --batch FILE, to examine a "
            "skipped batch."
        )


def _check_config(file: Path, overrides: list[str], run: Path | None, *, verbose: bool) -> None:
    from mt.config.load import load_config

    config = load_config(file, overrides, label="--set")
    from mt.preflight.check import Section, preflight
    from mt.run_directory import RunDirectory

    def show(section: Section) -> None:
        echo(f"{section.name:<12}{section.summary}")
        if verbose and section.details:
            echo("".join(f"    {line}\n" for line in aligned(section.details)))

    conclusion = preflight(config, RunDirectory(run) if run else run_of_config(file), show)
    for warning in conclusion.warnings:
        echo(f"warning: {warning}")
    echo(conclusion.verdict)


def _check_batch(batch: Path, run: Path | None, checkpoint: str | None, device: str) -> None:
    from mt.run_directory import RunDirectory

    directory = RunDirectory(run or batch.absolute().parent.parent).require()
    from mt.device import choose_device
    from mt.preflight.replay import replay

    found = replay(directory, batch, checkpoint=checkpoint, device=choose_device(device))
    echo(
        f"step {found.bad.step:,} of {directory.path}, skipped at loss {found.bad.loss} and gradient norm "
        f"{found.bad.gradient_norm}; replayed with {found.checkpoint}\n"
        f"loss           {found.loss:.4f} nats per target token\n"
        f"gradient norm  {found.gradient_norm:.4f}"
    )
    for kind, name in found.not_finite.items():
        echo(f"first {kind} that is not finite: {name}")
    if found.is_sound:
        echo("All values are finite in float32 with these weights.")
    echo(f"\n{counted(len(found.pairs), 'sentence pair')}, by their loss per token:")
    for pair in found.pairs:
        echo(f"{pair.loss:8.3f}  {pair.src}\n          {pair.tgt}")
