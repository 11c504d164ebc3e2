"""What a damaged run still tells: the story and the report leave out what cannot be read, and say so."""

import json
import math
import re
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mt.reports import checkpoints
from mt.reports.card import card
from mt.reports.facts import RunFacts, gather_facts
from mt.reports.page import page
from mt.reports.report import Report
from mt.reports.story import story
from mt.run_directory import RunDirectory

GoldenRun = Callable[..., RunDirectory]
GOLDEN = Path(__file__).parent.parent / "golden" / "format_2" / "run"
EVALUATION = (
    '{"time": "2026-01-01T00:00:00Z", "mt_version": "1", "setting": "s", "data": "d, test", '
    '"checkpoint": "c", "step": 1, "search": "greedy search", "num_sentences": 2, "exact": 0, '
    '"scores": {"bleu": {"name": "BLEU", "value": 31.25, "signature": "x"}}}\n'
)
LOG = "2026-01-01 00:00:00,000 INFO corpus: 8 training pairs\n2026-01-01 00:00:01,000 WARNING beware\n"
PARTS = [
    "config.yaml",
    "corpus.json",
    "metrics.jsonl",
    "train.log",
    "evaluations.jsonl",
    "checkpoints/latest",
]


def facts_of(run: RunDirectory) -> RunFacts:
    return gather_facts(run, now=time.time())


def all_texts(facts: RunFacts) -> list[str]:
    """The story, and where there is a config the page and the card."""
    if facts.config is None:
        return [story(facts)]
    report = Report(facts, None, "", "", datetime(2026, 1, 1, tzinfo=UTC), "1", list(facts.problems))
    return [story(facts), page(report), card(report)]


@pytest.fixture
def told_run(golden_run: GoldenRun) -> RunDirectory:
    run = golden_run()
    run.evaluations_file.write_text(EVALUATION)
    run.log_file.write_text(LOG)
    return run


def test_nothing_is_wrong_with_a_sound_run(told_run: RunDirectory) -> None:
    facts = facts_of(told_run)
    assert facts.problems == []
    for text in all_texts(facts):
        assert "31.25" in text
        assert "beware" in text or "| 1 |" in text


def test_only_what_is_needed_makes_a_run_damaged(told_run: RunDirectory) -> None:
    average = told_run.checkpoints_dir / "average_0000600"
    average.mkdir()
    facts = facts_of(told_run)
    assert facts.summary.state == "finished"
    assert "damaged: checkpoint.json is missing" in story(facts)
    (told_run.checkpoints_dir / "step_0000600" / "model.safetensors").unlink()
    assert facts_of(told_run).summary.state == "damaged"


def test_a_checkpoint_that_training_removes_meanwhile_is_not_damaged(
    told_run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "step_names", lambda folder: ["step_0000500", "step_0000600"])
    assert [each.name for each in facts_of(told_run).checkpoints.found] == ["step_0000600"]


@pytest.mark.parametrize("part", [name for name in PARTS if "latest" not in name])
@pytest.mark.parametrize("kind", ["loop", "folder", "unreadable text"])
def test_what_cannot_be_read_is_named_and_the_rest_is_told(
    told_run: RunDirectory, part: str, kind: str
) -> None:
    file = told_run.path / part
    file.unlink()
    if kind == "loop":
        file.symlink_to(file.name)
    elif kind == "folder":
        file.mkdir()
    else:
        file.write_bytes(b"\xff\x00[[")
    facts = facts_of(told_run)
    # Lines that cannot be read are skipped, where a file is made of lines.
    if kind != "unreadable text" or part in ("config.yaml", "corpus.json"):
        assert any(part in problem for problem in facts.problems), facts.problems
        assert part in all_texts(facts)[0]
    for text in all_texts(facts):
        assert ("31.25" in text) == (part != "evaluations.jsonl")


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_no_content_of_a_file_makes_telling_fail(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = RunDirectory(tmp_path_factory.mktemp("fuzz") / "run")
    shutil.copytree(GOLDEN, run.path)
    run.evaluations_file.write_text(EVALUATION)
    run.log_file.write_text(LOG)
    part = run.path / data.draw(st.sampled_from(PARTS))
    content = part.read_bytes()
    start = data.draw(st.integers(0, len(content)))
    noise = data.draw(
        st.binary(max_size=20)
        | st.sampled_from(
            [b"1e999", b"-1", b'"', b"null", b"{}", b"[" * 5000, b"9" * 5000, b"1e308", b"5e-324"]
        )
    )
    part.write_bytes(content[:start] + noise + content[start + data.draw(st.integers(0, 40)) :])
    for text in all_texts(facts_of(run)):
        assert text.endswith(("\n", text[-1]))
        assert not [each for each in text if not each.isprintable() and each != "\n"]


@pytest.mark.parametrize("value", ["1e299", "5e-324", "-1e299", "0.0"])
def test_curves_of_extreme_figures_are_drawn(told_run: RunDirectory, value: str) -> None:
    figures = dict.fromkeys(("loss", "bleu", "minutes", "tokens_per_second", "epoch"), float(value))
    lines = [{"step": step, "kind": kind, **figures} for step in (1, 2) for kind in ("train", "validation")]
    told_run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    texts = all_texts(facts_of(told_run))
    places = re.findall(r'points="(.*?)"', texts[1])
    assert len(places) == 4
    assert all(math.isfinite(float(number)) for place in places for number in re.split("[ ,]", place))
