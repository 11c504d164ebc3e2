"""Whole files are read from regular files of a bounded size alone, and nothing keeps the reader waiting."""

import os
import socket
import threading
from pathlib import Path

import pytest

from mt.regular_files import open_regular, read_bytes, read_given, read_text


def test_a_file_is_read_to_its_limit_and_not_beyond(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bytes(path, max_bytes=5) == b"12345"
    with pytest.raises(OSError, match="it is larger than 4 bytes"):
        read_bytes(path, max_bytes=4)


def test_text_is_utf_8_and_its_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes("\ufeffä\n".encode())
    assert read_text(path, max_bytes=100) == "ä\n"
    path.write_bytes(b"a\nb\n\xe4\n")
    with pytest.raises(OSError, match="line 3 is not UTF-8"):
        read_text(path, max_bytes=100)


def test_links_to_files_are_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    assert read_bytes(tmp_path / "link", max_bytes=5) == b"x"


def test_what_is_not_a_regular_file_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for name, reason in (
            ("pipe", "it is a pipe"),
            ("/dev/zero", "it is a device"),
            (".", "Is a directory"),
            ("nothing", "No such file"),
            ("socket", "No such device"),
        ):
            with pytest.raises(OSError, match=reason):
                open_regular(Path(name))


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = len(list(Path("/dev/fd").iterdir()))
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        for read in (read_bytes, read_given):
            with pytest.raises(OSError, match=r"it is|Is a"):
                read(path, max_bytes=5)
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_a_file_in_a_folder_that_is_moved_meanwhile(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_text("x")
    opened = os.open(folder, os.O_RDONLY)
    folder.rename(tmp_path / "moved")
    assert read_bytes(Path("file"), max_bytes=5, folder=opened) == b"x"
    os.close(opened)


def test_a_file_that_a_user_names_may_be_a_pipe_with_a_writer(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # For writing alone it would wait for a reader, and have lost it before the first byte.
    writing = os.open(pipe, os.O_RDWR)

    def write() -> None:
        with os.fdopen(writing, "wb") as file:
            file.write(b"slow " * 100_000)

    writer = threading.Thread(target=write)
    writer.start()
    content = read_given(pipe, max_bytes=500_000)
    writer.join()
    assert content == b"slow " * 100_000
    with pytest.raises(OSError, match="it is a pipe that nobody writes to"):
        read_given(pipe, max_bytes=10)
