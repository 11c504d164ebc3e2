"""Translating with an exported folder instead of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mt.cli.extras import extra
from mt.errors import ConfigError

if TYPE_CHECKING:
    from mt.device import PrecisionName
    from mt.inference.translator import Translator


def check_no_run_options(path: Path, options: Mapping[str, bool]) -> None:
    """Check that no option is given that only runs have; ``options`` says which are, by their flags."""
    for flag, is_given in options.items():
        if is_given:
            raise ConfigError(f"{flag} is for runs, but {path} is an exported folder: leave it out.")


def load_exported(
    path: Path, device: str, precision: "PrecisionName", dictionary: Mapping[str, str] | None = None
) -> "Translator":
    """Load the folder with CTranslate2."""
    with extra("translate", "ctranslate2"):
        from mt.inference.translator import load_exported as load

        return load(path, device=device, precision=precision, dictionary=dictionary)
