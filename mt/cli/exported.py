"""Translating with an exported folder instead of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mt.cli.extras import extra
from mt.errors import ConfigError

if TYPE_CHECKING:
    from mt.device import PrecisionName
    from mt.inference.translator import Translator


def find_exported(
    path: Path | None, engine: str, checkpoint: str, ensemble: list[Path] | None
) -> Path | None:
    """The exported folder that ``--run`` names; None if it names a run."""
    from mt.inference.exported_folder import is_exported

    if path is None or not is_exported(path):
        return None
    if engine in ("torch", "mt"):
        raise ConfigError(f"{path} is an exported folder: give the run itself, or leave --engine out.")
    refuse_options_of_runs(path, {"--checkpoint": checkpoint != "best", "--ensemble": bool(ensemble)})
    return path


def refuse_options_of_runs(path: Path, options: Mapping[str, bool]) -> None:
    """Check that none of these options is given with an exported folder.

    Args:
        path: The folder.
        options: Options that only runs have, and whether each is given.
    """
    for flag, is_given in options.items():
        if is_given:
            raise ConfigError(
                f"{flag} is for runs, but {path} is an exported folder: leave it out, or give the run."
            )


def load_exported(
    path: Path, device: str, precision: "PrecisionName", dictionary: Mapping[str, str] | None = None
) -> "Translator":
    """Load the folder with CTranslate2."""
    with extra("translate", "ctranslate2"):
        from mt.inference.translator import load_exported as load

        return load(path, device=device, precision=precision, dictionary=dictionary)
