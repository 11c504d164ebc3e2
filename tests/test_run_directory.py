"""One process trains in a run directory, old runs are moved and never overwritten, the newest is chosen."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mt.errors import RunError
from mt.run_directory import RunDirectory, as_run, newest_run

HOLD_THE_LOCK = """
import sys
from pathlib import Path
from mt.run_directory import RunDirectory
with RunDirectory(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def make_run(path: Path, *, checkpoint_time: float | None = None) -> RunDirectory:
    run = RunDirectory(path)
    path.mkdir(parents=True)
    run.config_file.write_text("data: {}\n")
    if checkpoint_time is not None:
        run.checkpoints_dir.mkdir()
        run.latest_file.write_text("step_0000001")
        os.utime(run.latest_file, (checkpoint_time, checkpoint_time))
    return run


def test_a_missing_run_is_explained_by_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no run in .*Train one with mt init"):
        RunDirectory(tmp_path / "c").require()
    make_run(tmp_path / "b")
    run = make_run(tmp_path / "a")
    assert run.require() is run
    (tmp_path / "no-run").mkdir()
    for path in (tmp_path / "c", tmp_path):
        with pytest.raises(RunError, match=rf"no run in {path}:.*near it: {tmp_path}/a, {tmp_path}/b\."):
            RunDirectory(path).require()
    # The ten of the most similar names, also in runs/.
    for number in range(11):
        make_run(tmp_path / "x" / "runs" / f"{number:x}-run")
    near = ", ".join(f"{tmp_path}/x/runs/{number}-run" for number in "7012345689")
    with pytest.raises(RunError, match=rf"near it: {near}\.$"):
        RunDirectory(tmp_path / "x" / "7-rum").require()


def test_the_command_that_adapts_a_run_is_quoted() -> None:
    command = as_run("runs/my run").adapt_command("my data.en,b")
    assert command == "mt init --init-from 'runs/my run' --data 'my data.en,b'"


def test_its_lock_can_be_taken_once(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "runs" / "x")
    assert not run.path.exists()
    holder = f"process {os.getpid()} on {re.escape(socket.gethostname())}"
    for _ in range(2):
        assert run.lock_owner() is None
        with run.lock():
            assert re.fullmatch(holder, run.lock_owner() or "")
            with pytest.raises(RunError, match=f"in use by {holder}.*--run"):
                run.lock().__enter__()
        with pytest.raises(KeyboardInterrupt), run.lock():
            raise KeyboardInterrupt
        assert run.lock_file.read_text() == ""


def test_another_process_is_named_and_a_killed_one_does_not_block(tmp_path: Path) -> None:
    run = make_run(tmp_path / "x")
    command = [sys.executable, "-c", HOLD_THE_LOCK, str(run.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        for refuses in (run.lock().__enter__, run.move_aside):
            with pytest.raises(RunError, match=f"in use by process {process.pid} on"):
                refuses()
        assert run.exists
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert str(process.pid) in run.lock_file.read_text()
    assert run.lock_owner() is None
    for name in (".corpus.json.partial-0000beef", ".notes"):
        (run.path / name).write_text("{")
    with run.lock():
        # What a killed process had half written is removed.
        assert {path.name for path in run.path.iterdir()} == {".notes", "config.yaml", "lock"}


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = RunDirectory(tmp_path / "file" / "x")
    with pytest.raises(RunError, match=r"Cannot train in .*file/x: File exists\..*--run"):
        run.lock().__enter__()


def test_runs_set_aside_never_overwrite_each_other(tmp_path: Path) -> None:
    (tmp_path / "x.old-2").mkdir()
    for number in ("x.old-1", "x.old-3", "x.old-4"):
        run = make_run(tmp_path / "x")
        (run.path / "train.log").write_text(number)
        assert run.move_aside() == tmp_path / number
        assert not run.path.exists()
        assert (tmp_path / number / "train.log").read_text() == number
    assert list((tmp_path / "x.old-2").iterdir()) == []


@pytest.mark.parametrize(("below", "path"), [(".", "."), ("tensorboard", ".."), ("a/b", "../..")])
def test_a_run_named_by_dots_has_the_name_of_its_folder(
    below: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path / "x").path / below
    folder.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(folder)
    assert as_run(path).path == tmp_path / "x"
    assert as_run(path).name == "x"
    as_run(path).move_aside()
    assert RunDirectory(tmp_path / "x.old-1").exists


def test_the_newest_run_is_the_one_whose_checkpoint_is_newest(tmp_path: Path) -> None:
    for runs in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RunError, match=r"No run in .* yet\. Train one"):
            newest_run(runs)
    make_run(tmp_path / "a", checkpoint_time=1_000)
    newest = make_run(tmp_path / "b", checkpoint_time=3_000)
    make_run(tmp_path / "c", checkpoint_time=2_000)
    make_run(tmp_path / "d")  # It is the last that was made, but it has nothing to translate with.
    make_run(tmp_path / ".e", checkpoint_time=4_000)
    assert newest_run(tmp_path) == newest
    assert newest_run(tmp_path, with_checkpoint=False).name == "d"
