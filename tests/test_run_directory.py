"""A run directory: one writer, whoever was killed; old runs moved, never overwritten; the newest found."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mt.atomic_files import partial_path
from mt.errors import RunError
from mt.run_directory import RunDirectory, as_run, newest_run

HOLD_THE_LOCK = """
import sys, time
from pathlib import Path
from mt.run_directory import RunDirectory
with RunDirectory(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process_holding(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A second process that holds the lock of the run at ``path`` until its standard input closes."""
    command = [sys.executable, "-c", HOLD_THE_LOCK, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def make_run(path: Path, *, checkpoint_time: float | None = None) -> RunDirectory:
    run = RunDirectory(path)
    path.mkdir(parents=True)
    run.config_file.write_text("data: {}\n")
    if checkpoint_time is not None:
        record = run.checkpoints_dir / "step_0000001" / "checkpoint.json"
        record.parent.mkdir(parents=True)
        record.write_text("{}")
        os.utime(record, (checkpoint_time, checkpoint_time))
    return run


def test_every_file_of_a_run_is_inside_it_under_its_own_name() -> None:
    run = RunDirectory(Path("runs/x"))
    paths = [path for name in dir(run) if isinstance(path := getattr(run, name), Path) and path != run.path]
    paths += [run.hypotheses_file("test"), run.hypotheses_file("validation")]
    assert len(paths) == 16
    assert len(set(paths)) == len(paths)
    assert all(path.parent == run.path for path in paths)
    paths += [run.references_file("test"), run.bad_batch_file(7), run.checkpoints_dir / "best"]
    assert all(run.is_own_file(path) for path in paths)
    others = (run.path / "report.html", run.path / "notes" / "config.yaml", Path("config.yaml"), run.path)
    assert not any(run.is_own_file(path) for path in others)


def test_a_run_is_a_folder_with_a_config(tmp_path: Path) -> None:
    run = make_run(tmp_path / "x")
    assert run.exists
    assert run.require() is run
    assert not RunDirectory(tmp_path).exists


def test_no_run_is_reported_with_the_runs_beside_it(tmp_path: Path) -> None:
    make_run(tmp_path / "b")
    make_run(tmp_path / "a")
    (tmp_path / "no-run").mkdir()
    with pytest.raises(RunError, match=re.escape(f"no run in {tmp_path / 'c'}") + r".*beside it: a, b\."):
        RunDirectory(tmp_path / "c").require()


def test_a_folder_of_runs_and_a_checkpoint_are_no_runs(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    with pytest.raises(RunError, match=r"is not a run, but a folder of runs: a\.$"):
        RunDirectory(tmp_path).require()
    checkpoint = tmp_path / "a" / "checkpoints" / "step_0000002"
    expected = f"{checkpoint} is a checkpoint of the run {tmp_path / 'a'}: give the run as --run"
    with pytest.raises(RunError, match=re.escape(expected)):
        RunDirectory(checkpoint).require()


@pytest.mark.parametrize("parent", [".", "nowhere"])
def test_no_run_and_none_beside_it_says_how_to_train_one(tmp_path: Path, parent: str) -> None:
    with pytest.raises(RunError) as raised:
        RunDirectory(tmp_path / parent / "c").require()
    assert "mt init --recipe quickstart" in str(raised.value)


def test_lock_makes_the_folder_and_can_be_taken_again(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "runs" / "x")
    for _ in range(2):
        with run.lock():
            assert run.lock_file.read_text() == f"{os.getpid()} {socket.gethostname()}\n"
        assert run.lock_file.read_text() == ""


def test_lock_is_freed_by_an_exception(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "x")
    with pytest.raises(KeyboardInterrupt), run.lock():
        raise KeyboardInterrupt
    with run.lock():
        pass


def test_second_object_in_one_process_is_refused(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "x").lock():
        with (
            pytest.raises(RunError, match=f"process {os.getpid()} on {re.escape(socket.gethostname())}"),
            RunDirectory(tmp_path / "x").lock(),
        ):
            pass
        # The refusal must not have freed it.
        with pytest.raises(RunError), RunDirectory(tmp_path / "x").lock():
            pass


def test_second_process_is_refused_with_pid_and_host_and_a_killed_one_does_not_block(tmp_path: Path) -> None:
    run = make_run(tmp_path / "x")
    with another_process_holding(run.path) as process:
        whom = f"{re.escape(str(run.path))} is in use by process {process.pid} on {socket.gethostname()}"
        with pytest.raises(RunError, match=whom), run.lock():
            pass
        with pytest.raises(RunError, match=whom):
            run.set_aside()
        assert run.exists
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert str(process.pid) in run.lock_file.read_text()
        with run.lock():
            pass


def test_a_second_writer_can_be_refused_before_it_tries_to_lock(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "x")
    run.refuse_second_writer()
    assert not run.path.exists()
    with run.lock():
        text = run.lock_file.read_text()
        with pytest.raises(RunError, match=f"in use by process {os.getpid()} on"):
            run.refuse_second_writer()
        assert run.lock_file.read_text() == text
    run.refuse_second_writer()
    with run.lock():  # Looking has taken nothing away.
        pass


def test_a_run_directory_may_itself_be_a_link(tmp_path: Path) -> None:
    make_run(tmp_path / "on another disk")
    (tmp_path / "x").symlink_to("on another disk")
    with RunDirectory(tmp_path / "x").lock():
        pass


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"12 host; rm -rf\n", b"9" * 5000])
def test_nonsense_in_the_lock_file_is_not_repeated(tmp_path: Path, text: bytes) -> None:
    run = RunDirectory(tmp_path / "x")
    with run.lock():
        run.lock_file.write_bytes(text)
        with pytest.raises(RunError, match="in use by another process,"), run.lock():
            pass


@pytest.mark.parametrize("text", ["mine\n", "12", "9" * 5000])
def test_a_file_of_the_users_is_not_taken_for_the_lock(tmp_path: Path, text: str) -> None:
    run = make_run(tmp_path / "x")
    run.lock_file.write_text(text)
    with pytest.raises(RunError, match=r"x/lock was not written by training, .*Rename that file"):
        run.refuse_unusable()
    with pytest.raises(RunError, match=r"x/lock was not written by training, .*Rename that file"), run.lock():
        pass
    assert run.lock_file.read_text() == text


@pytest.mark.parametrize("text", ["", "12 host\n", "\0" * 8])
def test_a_lock_that_a_killed_process_or_a_power_cut_left_can_be_taken(tmp_path: Path, text: str) -> None:
    run = make_run(tmp_path / "x")
    run.lock_file.write_text(text)
    run.refuse_unusable()
    with run.lock():
        pass


def test_lock_removes_half_written_files_and_nothing_else(tmp_path: Path) -> None:
    run = make_run(tmp_path / "x")
    here = partial_path(Path("x")).name.rpartition("-")[2]
    # No process has this number. Earlier versions did not write where a process runs.
    dead = 2**22 + 1
    deserted = run.path / f".references.test.txt.partial-{os.getppid()}-0000beef"
    for leftover in (
        deserted,
        run.path / f".corpus.json.partial-{dead}",
        run.path / f".corpus.json.partial-{dead}-{here}",
        run.path / f".corpus.json.partial-{os.getpid()}",
        run.path / f".corpus.json.partial-{os.getpid()}-{here}",
    ):
        leftover.write_text("{")
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(deserted, (two_days_ago, two_days_ago))
    kept = [
        f".hypotheses.a.txt.partial-{os.getppid()}",
        f".hypotheses.b.txt.partial-{os.getppid()}-{here}",
        # On another machine, or in another container, any process may have this number.
        f".hypotheses.c.txt.partial-{dead}-0000beef",
        f".hypotheses.d.txt.partial-{os.getpid()}-0000beef",
        f".notes.partial-{dead}-mine",
        ".notes.partial-of-mine",
    ]
    for name in kept:
        (run.path / name).write_text("being written by `mt evaluate`, or the user's own")
    with run.lock():
        assert {path.name for path in run.path.iterdir()} == {*kept, "config.yaml", "lock"}


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = RunDirectory(tmp_path / "file" / "x")
    with pytest.raises(RunError, match=r"Cannot use .*file/x as a run directory: File exists"), run.lock():
        pass


def test_a_name_that_is_not_utf_8_is_refused_because_tensorboard_cannot_write_there(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / os.fsdecode(b"r\xe9"))
    with pytest.raises(RunError, match="is not UTF-8"), run.lock():
        pass
    with pytest.raises(RunError, match="is not UTF-8"):
        run.refuse_unusable()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_cannot_lock_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(RunError, match="No locks available"), RunDirectory(tmp_path / "x").lock():
        pass


def test_runs_set_aside_never_overwrite_each_other(tmp_path: Path) -> None:
    (tmp_path / "x.old-2").mkdir()
    for number in ("x.old-1", "x.old-3", "x.old-4"):
        run = make_run(tmp_path / "x")
        (run.path / "train.log").write_text(number)
        assert run.set_aside() == tmp_path / number
        assert not run.path.exists()
    assert (tmp_path / "x.old-1" / "train.log").read_text() == "x.old-1"
    assert list((tmp_path / "x.old-2").iterdir()) == []


@pytest.mark.parametrize(("place", "path"), [(".", "."), ("tensorboard", ".."), ("a/b", "../..")])
def test_a_run_named_by_dots_has_the_name_of_its_folder_and_is_set_aside_too(
    place: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path / "x").path / place
    folder.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(folder)
    assert RunDirectory(Path(path)).name == "x"
    assert as_run(path).path == tmp_path / "x"
    RunDirectory(Path(path)).set_aside()
    assert RunDirectory(tmp_path / "x.old-1").exists


def test_a_link_to_a_run_has_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "disk" / "x")
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "x")
    monkeypatch.chdir(tmp_path)
    assert RunDirectory(Path("link")).name == "link"
    # As the system reads it: the parent of the target.
    assert RunDirectory(Path("link", "..")).name == "disk"
    assert RunDirectory(Path("/")).name == ""


def test_what_is_not_a_run_is_never_moved(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(RunError, match="no run in"):
        RunDirectory(tmp_path / "home").set_aside()
    assert list((tmp_path / "home").iterdir()) == [tmp_path / "home" / "letter.txt"]


def test_a_run_that_cannot_be_moved_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    run = make_run(tmp_path / "x")
    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(RunError, match=r"Cannot move .*x aside to .*x\.old-1: Permission denied"):
        run.set_aside()
    assert run.exists


def test_who_waited_for_a_run_that_was_moved_does_not_train_in_the_moved_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "x")
    really_open = os.open

    def move_after_opening(path: Path, *arguments: int) -> int:
        descriptor = really_open(path, *arguments)
        if path == run.lock_file:
            run.path.rename(tmp_path / "moved")
            make_run(run.path).lock_file.write_text("of the run that took its place")
        return descriptor

    monkeypatch.setattr(os, "open", move_after_opening)
    with pytest.raises(RunError, match=r"Cannot use .*moved a moment ago"), run.lock():
        pass


def test_newest_run_is_the_one_whose_checkpoint_is_newest(tmp_path: Path) -> None:
    make_run(tmp_path / "a", checkpoint_time=1_000)
    newest = make_run(tmp_path / "b", checkpoint_time=3_000)
    make_run(tmp_path / "c", checkpoint_time=2_000)
    make_run(tmp_path / "d")  # younger than all, but with nothing to translate with
    partial = make_run(tmp_path / "e").checkpoints_dir / ".step_0000001.partial-7" / "checkpoint.json"
    partial.parent.mkdir(parents=True)
    partial.write_text("{}")
    assert newest_run(tmp_path) == newest


@pytest.mark.parametrize("runs", [".", "nowhere"])
def test_no_run_at_all_says_how_to_train_one(tmp_path: Path, runs: str) -> None:
    with pytest.raises(RunError, match=r"No run in .* yet\.") as raised:
        newest_run(tmp_path / runs)
    assert "mt init --recipe quickstart" in str(raised.value)
