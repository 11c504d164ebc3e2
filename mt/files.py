"""Files and folders that appear whole or not at all, even after kill -9, a full disk or a power cut.

They are written under a hidden name in the same folder, synced and renamed; then the folder is synced.
"""

import errno
import glob
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any

from mt import system

_BLOCK_BYTES = 2**20


def cache_folder() -> Path:
    """``$MT_CACHE``, else ``mt`` in ``$XDG_CACHE_HOME`` or in ``~/.cache``."""
    chosen, shared = os.environ.get("MT_CACHE"), os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore relative paths.
    path = chosen or f"{shared if os.path.isabs(shared) else '~/.cache'}/mt"  # noqa: PTH117
    # There may be no home folder, which Path would refuse.
    return Path(os.path.expanduser(path))  # noqa: PTH111


def read_bytes(path: Path, *, max_bytes: int) -> bytes:
    """The content of a file that has at most so many bytes; of a device, reading might never end."""
    with path.open("rb") as file:
        # In blocks, because reading reserves memory for as much as it is asked for.
        blocks = iter(lambda: file.read(_BLOCK_BYTES), b"")
        content = b"".join(islice(blocks, max_bytes // _BLOCK_BYTES + 1))
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes:,} bytes", str(path))
    return content


def read_text(path: Path, *, max_bytes: int) -> str:
    """The content of a UTF-8 file, as in `read_bytes`, without a byte order mark at its start."""
    content = read_bytes(path, max_bytes=max_bytes)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise OSError(errno.EILSEQ, f"line {line} is not UTF-8; save the file again", str(path)) from error


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects in a file of one per line, without a line that a crash cut off; a missing file has none."""
    objects = []
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        with suppress(ValueError, RecursionError):
            objects.append(json.loads(line))
    return [value for value in objects if isinstance(value, dict)]


def sha256(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, content: str | bytes | Iterable[str]) -> None:
    """Replace a file with this content, as `new_file` does."""
    parts = [content] if isinstance(content, str | bytes) else content
    with new_file(path) as file:
        file.writelines(part.encode() if isinstance(part, str) else part for part in parts)


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write in a ``with`` block, which then takes the place of that at ``path``.

    It has the permissions of the old one, also behind a link; a pipe or device is written into.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as device:
            yield device
        return
    path = path.resolve()
    hidden = _hidden(path)
    try:
        with hidden.open("xb") as file:
            if path.exists():
                shutil.copymode(path, hidden)
            yield file
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(path)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    sync(path.parent)


def append_line(path: Path, line: str) -> None:
    """Append a line, as UTF-8; a last line that a full disk or a kill has cut off is ended first."""
    with path.open("a+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        is_ended = file.read(1) in (b"", b"\n")
        file.write((b"" if is_ended else b"\n") + line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if not size:
        sync(path.parent)


def sync(path: Path) -> None:
    """Return when the content of a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Create ``path`` and its missing parents, and return when they are on disk."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)


@contextmanager
def new_folder(folder: Path, *, replaces: bool = True) -> Iterator[Path]:
    """An empty folder to fill in a ``with`` block, which then becomes ``folder``, in place of an old one.

    Raises:
        FileExistsError: If it must not replace what another process has made meanwhile.
    """
    remove_leftovers(folder.parent, folder.name)
    # After a kill between the two renames, `remove_leftovers` renames it back.
    hidden, aside = _hidden(folder), folder.with_name(f".{folder.name}.aside")
    hidden.mkdir()
    with ExitStack() as stack:
        # When the lock, by which others know that it is being filled, is released.
        stack.callback(remove_leftovers, folder.parent, folder.name)
        with suppress(OSError):
            stack.enter_context(locked(hidden, shared=True))
        yield hidden
        for path in (*hidden.rglob("*"), hidden):
            sync(path)
        if folder.exists():
            if not replaces:
                raise FileExistsError(errno.EEXIST, "another process has made it meanwhile", str(folder))
            folder.rename(aside)
        hidden.rename(folder)
        sync(folder.parent)


@contextmanager
def locked(folder: Path, *, shared: bool = False, waits: bool = True) -> Iterator[None]:
    """Hold a lock on ``folder``; it is released when the process ends, however it ends.

    Raises:
        BlockingIOError: If another process holds one and this one does not wait.
        OSError: If the file system has no locks for folders; many network file systems have shared ones only.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        system.lock(descriptor, shared=shared, waits=waits)
        yield
    finally:
        os.close(descriptor)


def remove_folder_atomically(folder: Path) -> None:
    """Remove a folder so that nobody ever sees half of it; a write-protected one stays where it is."""
    if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    hidden = _hidden(folder)
    folder.rename(hidden)
    shutil.rmtree(hidden)


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Finish or undo what killed processes were writing in ``folder``, if it had that name."""
    name = name if name == "*" else glob.escape(name)
    for aside in list(folder.glob(f".{name}.aside")):
        replaced = aside.with_name(aside.name[1:].removesuffix(".aside"))
        aside.rename(_hidden(replaced) if replaced.exists() else replaced)
        sync(folder)
    for path in list(folder.glob(f".{name}.partial-*")):
        if not path.is_dir():
            path.unlink()
        elif not _is_being_filled(path):
            shutil.rmtree(path)


def _is_being_filled(folder: Path) -> bool:
    """Whether a living process fills it; where there are no locks, it is taken for a leftover."""
    try:
        with locked(folder, waits=False):
            return False
    except OSError as error:
        return isinstance(error, BlockingIOError)


def _hidden(path: Path) -> Path:
    """A name beside ``path`` under which it is written or removed, and which nobody else uses."""
    return path.with_name(f".{path.name}.partial-{secrets.token_hex(4)}")
