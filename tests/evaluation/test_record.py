"""Evaluations are kept in the run: a line each, whole or not at all."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter

from mt.checkpoint.record import Checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.evaluation.evaluate import run_evaluation
from mt.evaluation.record import RecordedEvaluation, read_evaluations, record_evaluation
from mt.evaluation.scores import Score
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam

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


def test_the_newest_of_a_setting_counts_and_other_lines_are_skipped(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for line in (
        "",
        "[]",
        "{}",
        "\xff",
        "[" * 50_000,
        '{"scores": {"bleu": {"value": "x"}}}',
        '{"time": "2026',
    ):
        with run.evaluations_file.open("ab") as file:
            file.write(line.encode("latin-1") + b"\n")
    for each in (evaluation(bleu=1.0), evaluation("other"), evaluation(bleu=2.0)):
        record_evaluation(run, each)
    assert read_evaluations(run) == [evaluation("other"), evaluation(bleu=2.0)]


def test_scores_of_a_replaced_average_are_not_those_of_the_present_one(trained: RunDirectory) -> None:
    store = CheckpointStore(trained.checkpoints_dir)
    steps = [store.require(name) for name in ("step_0000100", "step_0000150", "step_0000200")]

    def evaluated(averaged: list[Checkpoint]) -> tuple[str, list[str]]:
        name = store.save_average(averaged).name
        setting = run_evaluation(trained, checkpoint=name, analyse=False, device="cpu").setting
        return setting, [each.setting for each in read_evaluations(trained)]

    (old, of_old), (new, of_new) = evaluated(steps[1:]), evaluated(steps)
    assert old != new
    assert (of_old, of_new) == ([old], [new])
    store.save_average(steps[1:])
    assert [each.setting for each in read_evaluations(trained)] == [old]
