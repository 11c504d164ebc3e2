"""A folder of results that take long to compute, each found by a key of everything that determines it.

An entry is a folder named by the digest of its key. It appears whole or not at all, contains the checksums of
its files, and is verified whenever it is opened. The whole cache may be deleted at any time.
"""

import contextlib
import hashlib
import json
import logging
import os
import platform
import re
import secrets
import shutil
import time
import zlib
from collections.abc import Callable, Sequence
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TypeVar

from mt.data.cache_folder import cache_folder, locked
from mt.files import make_folder, remove_folder_atomically

LOG = logging.getLogger(__name__)

T = TypeVar("T")

UNUSED_DAYS = 30
"""Entries that were not opened for this long are removed when a new one is added."""

_RECORD = "entry.json"
_BLOCK_SIZE = 2**24
_ENTRY = re.compile(r"[0-9a-f]{32}")
# The second is the name under which `remove_folder_atomically` deletes an entry.
_PARTIAL = re.compile(r"\.[0-9a-f]{32}\.(making-\w+|partial-\w+)")


class Cache:
    """The entries in one folder, which is created with the first of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, key: object) -> Path | None:
        """The folder of the entry of ``key``, a value of plain JSON types; None if there is no intact one."""
        entry = self._folder / _name(key)
        try:
            if not entry.is_dir():
                return None
            problem = _problem(entry)
        except OSError as error:
            LOG.warning("the cached %s cannot be read (%s)", entry, error.strerror or error)
            return None
        if problem is None:
            with contextlib.suppress(OSError):  # A shared cache may be read-only.
                os.utime(entry)
            return entry
        LOG.warning("the cached %s is damaged (%s) and will be made again", entry, problem)
        with contextlib.suppress(OSError):
            remove_folder_atomically(entry)
        return None

    def add(self, key: object, fill: Callable[[Path], object]) -> Path:
        """Add the entry of ``key``; if another process has added it in the meantime, that entry is used."""
        make_folder(self._folder)
        entry = self._folder / _name(key)
        partial = self._folder / f".{entry.name}.making-{secrets.token_hex(4)}"
        with contextlib.ExitStack() as locks:
            # The lock on the cache keeps others from removing this folder before it is locked itself.
            with locked(self._folder):
                self._remove_unused()
                partial.mkdir()
                locks.enter_context(locked(partial))
            locks.callback(shutil.rmtree, partial, ignore_errors=True)
            fill(partial)
            files = {file.name: [file.stat().st_size, _checksum(file)] for file in sorted(partial.iterdir())}
            record = {"key": key, "files": files}
            (partial / _RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
            # No fsync: a file that a power cut leaves half written does not match its checksum.
            try:
                partial.rename(entry)
            except OSError:
                if self.find(key) is None:
                    raise
        return entry

    def _remove_unused(self) -> None:
        """Remove entries that have not been opened for long, and what killed processes left a day ago."""
        for path in list(self._folder.iterdir()):
            with contextlib.suppress(OSError):
                if _is_entry(path) and _days_since_change(path) > UNUSED_DAYS:
                    remove_folder_atomically(path)
                elif _PARTIAL.fullmatch(path.name) and _is_deserted(path) and _is_unlocked(path):
                    shutil.rmtree(path)


def cached(
    key: object,
    fill: Callable[[Path], object],
    load: Callable[[Path], T],
    make: Callable[[], T],
    *,
    otherwise: str = "the result will be computed again next time",
) -> T:
    """Load the entry of ``key`` in the `cache_folder`, added if it is missing.

    ``key`` is everything that determines the entry, in plain JSON types. ``fill`` writes its files into an
    empty folder, ``load`` reads them; ``make`` returns the result where the cache cannot be written, and
    ``otherwise`` is what the warning says then.
    """
    cache = Cache(cache_folder())
    try:
        return load(cache.find(key) or cache.add(key, fill))
    except OSError as error:
        LOG.warning("%s: %s cannot be written (%s)", otherwise, cache_folder(), error)
        return make()


def file_digest(path: Path) -> str:
    """Digest of a file's bytes, at about a gigabyte per second."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def recipe(version: int, *libraries: str) -> dict[str, object]:
    """The part of a key that identifies the program that makes an entry.

    ``version`` is raised when the same input would give another result, or the same result in other files.
    The versions of ``libraries`` belong to it, and that of Python, whose minor version determines its Unicode
    data.
    """
    python = ".".join(platform.python_version_tuple()[:2])
    return {"version": version, "python": python, **{name: installed_version(name) for name in libraries}}


def _name(key: object) -> str:
    text = json.dumps(key, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _problem(entry: Path) -> str | None:
    """What is wrong with an entry, or None."""
    try:
        files: dict[str, Sequence[int]] = json.loads((entry / _RECORD).read_text(encoding="utf-8"))["files"]
        for name, (size, checksum) in files.items():
            if (entry / name).stat().st_size != size:
                return f"{name} has another size"
            if _checksum(entry / name) != checksum:
                return f"{name} has another checksum"
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        return error.strerror
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return str(error)
    return None


def _is_entry(path: Path) -> bool:
    """Whether it is ours: other programs also name folders by digests, but only ours contain a record."""
    return _ENTRY.fullmatch(path.name) is not None and (path / _RECORD).is_file()


def _checksum(path: Path) -> int:
    """CRC-32, which detects accidental damage at more than a gigabyte per second."""
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_SIZE):
            checksum = zlib.crc32(block, checksum)
    return checksum


def _days_since_change(path: Path) -> float:
    return (time.time() - path.stat().st_mtime) / (24 * 3600)


def _is_deserted(partial: Path) -> bool:
    """Whether nothing was written there for a day. On NFS, other machines do not see a lock."""
    return min(map(_days_since_change, (partial, *partial.iterdir()))) > 1


def _is_unlocked(partial: Path) -> bool:
    try:
        with locked(partial, wait=False):
            return True
    except BlockingIOError:
        return False
