"""Files that the user named: regular ones are replaced whole, everything else is written into."""

import errno
import fcntl
import os
import pty
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mt.atomic_files import _machine, partial_path, sync_tree, write_output, write_synced

TEXT = "{\n  äöü\n}\n"


def test_a_regular_file_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_output(file, "a much longer text that was there before\n")
    before = file.stat().st_ino
    write_output(file, TEXT)
    assert file.read_text(encoding="utf-8") == TEXT
    assert file.stat().st_ino != before
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("permissions", [0o600, 0o640, 0o444])
def test_a_replaced_file_keeps_its_permissions(tmp_path: Path, permissions: int) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    file.chmod(permissions)
    write_output(file, TEXT)
    assert file.read_text(encoding="utf-8") == TEXT
    assert stat.S_IMODE(file.stat().st_mode) == permissions


@pytest.mark.parametrize("is_there", [True, False])
def test_the_file_behind_a_link_is_written_and_the_link_stays(tmp_path: Path, is_there: bool) -> None:
    (tmp_path / "elsewhere").mkdir()
    file, link = tmp_path / "elsewhere" / "file", tmp_path / "link"
    if is_there:
        file.write_text("before")
    link.symlink_to("elsewhere/file")
    write_output(link, TEXT)
    assert link.is_symlink()
    assert file.read_text(encoding="utf-8") == TEXT


@pytest.mark.parametrize("through_a_link", [False, True])
def test_a_pipe_is_written_into_and_stays(tmp_path: Path, through_a_link: bool) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("pipe")
    text = TEXT * 10_000  # More than a pipe holds.
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_output(link if through_a_link else pipe, text)
    reader.join()
    assert b"".join(read) == text.encode()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert link.is_symlink()


def test_a_device_is_written_into_and_stays() -> None:
    ours, theirs = pty.openpty()
    device = Path(os.ttyname(theirs))
    write_output(device, "to a device\n")
    assert os.read(ours, 100) == b"to a device\r\n"
    assert stat.S_ISCHR(device.stat().st_mode)
    os.close(ours)
    os.close(theirs)


def test_a_socket_is_refused_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # Its name may not be long.
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        with pytest.raises(OSError, match="No such device or address"):
            write_output(Path("socket"), TEXT)
        assert stat.S_ISSOCK(Path("socket").stat().st_mode)


WRITE = """
import sys
from pathlib import Path
from mt.atomic_files import write_output
print("before", flush=True)
write_output(Path(sys.argv[1]), "the output\\n")
print("after")
"""


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "out"])
def test_the_file_that_stdout_goes_to_keeps_what_is_printed(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    with out.open("w") as stdout:
        subprocess.run([sys.executable, "-c", WRITE, name], cwd=tmp_path, stdout=stdout, check=True)
    assert out.read_text() == "before\nthe output\nafter\n"


def test_stdout_may_be_a_pipe_or_a_socket() -> None:
    command = [sys.executable, "-c", WRITE, "/dev/stdout"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"before\nthe output\nafter\n"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        subprocess.run(command, stdout=theirs.fileno(), check=True)
        assert ours.recv(100) == b"before\nthe output\nafter\n"


def test_a_folder_is_on_the_disk_with_all_files_and_folders_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("one", "a/two", "a/b/three"):
        (tmp_path / name).write_text(name)
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    sync_tree(tmp_path)
    assert synced == {path.stat().st_ino for path in (tmp_path, *tmp_path.rglob("*"))}


@pytest.mark.parametrize("is_refused", [False, True])
def test_on_macos_the_drive_is_told_to_write_if_it_can(
    is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def told(descriptor: int, command: int) -> None:
        done.append(f"command {command}")
        if is_refused:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", told)
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append("fsync"))
    write_synced(tmp_path / "file", b"text")
    assert done == ["command 51"] + ["fsync"] * is_refused


def test_two_machines_that_share_a_folder_do_not_write_to_the_same_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In containers, most programs have the process number 1."""
    monkeypatch.setattr("os.getpid", lambda: 1)
    names = set()
    for host in ("a", "b"):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        _machine.cache_clear()
        names.add(partial_path(Path("hypotheses.txt")))
    monkeypatch.undo()
    _machine.cache_clear()
    assert len(names) == 2
