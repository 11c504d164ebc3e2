"""Options that mean the same in several commands."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mt.errors import ConfigError

if TYPE_CHECKING:
    from mt.run_directory import RunDirectory
    from mt.search.hypothesis import LengthNormalization
    from mt.search.strategy import Beam

RUNS = Path("runs")

RunOption = Annotated[
    Path | None,
    typer.Option("--run", metavar="PATH", help="The run directory. Default: the newest run in runs/."),
]
CheckpointOption = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="best, latest, or the name of a checkpoint: step_0004000, average_0004000."
    ),
]
BeamOption = Annotated[
    int,
    typer.Option(
        "--beam", min=1, max=100, help="Partial translations that the search keeps; 1 is greedy search."
    ),
]
LengthPenaltyOption = Annotated[
    float, typer.Option(min=0.0, max=10.0, help="With --beam: the greater, the longer the translations.")
]
LengthNormalizationOption = Annotated[
    Literal["gnmt", "mean"],
    typer.Option(
        help="With --beam: divide log-probabilities by ((5 + length) / 6) ** penalty, as in GNMT, or by "
        "length ** penalty, which is the mean over the tokens with a penalty of 1."
    ),
]
EnsembleOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--ensemble",
        metavar="PATH",
        help="Average the probabilities of --run with those of this run, which needs the same vocabularies; "
        "repeatable.",
    ),
]
TestSetOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help="Another corpus in the same languages, or a standard test set such as sacrebleu:wmt14. "
        "Default: the run's own.",
    ),
]
TestSetNameOption = Annotated[
    str | None,
    typer.Option("--name", help="With --data: the configuration of a Hub corpus that has several."),
]
JsonOption = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write all results into this file too.")
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


def find_ensemble(paths: list[Path] | None) -> "list[RunDirectory]":
    """The runs at these paths; of None none."""
    from mt.run_directory import RunDirectory

    return [RunDirectory(path).require() for path in paths or []]


def choose_beam(
    size: int, length_penalty: float, length_normalization: "LengthNormalization"
) -> "Beam | None":
    """The beam search that the options ask for; None is greedy search.

    Raises:
        ConfigError: If they say how lengths are weighed, which greedy search never does.
    """
    if size == 1:
        if (length_penalty, length_normalization) != (1.0, "gnmt"):
            raise ConfigError("--length-penalty and --length-normalization are for a beam: add --beam 5.")
        return None
    from mt.search.strategy import Beam

    return Beam(size, length_penalty, length_normalization)


def refuse_missing_folder(file: Path | None) -> None:
    """Check, before hours are spent, that there is a folder to put ``file`` into.

    Raises:
        ConfigError: If there is none, or ``file`` is a folder itself.
    """
    if file is not None and not file.parent.is_dir():
        raise ConfigError(
            f"there is no folder {file.parent} to put {file.name} into: make it, or choose another."
        )
    if file is not None and file.is_dir():
        raise ConfigError(f"{file} is a folder: name a file in it.")


def parse_duration(text: str) -> float:
    """Seconds of a time such as 90s, 45m, 3h50m or 1d2h.

    Raises:
        ConfigError: If it is written otherwise, or is no time at all.
    """
    match = re.fullmatch(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?", text, re.ASCII)
    seconds = (
        sum(int(count or 0) * unit for count, unit in zip(match.groups(), (86400, 3600, 60, 1), strict=True))
        if match
        else 0
    )
    if not seconds:
        raise ConfigError(f"--max-time: {text!r} is no time. Write it as 90s, 45m, 3h50m or 1d2h.")
    return float(seconds)
