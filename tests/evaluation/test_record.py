"""Evaluations are kept in the run: a line each, whole or not at all."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from mt.checkpoint.store import CheckpointStore
from mt.errors import RunError
from mt.evaluation.evaluate import run_evaluation
from mt.evaluation.record import (
    RecordedEvaluation,
    name_in_setting,
    read_evaluations,
    record_evaluation,
)
from mt.evaluation.scores import Score
from mt.files import append_line
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam
from tests.forked import environment

HOUR = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def evaluation(setting: str = "test.step_1.greedy", bleu: float = 30.0) -> RecordedEvaluation:
    scores = {"bleu": Score("BLEU", bleu, "nrefs:1|version:2", (29.0, 31.0)), "ter": Score("TER", 5.0, "x")}
    return RecordedEvaluation(HOUR, "0.1", setting, "c, test", "step_1", 1, "greedy search", 9, 1.5, scores)


def test_what_evaluating_finds_is_in_the_run_with_signatures_and_intervals(trained: RunDirectory) -> None:
    results = [
        run_evaluation(trained, analyse=False, device="cpu"),
        run_evaluation(trained, split="validation", beam=Beam(3, 0.6), analyse=False, device="cpu"),
    ]
    found = read_evaluations(trained)
    assert [each.setting for each in found] == [result.setting for result in results]
    assert [each.scores for each in found] == [result.scores for result in results]
    assert [each.search for each in found] == ["greedy search", "beam of 3, length penalty 0.6 (gnmt)"]
    assert all(score.interval and score.signature for each in found for score in each.scores.values())
    lines = trained.evaluations_file.read_text().splitlines()
    assert [json.loads(line)["num_sentences"] for line in lines] == [each.num_sentences for each in found]


def test_of_one_setting_the_newest_counts_and_every_line_is_kept(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for each in (evaluation(bleu=1.0), evaluation("other"), evaluation(bleu=2.0)):
        record_evaluation(run, each)
    assert read_evaluations(run) == [evaluation("other"), evaluation(bleu=2.0)]
    assert run.evaluations_file.read_text().count("\n") == 3


def test_of_averages_with_one_name_the_newest_counts(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    settings = [
        f"test-0123456789ab.{name}.{search}"
        for name in ("average_0000200-of2-12ab", "average_0000200-of3-34cd", "average_0000300-of3-34cd")
        for search in ("greedy", "beam5-lp0.6")
    ]
    for setting in settings:
        record_evaluation(run, evaluation(setting))
    assert [each.setting for each in read_evaluations(run)] == settings[2:]


def test_scores_of_a_replaced_average_are_not_those_of_the_present_one(trained: RunDirectory) -> None:
    store = CheckpointStore(trained.checkpoints_dir)
    steps = [store.require(name) for name in ("step_0000100", "step_0000150", "step_0000200")]
    settings = []
    for averaged in (steps[1:], steps):
        average = store.save_average(averaged)
        settings.append(f"test-0123456789ab.{name_in_setting(average)}.greedy")
    assert average.name == store.save_average(steps[1:]).name

    def read() -> list[str]:
        return [each.setting for each in read_evaluations(trained)]

    old, new = settings
    record_evaluation(trained, evaluation(old))
    assert read() == [old]
    store.save_average(steps)
    assert read() == []
    record_evaluation(trained, evaluation(new))
    assert read() == [new]
    # It counts again once the same average is made again.
    store.save_average(steps[1:])
    assert read() == [old]
    # Without an average of that name, they are not taken for those of another one.
    shutil.rmtree(average.folder)
    assert read() == [new]


def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    record_evaluation(run, evaluation())
    with run.evaluations_file.open("a") as file:
        file.write('{"time": "2026-01')
    record_evaluation(run, evaluation("other"))
    assert read_evaluations(run) == [evaluation(), evaluation("other")]


@pytest.mark.parametrize(
    "line",
    ["", "[]", "{}", "\xff", "[" * 50_000, '{"time": 1e999}', '{"scores": {"bleu": {"value": "x"}}}'],
)
def test_lines_that_are_not_evaluations_are_skipped(tmp_path: Path, line: str) -> None:
    run = RunDirectory(tmp_path)
    run.evaluations_file.write_bytes(line.encode("latin-1") + b"\n")
    assert read_evaluations(run) == []


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir], ids=["pipe", "folder"])
def test_nothing_is_written_through_what_is_not_a_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    run = RunDirectory(tmp_path)
    make(run.evaluations_file)
    with pytest.raises(RunError, match=r"Cannot add the scores to .*evaluations\.jsonl"):
        record_evaluation(run, evaluation())


def test_lines_of_several_processes_are_never_mixed(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    code = (
        "import sys; from pathlib import Path; from mt.files import append_line\n"
        "for _ in range(20): append_line(Path(sys.argv[1]), sys.argv[2] * 5000)"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(file), letter], env=environment())
        for letter in "abc"
    ]
    assert [process.wait() for process in processes] == [0, 0, 0]
    lines = file.read_text().splitlines()
    assert sorted(lines) == sorted(letter * 5000 for letter in "abc" for _ in range(20))


def test_the_name_of_a_new_file_is_on_the_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_folders: list[bool] = []
    sync = os.fsync

    def watched(descriptor: int) -> None:
        of_folders.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    append_line(tmp_path / "lines", "first")
    append_line(tmp_path / "lines", "second")
    assert of_folders == [False, True, False]


def test_a_line_that_does_not_fit_on_the_disk_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "lines"
    append_line(file, "first")
    write = os.write
    # As the system does when the disk is almost full.
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    with pytest.raises(OSError, match="No space left"):
        append_line(file, "second")
    monkeypatch.undo()
    assert file.read_text() == "first\n"


def test_the_precision_is_recorded_and_older_lines_without_one_are_read(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    older = json.loads(TypeAdapter(RecordedEvaluation).dump_json(evaluation("older")))
    del older["precision"]
    run.evaluations_file.write_text(json.dumps(older) + "\n", encoding="utf-8")
    for setting, precision in (("exact", "float32"), ("rounded", "bf16")):
        record_evaluation(run, replace(evaluation(setting), precision=precision))
    found = read_evaluations(run)
    assert [each.precision for each in found] == [None, "float32", "bf16"]
    assert [each.how for each in found] == [*["greedy search"] * 2, "greedy search, computed in bf16"]
