"""Reads whole files: regular files of a bounded size, so that reading neither hangs nor fills memory.

A named pipe in place of a file would block its reader forever, and a device such as ``/dev/zero`` has no end.
Every problem with a file is an OSError whose ``strerror`` completes the sentence "FILE cannot be read: ...".
"""

import errno
import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path

# Opening a pipe must not wait for a writer, and a terminal must not become the controlling one.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def named_path(text: str) -> Path:
    """The path that the user wrote: a tilde at its start is a home folder, if there is one."""
    # Path.expanduser raises RuntimeError if there is none; here, no file of that name will be found.
    return Path(os.path.expanduser(text))  # noqa: PTH111


def is_utf8(path: Path | str) -> bool:
    """Whether a path, or text from the command line, is UTF-8; many libraries cannot open other paths."""
    try:
        str(path).encode()
    except UnicodeEncodeError:  # Python keeps the bytes that are not UTF-8 as lone surrogates.
        return False
    return True


def open_regular(path: Path, *, folder: int | None = None) -> BufferedReader:
    """Open a file to read its bytes.

    Args:
        path: The file. A symbolic link is followed.
        folder: The descriptor of an open folder that ``path`` is relative to.
    """
    descriptor = os.open(path, _FLAGS, dir_fd=folder)
    try:
        kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
        if kind == stat.S_IFDIR:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if kind != stat.S_IFREG:
            raise OSError(errno.EINVAL, f"it is {_KINDS[kind]}, not a regular file", str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path, *, max_bytes: int, folder: int | None = None) -> bytes:
    """The content of a regular file."""
    with open_regular(path, folder=folder) as file:
        # Some files in /proc are endless, and reading them may return None.
        content = file.read(max_bytes + 1) or b""
    return _bounded(content, max_bytes, path)


def sha256(path: Path) -> str:
    """The SHA-256 of a regular file in hexadecimal, computed without loading it into memory."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_given(path: Path, *, max_bytes: int) -> bytes:
    """The content of a file named by the user, which may be a pipe with a writer, such as ``<(command)``."""
    descriptor = os.open(path, _FLAGS)
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return read_bytes(path, max_bytes=max_bytes)
    # Only opening would wait for a writer; reading waits while there is one.
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(max_bytes + 1)
    if not content:
        raise OSError(errno.EPIPE, "it is a pipe that nobody writes to", str(path))
    return _bounded(content, max_bytes, path)


def read_text(path: Path, *, max_bytes: int) -> str:
    """The content of a regular UTF-8 file, without a byte order mark at its start."""
    return decode_utf8(read_bytes(path, max_bytes=max_bytes), path)


def decode_utf8(content: bytes, path: Path) -> str:
    """The text of a file's content."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise OSError(
            errno.EILSEQ, f"line {line} is not UTF-8; save the file again as UTF-8", str(path)
        ) from error


def _bounded(content: bytes, max_bytes: int, path: Path) -> bytes:
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes:,} bytes", str(path))
    return content
