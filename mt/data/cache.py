"""A folder of results that take long to compute, each found by a key of everything that determines it.

An entry is a folder named by the digest of its key. It appears whole or not at all, contains the digests of
its files, and is verified whenever it is opened. The whole cache may be deleted at any time.
"""

import contextlib
import hashlib
import json
import logging
import os
import platform
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from mt.files import cache_folder as cache_folder
from mt.files import make_folder, remove_folder_atomically, sha256

LOG = logging.getLogger(__name__)

T = TypeVar("T")

RECIPE_VERSION = 5
"""Raised when the same input would give another corpus, other ids, another alignment or other files."""

MANY_PAIRS = 50_000
"""What is computed of fewer pairs is computed again each time."""

_MOST_DAYS, _MOST_DAYS_UNFINISHED = 30, 1
"""Entries that were not opened, or written to, for longer are removed."""
_RECORD = "entry.json"


def cached(key: object, fill: Callable[[Path], int], load: Callable[[Path], T]) -> T:
    """Load the entry of ``key``, a value of plain JSON types, made if there is no intact one.

    ``fill`` writes files into an empty folder, and returns the number of pairs.
    """
    key = [key, RECIPE_VERSION, platform.python_version_tuple()[:2]]
    key += [[name, version(name)] for name in ("datasets", "numpy", "pyarrow", "tokenizers")]
    name = hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=16).hexdigest()
    entry = cache_folder() / "data" / name

    def make(parent: Path | None) -> T:
        """Fill a temporary folder, and let it become the entry unless another process was faster."""
        with tempfile.TemporaryDirectory(prefix=f".{name}.making-", dir=parent) as partial:
            folder = Path(partial)
            is_kept = fill(folder) > MANY_PAIRS
            # What is mapped stays mapped, whatever becomes of the names of its files.
            result = load(folder)
            if is_kept and parent:
                # No fsync: a file that a power cut leaves half written does not match its digest.
                (folder / _RECORD).write_bytes(_record(folder, key))
                with contextlib.suppress(OSError):
                    folder.rename(entry)
        return result

    try:
        if _is_intact(entry, key):
            os.utime(entry)
            return load(entry)
        make_folder(entry.parent)
        _remove_unused(entry.parent)
        return make(entry.parent)
    except OSError as error:
        LOG.warning("%s cannot be used (%s): what is computed is not kept", entry.parent, error)
    # Outside the handler, because the error keeps all that was read alive.
    return make(None)


def _record(folder: Path, key: object) -> bytes:
    files = {file.name: sha256(file) for file in sorted(folder.iterdir()) if file.name != _RECORD}
    return json.dumps({"key": key, "files": files}, sort_keys=True, indent=2).encode()


def _is_intact(entry: Path, key: object) -> bool:
    """Whether there is an entry that is as it was made; a damaged one is removed."""
    if not entry.is_dir():
        return False
    with contextlib.suppress(FileNotFoundError):
        if (entry / _RECORD).read_bytes() == _record(entry, key):
            return True
    LOG.warning("the cached %s is damaged and will be made again", entry)
    remove_folder_atomically(entry)
    return False


def _remove_unused(folder: Path) -> None:
    """Remove entries that were not opened for long, and what killed processes left."""
    for path in folder.iterdir():
        # What another process removes meanwhile needs no removing.
        with contextlib.suppress(OSError):
            newest = max(file.stat().st_mtime for file in (path, *path.iterdir()))
            most_days = _MOST_DAYS_UNFINISHED if path.name.startswith(".") else _MOST_DAYS
            if time.time() - newest > most_days * 24 * 3600:
                remove_folder_atomically(path)
