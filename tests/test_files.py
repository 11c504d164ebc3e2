"""Files appear whole or not at all, whatever happens meanwhile; what is read has a largest size."""

import hashlib
import os
import pty
import signal
import socket
import stat
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mt.files import (
    append_line,
    make_folder,
    new_folder,
    read_bytes,
    read_json_lines,
    read_text,
    remove_leftovers,
    sha256,
    write_atomically,
)

TEXT = "{\n  äöü\n}\n"


def test_a_file_is_read_up_to_its_largest_size_in_as_much_memory_as_it_takes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"12345", bytes(2**20), bytes(2**20 + 1)):
        path.write_bytes(content)
        tracemalloc.start()
        assert read_bytes(path, max_bytes=2**30) == read_bytes(path, max_bytes=len(content)) == content
        assert tracemalloc.get_traced_memory()[1] < 2**23
        tracemalloc.stop()
        with pytest.raises(OSError, match=rf"larger than {len(content) - 1:,} bytes"):
            read_bytes(path, max_bytes=len(content) - 1)
        assert sha256(path) == hashlib.sha256(content).hexdigest()
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_bytes(Path("/dev/zero"), max_bytes=4)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(tmp_path / "socket"))
        with pytest.raises(OSError, match="No such device"):
            read_bytes(tmp_path / "socket", max_bytes=4)


def test_text_is_utf_8_without_its_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes("\ufeffä\n".encode())
    assert read_text(path, max_bytes=100) == "ä\n"
    path.write_bytes(b"a\nb\n\xe4\n")
    with pytest.raises(OSError, match="line 3 is not UTF-8"):
        read_text(path, max_bytes=100)


@pytest.mark.parametrize("content", [TEXT, TEXT.encode(), [TEXT[:3], TEXT[3:]]])
@pytest.mark.parametrize("name", ["file", "link"])
def test_a_file_is_replaced_as_a_whole_and_keeps_its_permissions(
    tmp_path: Path, content: str | bytes | list[str], name: str
) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("a much longer text that was there before\n" * 10)
    file.chmod(0o640)
    link.symlink_to("file")
    with file.open() as before:
        write_atomically(tmp_path / name, content)
        assert before.readline() == "a much longer text that was there before\n"
    assert file.read_text(encoding="utf-8") == TEXT
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [file, link]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    def parts() -> Iterator[str]:
        yield "half of it"
        raise KeyboardInterrupt

    file = tmp_path / "file"
    file.write_text("before")
    with pytest.raises(KeyboardInterrupt):
        write_atomically(file, parts())
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_pipes_and_terminals_are_written_into(tmp_path: Path) -> None:
    pipe, text = tmp_path / "pipe", TEXT * 10_000  # More than a pipe holds.
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    write_atomically(pipe, text)
    reader.join()
    assert received == [text.encode()]
    ours, theirs = pty.openpty()
    write_atomically(Path(os.ttyname(theirs)), "to a terminal\n")
    assert os.read(ours, 100) == b"to a terminal\r\n"
    os.close(ours)
    os.close(theirs)


def test_an_unfinished_last_line_is_ended_before_another_is_appended(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    append_line(file, "one")
    with file.open("a") as torn:
        torn.write("tw")
    append_line(file, "three ä")
    assert file.read_text(encoding="utf-8") == "one\ntw\nthree ä\n"
    # Only whole objects are read back.
    assert read_json_lines(tmp_path / "none") == []
    for line in ('{"a": 1}', "[2]", '{"b":', "[" * 100_000, '{"c": null}'):
        append_line(file, line)
    assert read_json_lines(file) == [{"a": 1}, {"c": None}]


def fill(folder: Path) -> None:
    (folder / "below").mkdir()
    (folder / "below" / "file").write_text("new")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file, which is to be replaced."""
    folder = tmp_path / "runs" / "folder"
    make_folder(folder)
    make_folder(folder)  # It may be there.
    (folder / "old").write_text("old")
    return folder


def test_a_folder_takes_its_place_when_it_is_filled(folder: Path) -> None:
    with new_folder(folder) as filling:
        fill(filling)
        assert (folder / "old").exists()
    assert [path.name for path in folder.rglob("*")] == ["below", "file"]
    assert list(folder.parent.iterdir()) == [folder]
    with pytest.raises(KeyboardInterrupt), new_folder(folder):
        raise KeyboardInterrupt
    assert [path.name for path in folder.parent.rglob("*")] == ["folder", "below", "file"]


FILLING = """
import sys
from pathlib import Path
from mt.files import new_folder
with new_folder(Path(sys.argv[1])) as filling:
    (filling / "new").write_text("new")
    print("filling", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def filling(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that fills a folder until it reads a line."""
    command = [sys.executable, "-c", FILLING, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "filling\n"
            yield process
        finally:
            process.kill()


def test_what_a_living_process_fills_is_not_removed_and_one_of_two_makes_the_folder(folder: Path) -> None:
    has_made = pytest.raises(FileExistsError, match=r"another process has made it meanwhile.*folder")
    with has_made, new_folder(folder, replaces=False), filling(folder) as other:
        remove_leftovers(folder.parent)
        other.communicate("end\n")
        assert other.returncode == 0
    assert [path.name for path in folder.parent.rglob("*")] == ["folder", "new"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_folder_that_a_signal_leaves_unfinished_is_removed_by_the_next_to_make_it(
    folder: Path, number: signal.Signals
) -> None:
    with filling(folder) as other:
        other.send_signal(number)
        assert other.wait(60) == -number
    with new_folder(folder) as filled:
        (filled / "new").touch()
    assert [path.name for path in folder.parent.rglob("*")] == ["folder", "new"]


def test_only_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    for name in (".a.partial-0000beef", ".b.partial-0000beef", ".[a].partial-0000beef", ".hidden", "a"):
        (tmp_path / name).mkdir()
    (tmp_path / ".c.partial-0000beef").write_text("half")
    remove_leftovers(tmp_path, "[a]")
    assert sorted(path.name for path in tmp_path.glob(".*a*.partial*")) == [".a.partial-0000beef"]
    remove_leftovers(tmp_path, "a")
    names = {".b.partial-0000beef", ".c.partial-0000beef", ".hidden", "a"}
    assert {path.name for path in tmp_path.iterdir()} == names
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {".hidden", "a"}
