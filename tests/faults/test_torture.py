"""The judge of `scripts/torture` sees what it should see; and, marked slow, its short version passes."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mt.checkpoint import record

from .torture.damage import offer_damaged
from .torture.display import KINDS, lose_display
from .torture.kills import named_kill, random_kills
from .torture.processes import ROOT, Driver
from .torture.ranks import LAUNCHER, MACHINE, OCCURRENCES, PROCESS, STOP, draw
from .torture.table import table, totals
from .torture.trial import Arena, Trial, check_loud, check_readable, judge
from .torture.writers import second_writer


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


def test_other_figures_are_seen(arena: Arena, run: Path) -> None:
    trial = Trial("", "")
    metrics = run / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"step": 3,', '"step": 4,', 1))
    for events in (run / "tensorboard").iterdir():
        events.unlink()
    judge(trial, arena, run)
    assert [text.split()[0] for _, text in trial.problems] == ["metrics", "curves"]


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


def test_a_store_that_does_not_verify_is_seen(
    arena: Arena, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "_compare", lambda checkpoint, part, found: None)
    trial = offer_damaged("model.safetensors", "one bit flipped", 5, 0.5)(arena, driver)
    assert kinds(trial) == {"loaded"}
    assert "5 damaged checkpoints loaded out of 5" in totals([trial])
    assert "| damaged checkpoints | 1 | 0 | 1 |" in table([trial])


def test_a_kill_that_does_not_happen_is_seen(arena: Arena, driver: Driver) -> None:
    assert kinds(named_kill("no such point", 1, "kill")(arena, driver)) == {"wrong"}


def test_twenty_blows_strike_every_part_of_a_run_in_every_way() -> None:
    for seed in range(5):
        chance = random.Random(seed)
        drawn = [draw(number, chance) for number in range(20)]
        assert {blow.point for blow in drawn} == set(OCCURRENCES)
        assert {blow.what for blow in drawn} == {PROCESS, LAUNCHER, MACHINE, STOP}
        assert {(blow.rank, blow.num_machines) for blow in drawn} == {(0, 1), (1, 1), (0, 2), (1, 2)}
        assert [blow.point for blow in drawn if blow.what == STOP] == ["training"] * 2


@pytest.mark.slow
def test_random_kills_of_the_real_command(arena: Arena, driver: Driver) -> None:
    for task in random_kills(arena, 3, random.Random(7)):
        assert task(arena, driver).problems == []


@pytest.mark.slow
def test_two_writers(arena: Arena, driver: Driver) -> None:
    assert second_writer(0.1)(arena, driver).problems == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_stderr_is_lost(kind: str, arena: Arena, driver: Driver) -> None:
    assert lose_display(kind, 300)(arena, driver).problems == []


def test_a_run_that_ends_with_its_display_is_seen(
    arena: Arena, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As it was before stderr could be lost.
    monkeypatch.setattr(
        "tests.faults.torture.display.start_command",
        lambda config, run, stderr: subprocess.Popen(["false"], text=True),
    )
    assert kinds(lose_display("a device is full", 0)(arena, driver)) == {"lost"}


@pytest.mark.slow
def test_the_script(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "torture"), "--quick", "--phases", "points", "damage"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "0 runs lost" in ended.stdout
