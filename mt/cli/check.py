"""`mt check`: look into what went wrong."""

from pathlib import Path
from typing import Annotated

import typer

from mt.cli.logs import show_logs
from mt.cli.options import CheckpointOption, DeviceOption


def check(
    batch: Annotated[
        Path, typer.Option("--batch", metavar="FILE", help="A batch from the bad_batches folder of a run.")
    ],
    run: Annotated[
        Path | None, typer.Option("--run", metavar="PATH", help="Default: the run the file lies in.")
    ] = None,
    checkpoint: CheckpointOption = "latest",
    device: DeviceOption = "auto",
) -> None:
    """Replay a batch whose loss or gradient was no number: where it goes wrong, and on which sentences.

    It is computed in float32, without dropout, with the weights of a checkpoint, which
    are those of the step only if the checkpoint was saved just before it.
    """
    show_logs()
    from mt.device import choose_device
    from mt.pipeline.check import replay
    from mt.run_directory import RunDirectory

    directory = RunDirectory(run or batch.absolute().parent.parent).require()
    found = replay(directory, batch, checkpoint=checkpoint, device=choose_device(device))
    typer.echo(
        f"step {found.bad.step:,} of {directory.path}, skipped at loss {found.bad.loss} and gradient norm "
        f"{found.bad.gradient_norm}; replayed with {found.checkpoint}\n"
        f"loss           {found.loss:.4f} nats per target token\n"
        f"gradient norm  {found.gradient_norm:.4f}"
    )
    for what, name in (
        ("weights that are no number", found.first_bad_weight),
        ("first output that is no number", found.first_bad_output),
        ("first gradient that is no number", found.first_bad_gradient),
    ):
        if name is not None:
            typer.echo(f"{what}: {name}")
    if found.is_sound:
        typer.echo("Nothing is wrong with it in float32 and with these weights.")
    typer.echo(f"\n{len(found.pairs):,} sentence pairs, by their loss per token:")
    for pair in found.pairs:
        typer.echo(f"{pair.loss:8.3f}  {pair.src}\n          {pair.tgt}")
