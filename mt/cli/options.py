"""Options that mean the same in several commands."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mt.run_directory import RunDirectory

RUNS = Path("runs")

RunOption = Annotated[
    Path | None,
    typer.Option("--run", metavar="PATH", help="The run directory. Default: the newest run in runs/."),
]
CheckpointOption = Annotated[
    str, typer.Option(metavar="NAME", help="best, latest, or the name of a checkpoint such as step_0004000.")
]
DeviceOption = Annotated[str, typer.Option(metavar="DEVICE", help="auto, cpu, cuda or mps.")]


def find_run(path: Path | None) -> "RunDirectory":
    """The run at ``path``; without one the newest in ``runs/``, which is then named on stderr."""
    from mt.run_directory import RunDirectory, newest_run

    if path is not None:
        return RunDirectory(path).require()
    run = newest_run(RUNS)
    typer.echo(f"run: {run.path}", err=True)
    return run
