"""Evaluations are kept in the run, a line each, and compared with those of other checkpoints."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter

from mt.checkpoint.record import RECORD, record_text
from mt.checkpoint.store import CheckpointStore
from mt.evaluation.record import (
    RecordedEvaluation,
    Score,
    name_in_setting,
    read_evaluations,
    record_evaluation,
)
from mt.run_directory import RunDirectory

HOUR = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def evaluation(setting: str = "test.step_1.greedy", bleu: float = 30.0) -> RecordedEvaluation:
    scores = {"bleu": Score("BLEU", bleu, "nrefs:1|version:2", (29.0, 31.0)), "ter": Score("TER", 5.0, "x")}
    texts = {"mt_version": "0.1", "data": "c, test", "checkpoint": "step_1", "search": "greedy search"}
    numbers = {"step": 1, "num_sentences": 9, "exact": 1.5}
    return RecordedEvaluation(time=HOUR, setting=setting, scores=scores, **texts, **numbers)  # type: ignore[arg-type]


def test_the_precision_is_recorded_and_older_lines_without_one_are_read(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    older = json.loads(TypeAdapter(RecordedEvaluation).dump_json(evaluation("older")))
    del older["precision"]
    run.evaluations_file.write_text(json.dumps(older) + "\n", encoding="utf-8")
    for setting, precision in (("exact", "float32"), ("rounded", "bf16")):
        record_evaluation(run, replace(evaluation(setting), precision=precision))
    found = read_evaluations(run)
    assert [each.precision for each in found] == ["float32", "float32", "bf16"]


def test_the_newest_of_a_setting_counts_and_other_lines_are_skipped(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    odd = [b"", b"[]", b"{}", b"\xff", b"[" * 50_000, b'{"scores": {"bleu": 1}}', b'{"time": "2026', b""]
    run.evaluations_file.write_bytes(b"\n".join(odd))
    for each in (evaluation(bleu=1.0), evaluation("other"), evaluation(bleu=2.0)):
        record_evaluation(run, each)
    assert read_evaluations(run) == [evaluation("other"), evaluation(bleu=2.0)]


def test_the_evaluation_of_an_average_that_was_replaced_is_left_out(trained: RunDirectory) -> None:
    checkpoint = CheckpointStore(trained.checkpoints_dir).require("step_0000200")
    folder, names = (
        checkpoint.folder.with_name("average_0000200"),
        ["step_0000100", "step_0000150", "step_0000200"],
    )
    folder.mkdir()
    settings = []
    for average_of in (names[1:], names):
        average = replace(checkpoint, folder=folder, average_of=average_of)
        (folder / RECORD).write_text(record_text(average))
        settings.append(f"test.{name_in_setting(average)}.greedy")
        record_evaluation(trained, replace(evaluation(settings[-1]), checkpoint=folder.name))
        assert [each.setting for each in read_evaluations(trained)] == settings[-1:]
    assert "-of3-" in settings[1]


def test_how_it_was_translated_is_told_where_it_is_not_the_usual_way() -> None:
    usual = evaluation()
    assert (usual.how, replace(usual, engine="torch").how) == ("greedy search", "greedy search")
    other = replace(usual, engine="ctranslate2", precision="int8", num_rewritten=2)
    assert other.how == "greedy search, by ctranslate2, computed in int8, 2 references rewritten"
