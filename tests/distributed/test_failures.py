"""Whatever happens to one process: all end soon, none is left over, and the same command resumes exactly."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.distributed.conftest import command_of, environment, position, tensors

DRIVER = Path(__file__).with_name("failing_training.py")
OVERRIDES = ("training.max_steps=8", "training.label_smoothing=0.1")
Fail = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def train(tiny_config_file: Path, tmp_path: Path) -> Fail:
    """Trains in ``<tmp_path>/run`` by two processes, one of which may fail at some point."""

    def run(rank: int = 9, point: str = "-", event: str = "-") -> subprocess.CompletedProcess[str]:
        program = [str(DRIVER), str(tmp_path), str(rank), point, event]
        command = command_of(tiny_config_file, tmp_path / "run", OVERRIDES, size=2, program=program)
        with (tmp_path / "output").open("w") as file:
            # Not pipes, which a process that is left over would keep open.
            code = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment(), timeout=500
            ).returncode
        return subprocess.CompletedProcess(command, code, (tmp_path / "output").read_text())

    return run


@pytest.fixture(scope="module")
def unbroken(tiny_config_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    run = tmp_path_factory.mktemp("unbroken") / "run"
    command = command_of(tiny_config_file, run, OVERRIDES, size=2, program=["mt"])
    subprocess.run(command, check=True, env=environment())
    return tensors(run)


def seconds_to_the_end(folder: Path) -> float:
    """From the event until no process is left; the workers that are there are killed after a minute."""
    happened = float((folder / "happened").read_text())
    workers = [int(file.read_text()) for file in folder.glob("pid.*")]
    assert len(workers) == 2
    while alive := [pid for pid in workers if _is_alive(pid)]:
        if time.time() - happened > 180:
            for pid in alive:
                os.kill(pid, signal.SIGKILL)
            pytest.fail(f"{alive} are left over")
        time.sleep(0.05)
    return time.time() - happened


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def assert_continues_exactly(train: Fail, folder: Path, unbroken: dict[str, torch.Tensor]) -> None:
    again = train()
    assert again.returncode == 0, again.stdout
    ours = tensors(folder / "run")
    assert ours.keys() == unbroken.keys()
    assert all(torch.equal(tensor, unbroken[name]) for name, tensor in ours.items())
    assert position(folder / "run")["step"] == 8
    assert not (folder / "run/stopped").exists()


# Promised are the seconds below on a machine with nothing else to do, which the tests cannot count on.
BUSY_SECONDS = 30
FAULTS = [
    ("kill", 1, "training", 15), ("kill", 1, "validation", 45), ("kill", 0, "saving", 45),
    ("stop", 1, "training", 105), ("kill agent", 1, "training", 5),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("event", "rank", "point", "seconds"), FAULTS)
def test_all_end_and_the_same_command_continues_exactly(
    train: Fail,
    tmp_path: Path,
    unbroken: dict[str, torch.Tensor],
    event: str,
    rank: int,
    point: str,
    seconds: int,
) -> None:
    ended = train(rank, point, event)
    needed = seconds_to_the_end(tmp_path)
    print(f"{event} of process {rank} in {point}: {needed:.1f} seconds")
    assert ended.returncode != 0
    assert 'Traceback (most recent call last):\n  File "' + str(DRIVER) not in ended.stdout
    assert needed < seconds + BUSY_SECONDS
    latest = tmp_path / "run/checkpoints/latest"
    assert not latest.exists() or position(tmp_path / "run")["step"] < 8
    assert not (tmp_path / "run/stopped").exists()
    assert_continues_exactly(train, tmp_path, unbroken)


@pytest.mark.slow
def test_sigterm_to_the_agent_saves_and_says_so_in_a_file(
    train: Fail, tmp_path: Path, unbroken: dict[str, torch.Tensor]
) -> None:
    ended = train(1, "training", "terminate agent")
    print(f"{seconds_to_the_end(tmp_path):.1f} seconds")
    assert ended.returncode != 0
    # The other process may have been told first.
    reasons = ("SIGTERM\n", "another process was asked to stop\n")
    assert (tmp_path / "run/stopped").read_text() in reasons
    assert position(tmp_path / "run")["step"] >= 5
    assert_continues_exactly(train, tmp_path, unbroken)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_one_ends_long_work_of_all(train: Fail, tmp_path: Path, rank: int) -> None:
    assert train(rank, "validation", "terminate").returncode != 0
    assert seconds_to_the_end(tmp_path) < 15 + BUSY_SECONDS
    reason = "another process was asked to stop\n" if rank else "SIGTERM\n"
    assert (tmp_path / "run/stopped").read_text() == reason
    assert '"validation"' not in (tmp_path / "run/metrics.jsonl").read_text()
    assert position(tmp_path / "run")["step"] == 4
    assert train().returncode == 0
    assert position(tmp_path / "run")["step"] == 8


@pytest.mark.slow
def test_an_error_of_another_process_is_in_the_log_with_its_number(train: Fail, tmp_path: Path) -> None:
    ended = train(1, "training", "error")
    assert seconds_to_the_end(tmp_path) < 15 + BUSY_SECONDS
    log = (tmp_path / "run/train.log").read_text()
    assert " ERROR process 1: Failed: made up for this test." in log
    assert "mt: process 1: made up for this test." in ended.stdout
    assert "mt: another process of this run has ended" in ended.stdout


@pytest.mark.slow
def test_a_loss_that_is_not_finite_on_one_process_skips_the_step_on_all(train: Fail, tmp_path: Path) -> None:
    ended = train(1, "training", "NaN")
    assert ended.returncode == 0, ended.stdout
    assert "step 5 skipped" in ended.stdout
    sums = [(tmp_path / f"sums.{rank}").read_text().splitlines() for rank in range(2)]
    assert len(sums[0]) == 8
    assert sums[0] == sums[1]
    assert sums[0][3] == sums[0][4] != sums[0][5]
