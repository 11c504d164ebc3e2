"""`mt evaluate`: the scores of a run, each with its signature."""

from typing import Annotated, Literal

import typer

from mt.cli.logs import show_logs
from mt.cli.options import (
    BeamOption,
    CheckpointOption,
    DeviceOption,
    LengthPenaltyOption,
    RunOption,
    find_run,
)


def evaluate(
    run: RunOption = None,
    split: Annotated[
        Literal["train", "validation", "test"], typer.Option(help="Which part of the corpus.")
    ] = "test",
    data: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Another corpus in the same languages. Default: the run's own."),
    ] = None,
    beam: BeamOption = 1,
    length_penalty: LengthPenaltyOption = 1.0,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
) -> None:
    """Translate a split, print its scores with their signatures, and keep the translations in the run."""
    show_logs()
    found = find_run(run)
    from mt.device import choose_device
    from mt.pipeline.evaluate import run_evaluation
    from mt.pipeline.translator import Beam

    result = run_evaluation(
        found,
        split=split,
        checkpoint=checkpoint,
        device=choose_device(device),
        data_path=data,
        beam=Beam(beam, length_penalty) if beam > 1 else None,
    )
    search = f"beam of {beam}, length penalty {length_penalty:g}" if beam > 1 else "greedy search"
    typer.echo(f"{found.path}, checkpoint {checkpoint}, {split}: {search}", err=True)
    for score in result.scores.values():
        typer.echo(str(score))
    typer.echo(f"exact sentences {result.exact:.2f} %")
    if result.exact_by_length is not None:
        typer.echo("words  sentences  exact")
        for length, (count, exact) in result.exact_by_length.items():
            typer.echo(f"{length:5}  {count:9,}  {exact:6.2f} %")
    typer.echo(f"{result.num_sentences:,} translations: {result.hypotheses_file}", err=True)
