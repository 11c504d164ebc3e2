"""Where the converted models of a run's checkpoints are kept, and which of them go."""

import contextlib
import json
import re
from pathlib import Path

from mt.data.cache import locked
from mt.errors import CheckpointError, ExportError
from mt.files import read_bytes, remove_folder_atomically, sha256
from mt.inference.exported_folder import read_export_record
from mt.run_directory import RunDirectory

REFUSED = "refused"
"""A file in place of an engine that was made, and found not to translate as torch does; it says why."""
_MADE_FROM = ("config.yaml", "src_tokenizer.json", "tgt_tokenizer.json")
"""What an engine depends on besides the weights, in the run directory."""
_MAX_RECORD_BYTES = 1_000_000
_MOST_ENGINES = 2


def weights_of(run: RunDirectory, checkpoint: str) -> str | None:
    """The SHA-256 of a checkpoint's weights by its record, which is not verified; None if there is none."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        name = checkpoint
        if name in ("best", "latest"):
            name = read_bytes(run.checkpoints_dir / name, max_bytes=100).decode().strip()
        if re.fullmatch(r"(step|average)_\d{7,18}", name):
            record = read_bytes(run.checkpoints_dir / name / "checkpoint.json", max_bytes=_MAX_RECORD_BYTES)
            checksum: str = json.loads(record)["checksums"]["model.safetensors"]
            if re.fullmatch(r"[0-9a-f]{64}", checksum):
                return checksum
    return None


def find_engine(run: RunDirectory, weights: str) -> Path | None:
    """The folder of the engine of these weights, made from the run as it is now; None if there is none."""
    folder = run.engine_dir / weights
    if (folder / REFUSED).is_file():
        raise ExportError((folder / REFUSED).read_text(encoding="utf-8"))
    with contextlib.suppress(OSError, CheckpointError):
        if read_export_record(folder / "float32").made_from == checksums_of(run):
            return folder
    return None


def checksums_of(run: RunDirectory) -> dict[str, str]:
    """The SHA-256 of what an engine depends on besides the weights."""
    return {name: sha256(run.path / name) for name in _MADE_FROM}


def remove_stale(run: RunDirectory, most: int = _MOST_ENGINES) -> None:
    """Remove the engines of checkpoints that are gone, and all but the newest few of the others."""
    with contextlib.suppress(OSError), locked(run.engine_dir):
        weights = {weights_of(run, path.name) for path in run.checkpoints_dir.iterdir()}
        engines = [path for path in run.engine_dir.iterdir() if re.fullmatch(r"[0-9a-f]{64}", path.name)]
        # Those of checkpoints that are gone come last.
        engines.sort(key=lambda path: (path.name in weights, path.stat().st_mtime), reverse=True)
        num_living = sum(path.name in weights for path in engines)
        for engine in engines[min(most, num_living) :]:
            remove_folder_atomically(engine)
