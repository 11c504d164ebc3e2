"""The translator of a run or of an exported folder, as the options of a command describe it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mt.cli.extras import extra
from mt.cli.options import engine_name, find_ensemble, find_run
from mt.errors import ConfigError

if TYPE_CHECKING:
    from mt.device import PrecisionName
    from mt.inference.translator import Translator


def load_translator(
    path: Path | None,
    checkpoint: str,
    device: str,
    precision: "PrecisionName",
    engine: str,
    *,
    ensemble: list[Path] | None = None,
    dictionary: Mapping[str, str] | None = None,
) -> "Translator":
    """Load a run, by default the newest one in ``runs/``, or an exported folder."""
    from mt.inference.exported_folder import is_exported
    from mt.inference.translator import Translator, load_exported

    if path is None or not is_exported(path):
        return Translator.from_run(
            find_run(path),
            checkpoint=checkpoint,
            device=device,
            dictionary=dictionary,
            others=find_ensemble(ensemble),
            precision=precision,
            engine=engine_name(engine),
        )
    if checkpoint != "best" or ensemble or engine in ("torch", "mt"):
        raise ConfigError(
            f"{path} is an exported folder: leave out --checkpoint, --ensemble, --layer and --engine torch, "
            "which are for runs."
        )
    with extra("translate", "ctranslate2"):
        return load_exported(path, device=device, precision=precision, dictionary=dictionary)
