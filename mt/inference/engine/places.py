"""Where the converted models of a run's checkpoints are kept, and which of them go."""

import contextlib
import json
import re
from pathlib import Path

from mt.data.cache import cache_folder, locked
from mt.errors import CheckpointError
from mt.files import read_bytes, remove_folder_atomically, sha256
from mt.inference.exported_folder import read_export_record
from mt.run_directory import RunDirectory

REFUSED = "refused"
"""A file in place of an engine that was made, and found not to translate as torch does; it says why."""
MADE_FROM = ("config.yaml", "src_tokenizer.json", "tgt_tokenizer.json")
"""What an engine depends on besides the weights, in the run directory."""
_MAX_RECORD_BYTES = 1_000_000
_NAME = re.compile(r"(step|average)_\d{7,18}")
_MOST_ENGINES, _MOST_CACHED = 2, 8


def weights_of(run: RunDirectory, checkpoint: str) -> str | None:
    """The SHA-256 of a checkpoint's weights by its record, which is not verified; None if there is none."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        name = checkpoint
        if name in ("best", "latest"):
            name = read_bytes(run.checkpoints_dir / name, max_bytes=100).decode().strip()
        if _NAME.fullmatch(name):
            record = read_bytes(run.checkpoints_dir / name / "checkpoint.json", max_bytes=_MAX_RECORD_BYTES)
            found: str = json.loads(record)["checksums"]["model.safetensors"]
            if re.fullmatch(r"[0-9a-f]{64}", found):
                return found
    return None


def engine_places(run: RunDirectory) -> list[Path]:
    """The folders in which engines of a run may be: its own, and one in the cache of the user."""
    return [run.engine_dir, cache_folder() / "engines"]


def find_engine(run: RunDirectory, weights: str) -> Path | None:
    """The folder of the engine of these weights, made from the run as it is now; None if there is none."""
    for place in engine_places(run):
        folder = place / weights
        if (folder / REFUSED).is_file():
            return folder
        try:
            made_from = read_export_record(folder / "float32").made_from
            if made_from == checksums_of(run):
                return folder
        except (OSError, CheckpointError):
            continue
    return None


def checksums_of(run: RunDirectory) -> dict[str, str]:
    """The SHA-256 of what an engine depends on besides the weights."""
    return {name: sha256(run.path / name) for name in MADE_FROM}


def remove_stale(run: RunDirectory) -> None:
    """Remove the engines of checkpoints that are gone."""
    if run.engine_dir.is_dir():
        with contextlib.suppress(OSError), locked(run.engine_dir):
            prune(run.engine_dir, run, None)


def prune(place: Path, run: RunDirectory, newest: Path | None) -> None:
    """Remove engines whose checkpoints are gone, and all but the newest few; call it under the lock."""
    engines = sorted(
        (path for path in place.iterdir() if re.fullmatch(r"[0-9a-f]{64}", path.name) and path != newest),
        key=lambda path: -path.stat().st_mtime,
    )
    most = _MOST_CACHED
    stale: list[Path] = []
    if place == run.engine_dir:
        most = _MOST_ENGINES
        living = {weights_of(run, path.name) for path in run.checkpoints_dir.iterdir()}
        stale = [engine for engine in engines if engine.name not in living]
        engines = [engine for engine in engines if engine.name in living]
    for engine in (*stale, *engines[most - (newest is not None) :]):
        remove_folder_atomically(engine)
