"""Files and folders that appear whole or not at all, even after kill -9, a full disk or a power cut.

The order matters: write to a hidden name in the same folder, fsync the file, rename it, fsync the folder.
A rename is atomic only within one file system, which the same folder guarantees.
All of these functions raise OSError, which the caller explains to the user.
"""

import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Iterable
from pathlib import Path

_LEFTOVER = re.compile(r"\.(.+)\.partial-(\d+)(?:-([0-9a-f]{8}))?")


def partial_path(path: Path) -> Path:
    """The hidden name in the same folder under which this process builds or removes ``path``."""
    return path.with_name(f".{path.name}.partial-{os.getpid()}-{_machine()}")


@functools.cache
def _machine() -> str:
    """Where this process has its number, which others may have on other machines and in containers."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # Only Linux has them.
        namespace = ""
    return hashlib.blake2b(f"{socket.gethostname()} {namespace}".encode(), digest_size=4).hexdigest()


def sync(descriptor: int) -> None:
    """Return when an open file or folder is on disk."""
    # On macOS, fsync leaves it in the cache of the drive; not every file system there can do more.
    if (everything := getattr(fcntl, "F_FULLFSYNC", None)) is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, everything)
            return
    os.fsync(descriptor)


def write_synced(path: Path, data: bytes | memoryview | Iterable[bytes]) -> None:
    """Write ``data``, or its parts, directly to ``path`` and return when it is on disk; not atomic."""
    with path.open("wb") as file:
        file.writelines([data] if isinstance(data, bytes | memoryview) else data)
        file.flush()
        sync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Return when all changes of names in ``folder`` are on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Return when all files in ``folder`` and below it are on disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with Path(parent, name).open("rb") as file:
                sync(file.fileno())
        sync_folder(Path(parent))


def make_folder(path: Path) -> None:
    """Create ``path`` and its missing parents, and return when they are on disk."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)


def write_text_atomically(path: Path, text: str) -> None:
    """Replace the content of ``path`` with ``text``, as UTF-8; if that fails, ``path`` is unchanged."""
    _write_atomically(path, text.encode())


def _write_atomically(path: Path, data: bytes | Iterable[bytes], permissions: int | None = None) -> None:
    """Replace the content of ``path``; the new file has ``permissions``, or else those of any new file."""
    partial = partial_path(path)
    try:
        if permissions is not None:
            partial.touch(
                mode=stat.S_IRUSR | stat.S_IWUSR
            )  # Nobody else may read it until it has its permissions.
        write_synced(partial, data)
        if permissions is not None:
            partial.chmod(permissions)
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def append_line(path: Path, line: str) -> None:
    """Append a line, as UTF-8, whole or not at all, and return when it is on disk.

    Several processes may append at the same time. An unfinished last line of the file is terminated first.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        is_ended = not size or os.pread(descriptor, 1, size - 1) == b"\n"
        data = (b"" if is_ended else b"\n") + line.encode() + b"\n"
        try:
            if os.write(descriptor, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            sync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)
    if not size:
        sync_folder(path.parent)


def write_output(path: Path, content: str | bytes | Iterable[str]) -> None:
    """Write bytes, or text or parts of it as UTF-8, to a file that the user named.

    A regular file, or the file that a symbolic link points to, is replaced as a whole and keeps its
    permissions. A device, a pipe, and stdout or stderr by another name are written to directly.
    """
    if isinstance(content, bytes):
        data: Iterable[bytes] = [content]
    else:
        data = (part.encode() for part in ([content] if isinstance(content, str) else content))
    try:
        status = path.stat()
    except FileNotFoundError:
        status = None
    if status is None:
        _write_atomically(path.resolve(), data)
    elif (descriptor := _standard_stream(status)) is not None:
        with open(descriptor, "wb", closefd=False) as stream:
            stream.writelines(data)
    elif stat.S_ISREG(status.st_mode):
        _write_atomically(path.resolve(), data, stat.S_IMODE(status.st_mode))
    else:
        with path.open("wb") as device:
            device.writelines(data)


def _standard_stream(status: os.stat_result) -> int | None:
    """The descriptor of stdout or stderr, whose position is shared, if the file is one of them."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(status, os.fstat(descriptor)):
                return descriptor
    return None


def remove_folder_atomically(folder: Path) -> None:
    """Remove a folder so that nobody ever sees half of it, and any leftover that is in the way.

    One that is write-protected stays where it is.
    """
    if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    partial = partial_path(folder)
    shutil.rmtree(partial, ignore_errors=True)
    folder.rename(partial)
    shutil.rmtree(partial)


def put_in_place(partial: Path, folder: Path) -> None:
    """Rename ``partial`` to ``folder``; an older folder is first renamed to ``.NAME.aside``, then removed.

    If the process is killed between the two renames, the older folder can be renamed back.
    """
    aside = _aside(folder)
    replaces = folder.exists()
    if replaces:
        folder.rename(aside)
    try:
        partial.rename(folder)
    except BaseException:
        if replaces:
            aside.rename(folder)
        raise
    sync_folder(folder.parent)
    if replaces:
        remove_folder_atomically(aside)


def tidy_up_beside(folder: Path) -> list[Path]:
    """Undo or finish what killed processes left undone while building or replacing ``folder``.

    For writers without a lock: what belongs to a process that may still be alive stays.

    Returns:
        What was removed.
    """
    aside = _aside(folder)
    removed = []
    for path in list(folder.parent.iterdir()):
        match = _LEFTOVER.fullmatch(path.name)
        if match is None or match[1] not in (folder.name, aside.name) or _is_in_use(path, match):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
            removed.append(path)
    if aside.is_dir() and folder.exists():
        remove_folder_atomically(aside)
        removed.append(aside)
    elif aside.is_dir():
        aside.rename(folder)
        sync_folder(folder.parent)
    return removed


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.aside")


def is_deserted(path: Path) -> bool:
    """Whether nobody is building this file or folder any more, because it has not changed for a day.

    A lock alone does not say so: on NFS, other machines do not see it.
    """
    newest: float = max(file.stat().st_mtime for file in (path, *(path.iterdir() if path.is_dir() else ())))
    return time.time() - newest > 24 * 3600


def _is_in_use(partial: Path, name: re.Match[str]) -> bool:
    """Whether a process may still be building ``partial``: one of another machine cannot be asked."""
    if name[3] not in (None, _machine()):  # Earlier versions did not name it.
        try:
            return not is_deserted(partial)
        except FileNotFoundError:
            return True
    return _is_alive(int(name[2]))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # It belongs to another user.
        pass
    return True


def remove_leftovers(folder: Path, *, keep_files_of_living: bool = False) -> None:
    """Remove what killed processes left half built in ``folder``; only for the writer that has the lock.

    Args:
        folder: The folder to look in, but not in its subfolders.
        keep_files_of_living: Keep the files of other processes that may be alive, which write without the
            lock.
    """
    for path in list(folder.iterdir()):
        match = _LEFTOVER.fullmatch(path.name)
        if match is None:
            continue
        is_mine = int(match[2]) == os.getpid() and match[3] in (None, _machine())
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif not keep_files_of_living or is_mine or not _is_in_use(path, match):
            path.unlink(missing_ok=True)
