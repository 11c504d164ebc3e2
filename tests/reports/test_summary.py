"""Runs at a glance: the state, the figures and the damage of each, from its files alone."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mt.errors import RunError
from mt.reports.summary import RunSummary, find_runs, summarise
from mt.reports.table import short_count
from mt.run_directory import RunDirectory
from tests.forked import environment

GoldenRun = Callable[..., RunDirectory]
BEFORE = "checkpoints/step_0000600"


def look(run: RunDirectory) -> RunSummary:
    return summarise(run, now=time.time())


def test_a_finished_run_tells_the_figures_of_its_files(golden_run: GoldenRun) -> None:
    half = look(golden_run("format_2_interrupted", "half"))
    assert (half.state, half.step, half.best_bleu) == ("stopped", 605, None)
    run = golden_run()
    found = look(run)
    lines = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
    best = max((line for line in lines if line["kind"] == "validation"), key=lambda line: line["bleu"])
    assert (found.state, found.step) == ("finished", 600)
    assert "training.max_steps (600)" in str(found.detail)
    assert (found.epochs, found.num_target_tokens) == (lines[-1]["epoch"], lines[-1]["num_target_tokens"])
    assert (found.best_bleu, found.best_bleu_step) == (best["bleu"], best["step"])
    assert found.num_bytes == sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file())


def test_a_run_is_running_while_another_process_holds_its_lock_and_no_longer(golden_run: GoldenRun) -> None:
    run = golden_run()
    hold = (
        "import sys; from pathlib import Path; from mt.run_directory import RunDirectory\n"
        "with RunDirectory(Path(sys.argv[1])).lock(): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", hold, str(run.path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        found = look(run)
        assert (found.state, found.detail) == (
            "running",
            f"process {process.pid} on {socket.gethostname()}",
        )
        process.kill()
    # What a killed process leaves in the lock file does not count.
    assert run.lock_file.read_text() != ""
    assert look(run).state == "finished"


def _truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _garbage(file: Path) -> None:
    file.write_bytes(b"\x00\xff[[[[" * 1000)


PARTS = [
    "config.yaml",
    "src_tokenizer.json",
    f"{BEFORE}/checkpoint.json",
    f"{BEFORE}/model.safetensors",
    f"{BEFORE}/training_state.json",
    f"{BEFORE}/training_state.safetensors",
    "checkpoints/latest",
    "checkpoints/best",
    "metrics.jsonl",
]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("damage", [_truncate, _garbage, Path.unlink])
def test_a_run_with_a_damaged_part_is_named_as_damaged(
    golden_run: GoldenRun, damage: Callable[[Path], object], part: str
) -> None:
    run = golden_run()
    damage(run.path / part)
    summary = look(run)
    # Curves can be read as far as they go. Training writes the pointers again; the tokenizers are read whole
    # only when they are used.
    is_harmless = (
        part == "metrics.jsonl"
        or (part.startswith("checkpoints/") and "step" not in part and damage is Path.unlink)
        or (part == "src_tokenizer.json" and damage is not Path.unlink)
    )
    assert summary.state == ("finished" if is_harmless else "damaged")
    assert is_harmless or Path(part).name in str(summary.detail)


def test_runs_are_found_in_folders_and_by_name_without_repetition(golden_run: GoldenRun) -> None:
    first, second = golden_run(name="a"), golden_run(name="b")
    folder = first.path.parent
    (folder / "notes").mkdir()
    (folder / "README.md").write_text("not a run")
    assert [run.path.name for run in find_runs([folder])] == ["a", "b"]
    assert [run.path.name for run in find_runs([second.path, folder])] == ["b", "a"]
    assert [run.path for run in find_runs([first.path, folder / "notes" / ".." / "a"])] == [first.path]
    (folder / "c").symlink_to("b")
    assert [run.path.name for run in find_runs([folder])] == ["a", "b", "c"]
    with pytest.raises(RunError, match="There is no run in"):
        find_runs([folder / "notes"])
    with pytest.raises(RunError, match=r"Cannot list .*nowhere: No such file"):
        find_runs([folder / "nowhere"])


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (950, "950"), (999, "999"), (1000, "1k"), (12_345, "12.3k"), (999_499, "999k"), (999_500, "1M"),
        (999_999, "1M"), (2_320_000, "2.32M"), (999_600_000, "1G"), (1.2e15, "1,200T"), (999.6e12, "1,000T"),
    ],
)  # fmt: skip
def test_counts_are_shown_with_three_digits(number: float, shown: str) -> None:
    assert short_count(number) == shown
