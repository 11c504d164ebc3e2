"""The judge of `scripts/torture` sees what it should see; and, marked slow, its short version passes."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import ROOT

from .torture.kills import named_kill, random_kills
from .torture.processes import Driver
from .torture.trial import Arena, Trial, check_loud, check_readable, judge


@pytest.fixture
def run(arena: Arena) -> Path:
    """A copy of the unbroken run."""
    return Path(shutil.copytree(arena.unbroken, arena.new_run()))


def kinds(trial: Trial) -> set[str]:
    return {kind for kind, _ in trial.problems}


def flip_last_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_an_unbroken_run_is_not_blamed(arena: Arena, run: Path) -> None:
    trial = Trial("", "")
    judge(trial, arena, run)
    check_readable(trial, run)
    assert trial.problems == []


def test_one_bit_of_the_weights_is_seen(arena: Arena, run: Path) -> None:
    trial = Trial("", "")
    flip_last_bit(run / "checkpoints" / "step_0000012" / "model.safetensors")
    judge(trial, arena, run)
    assert "different" in kinds(trial)
    check_readable(trial, run)
    assert "lost" in kinds(trial)


def test_what_is_left_over_or_missing_is_seen(arena: Arena, run: Path) -> None:
    trial = Trial("", "")
    (run / "checkpoints" / ".step_0000003.partial-7").mkdir()
    (run / "corpus.json").unlink()
    judge(trial, arena, run)
    assert kinds(trial) == {"left over", "lost"}


def test_silence_and_tracebacks_are_seen(arena: Arena, run: Path) -> None:
    trial = Trial("", "")
    run.with_suffix(".stderr").write_text("Traceback (most recent call last): ...")
    check_loud(trial, run, 1, expected={2}, saying="No space left")
    assert [kind for kind, _ in trial.problems] == ["wrong", "silent", "wrong"]


def test_a_kill_that_does_not_happen_is_seen(arena: Arena, driver: Driver) -> None:
    assert kinds(named_kill("no such point", 1, "kill")(arena, driver)) == {"wrong"}


@pytest.mark.slow
def test_random_kills_of_the_real_command(arena: Arena, driver: Driver) -> None:
    for task in random_kills(arena, 3, random.Random(7)):
        assert task(arena, driver).problems == []


@pytest.mark.slow
def test_the_script(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "torture"), "--quick", "--phases", "points", "damage"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "0 runs lost" in ended.stdout
