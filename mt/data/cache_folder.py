"""Where the user's cache is, and locks on folders."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from mt.files import named_path


def cache_folder() -> Path:
    """``$MT_CACHE``, else ``mt`` in ``$XDG_CACHE_HOME`` or in ``~/.cache``."""
    if chosen := os.environ.get("MT_CACHE"):
        return named_path(chosen)
    # The XDG specification says to ignore relative paths.
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if shared.is_absolute():
        return shared / "mt"
    try:
        return Path.home() / ".cache" / "mt"
    except RuntimeError:  # Without a home directory, use a cache that cannot be written.
        return Path(os.devnull) / "mt"


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock on ``folder``; it is released when the process ends, however it ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
