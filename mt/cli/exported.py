"""Translating with an exported folder instead of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mt.cli.extras import extra
from mt.errors import ConfigError

if TYPE_CHECKING:
    from mt.inference.text_search import TextSearch


def find_exported(
    path: Path | None,
    engine: str | None,
    checkpoint: str,
    precision: str,
    ensemble: list[Path] | None,
    dictionary: Path | None,
    prefix: str | None,
    prefix_column: bool,
) -> Path | None:
    """The exported folder that ``--run`` names; None if it names a run.

    The kind of folder decides: our own search cannot read an exported folder, and CTranslate2 cannot read
    a run.
    """
    from mt.inference.exported_folder import is_exported

    if path is None or not is_exported(path):
        if engine == "ctranslate2":
            run = "" if path is None else f" --run {path}"
            raise ConfigError(
                f"--engine ctranslate2 needs an exported folder: run mt export{run} --to ctranslate2 OUT, "
                "then mt translate --engine ctranslate2 --run OUT."
            )
        return None
    if engine == "mt":
        raise ConfigError(f"{path} is an exported folder: give the run itself, or leave --engine mt out.")
    refuse_options_of_runs(
        path,
        {
            "--checkpoint": checkpoint != "best",
            "--precision": precision != "auto",
            "--ensemble": bool(ensemble),
            "--dictionary": dictionary is not None,
            "--prefix": prefix is not None,
            "--prefix-column": prefix_column,
        },
    )
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


def load_exported(path: Path, device: str) -> "TextSearch":
    """Load the folder with CTranslate2."""
    with extra("ctranslate2"):
        from mt.inference import ctranslate2_engine

    return ctranslate2_engine.load_exported(path, device=device)
