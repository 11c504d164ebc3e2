"""Runs at a glance: the state, the figures and the damage of each, from its files alone."""

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mt.config.config import Config
from mt.errors import RunError
from mt.reports.summary import RunSummary, differing_options, find_runs, summarise
from mt.reports.table import short_count
from mt.run_directory import RunDirectory
from tests.forked import environment

GoldenRun = Callable[..., RunDirectory]
BEFORE = "checkpoints/step_0000600"


def look(run: RunDirectory) -> RunSummary:
    return summarise(run, now=time.time())


def test_a_finished_run_tells_the_figures_of_its_files(golden_run: GoldenRun) -> None:
    run = golden_run()
    found = look(run)
    lines = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
    best = max((line for line in lines if line["kind"] == "validation"), key=lambda line: line["bleu"])
    assert (found.state, found.step) == ("finished", 600)
    assert "training.max_steps (600)" in str(found.detail)
    assert (found.epochs, found.num_target_tokens) == (lines[-1]["epoch"], lines[-1]["num_target_tokens"])
    assert (found.best_bleu, found.best_bleu_step) == (best["bleu"], best["step"])
    assert found.num_bytes == sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file())


def test_an_interrupted_run_is_stopped_at_the_step_of_its_checkpoint(
    golden_run: GoldenRun,
) -> None:
    found = look(golden_run("format_2_interrupted"))
    assert (found.state, found.step, found.best_bleu) == ("stopped", 605, None)


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


def test_looking_for_the_holder_never_keeps_a_process_from_starting(golden_run: GoldenRun) -> None:
    run = golden_run()
    run.lock_file.write_text("")
    with run.lock_file.open() as file:
        # As if another process were about to write its name.
        fcntl.flock(file, fcntl.LOCK_EX)
        assert run.holder() is None


def _truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _loop(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.name)


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _garbage(file: Path) -> None:
    file.write_bytes(b"\x00\xff[[[[" * 1000)


def _huge(file: Path) -> None:
    # Sparse: it takes no room on the disk.
    with file.open("wb") as opened:
        opened.truncate(2**40)


DAMAGES = [_truncate, _loop, _folder, _garbage, _huge, Path.unlink]
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
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__.strip("_"))
def test_a_run_with_a_damaged_part_is_named_as_damaged(
    golden_run: GoldenRun, damage: Callable[[Path], object], part: str
) -> None:
    run = golden_run()
    damage(run.path / part)
    found = look(run)
    if part == "metrics.jsonl":
        # Curves can be read as far as they go; only what cannot be read at all is damage.
        expected = "damaged" if damage in (_loop, _folder) else "finished"
        assert found.state == expected
        return
    # Training writes the pointers again; the tokenizers are read whole only when they are used.
    if (part.endswith(("latest", "best")) and damage is Path.unlink) or (
        part == "src_tokenizer.json" and damage in (_truncate, _garbage, _huge)
    ):
        assert found.state == "finished"
        return
    assert found.state == "damaged", found
    assert Path(part).name in str(found.detail)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_no_content_of_a_file_makes_looking_fail(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    golden = Path(__file__).parent.parent / "golden" / "format_2" / "run"
    run = RunDirectory(tmp_path_factory.mktemp("fuzz") / "run")
    shutil.copytree(golden, run.path)
    part = run.path / data.draw(st.sampled_from(PARTS))
    content = part.read_bytes()
    start = data.draw(st.integers(0, len(content)))
    noise = data.draw(st.binary(max_size=20) | st.sampled_from([b'{"a": 1e999}', b"[" * 5000, b"-1", b'"']))
    part.write_bytes(content[:start] + noise + content[start + data.draw(st.integers(0, 40)) :])
    found = look(run)
    assert found.state in ("finished", "stopped", "damaged")
    assert (found.state == "damaged") == bool(found.detail and not found.detail.startswith("training."))


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
    (folder / "c").unlink()
    # What has lost its config is a run still.
    second.config_file.unlink()
    assert [run.path.name for run in find_runs([folder])] == ["a", "b"]
    with pytest.raises(RunError, match="There is no run in"):
        find_runs([folder / "notes"])
    with pytest.raises(RunError, match=r"Cannot list .*nowhere: No such file"):
        find_runs([folder / "nowhere"])


def test_options_that_differ_are_those_that_were_set_apart(make_config: Callable[..., Config]) -> None:
    configs = {
        "a": make_config("training.seed=1"),
        "b": make_config("training.seed=2", "model.dropout=0.3"),
        "c": make_config("training.seed=1"),
    }
    assert differing_options(configs) == {
        "model.dropout": ["0.2", "0.3", "0.2"],
        "training.seed": ["1", "2", "1"],
    }
    assert differing_options({"a": configs["a"], "c": configs["c"]}) == {}


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (950, "950"), (999, "999"), (1000, "1k"), (12_345, "12.3k"), (999_499, "999k"), (999_500, "1M"),
        (999_999, "1M"), (2_320_000, "2.32M"), (999_600_000, "1G"), (1.2e15, "1,200T"), (999.6e12, "1,000T"),
    ],
)  # fmt: skip
def test_counts_are_shown_with_three_digits(number: float, shown: str) -> None:
    assert short_count(number) == shown
