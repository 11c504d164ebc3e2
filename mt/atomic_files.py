"""Files and folders that appear whole or not at all, also through kill -9, a full disk or a power cut.

The order is the point: write beside under a hidden name, fsync what was written, rename, fsync the folder.
A rename is atomic on one file system only, and "beside" is the one place that is sure to be on it.
All of these raise OSError, which the caller turns into a sentence.
"""

import contextlib
import os
import re
import shutil
import stat
from pathlib import Path

_LEFTOVER = re.compile(r"\..+\.partial-\d+")


def partial_path(path: Path) -> Path:
    """The hidden name beside ``path`` under which this process builds it, or takes it apart."""
    return path.with_name(f".{path.name}.partial-{os.getpid()}")


def write_synced(path: Path, data: bytes | memoryview) -> None:
    """Write ``data`` to ``path`` itself and return when the disk has it; not atomic."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Return when the disk has the names in ``folder``: new ones, renamed ones, removed ones."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make ``path`` and its parents where they are missing, and return when the disk has them."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)


def write_text_atomically(path: Path, text: str) -> None:
    """Put ``text`` in place of whatever ``path`` held, as UTF-8; where it fails, ``path`` is as it was."""
    partial = partial_path(path)
    try:
        write_synced(partial, text.encode())
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_output(path: Path, text: str) -> None:
    """Write ``text``, as UTF-8, to a file that the user named, which may be a device or a pipe.

    A regular file is replaced whole, and where ``path`` is a symbolic link, the file that it points to.
    Anything else, and stdout or stderr by another name, is written into.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        status = None
    if status is None:
        write_text_atomically(path.resolve(), text)
    elif (descriptor := _standard_stream(status)) is not None:
        with open(descriptor, "wb", closefd=False) as stream:
            stream.write(text.encode())
    elif stat.S_ISREG(status.st_mode):
        write_text_atomically(path.resolve(), text)
    else:
        with path.open("wb") as device:
            device.write(text.encode())


def _standard_stream(status: os.stat_result) -> int | None:
    """Which of stdout and stderr a file is, whose position it has to share with them; None for neither."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(status, os.fstat(descriptor)):
                return descriptor
    return None


def remove_folder_atomically(folder: Path) -> None:
    """Remove a folder so that nobody ever sees half of it; a leftover that was in the way goes too."""
    partial = partial_path(folder)
    shutil.rmtree(partial, ignore_errors=True)
    folder.rename(partial)
    shutil.rmtree(partial)


def put_in_place(partial: Path, folder: Path) -> None:
    """Rename ``partial`` to ``folder``; an older one goes aside first, as ``.NAME.aside``, then away.

    Killed between the two renames, this leaves the older one aside, to be put back.
    """
    aside = folder.with_name(f".{folder.name}.aside")
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


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left half built in ``folder``; only for its one writer, under its lock."""
    for path in list(folder.iterdir()):
        if not _LEFTOVER.fullmatch(path.name):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
