"""Runs are found, and described from their files alone: state, figures, sessions, and what is damaged."""

import json
import logging
import math
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mt.errors import DataError, RunError
from mt.reports.facts import RunFacts, short_count, short_duration
from mt.reports.report import render
from mt.reports.runs import differing_options, find_runs, runs_table, sorted_by
from mt.reports.show import describe
from mt.run_directory import RunDirectory
from mt.training.run import run_training
from tests.fixture_types import GoldenRun, MakeConfig
from tests.processes import environment

GOLDEN = Path(__file__).parent.parent / "golden" / "format_2" / "run"
EVALUATION = (
    '{"time": "2026-01-01T00:00:00Z", "mt_version": "1", "setting": "s", "data": "d, test", '
    '"checkpoint": "c", "step": 1, "search": "greedy search", "num_sentences": 2, "exact": 0, '
    '"scores": {"bleu": {"name": "BLEU", "value": 31.25, "signature": "x"}}}\n'
)
START = '{"time": "2026-01-01T00:00:00+00:00", "event": "start"}\n'
CHECKPOINT = "checkpoints/step_0000600"
PARTS = [
    "config.yaml", "corpus.json", "metrics.jsonl", "sessions.jsonl", "evaluations.jsonl",
    "src_tokenizer.json", "checkpoints/latest", "checkpoints/best", f"{CHECKPOINT}/checkpoint.json",
    f"{CHECKPOINT}/model.safetensors", f"{CHECKPOINT}/training_state.json",
    f"{CHECKPOINT}/training_state.safetensors",
]  # fmt: skip


def all_texts(facts: RunFacts) -> list[str]:
    """What `mt show` prints, and where there is a config the page and the card."""
    if facts.config is None:
        return [describe(facts)]
    return [describe(facts), render(facts, "html", left_out=facts.problems), render(facts, "md")]


def add_records(run: RunDirectory) -> RunDirectory:
    run.evaluations_file.write_text(EVALUATION)
    run.sessions_file.write_text(START + START.replace('"start"', '"warning", "text": "beware"'))
    return run


@pytest.fixture
def run(golden_run: GoldenRun) -> RunDirectory:
    return add_records(golden_run())


def test_the_figures_of_a_run_are_those_of_its_files(run: RunDirectory, golden_run: GoldenRun) -> None:
    half = RunFacts(golden_run("format_2_interrupted", "half"))
    assert (half.state, half.step, half.best_bleu) == ("stopped", 605, None)
    facts = RunFacts(run)
    lines = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
    assert (facts.state, facts.step, facts.problems) == ("finished", 600, [])
    assert "training.max_steps (600)" in str(facts.detail)
    assert (facts.epochs, facts.num_target_tokens) == (lines[-1]["epoch"], lines[-1]["num_target_tokens"])
    assert facts.best_bleu == max(line["bleu"] for line in lines if line["kind"] == "validation")


def test_the_newest_figures_are_shown_and_the_best(run: RunDirectory) -> None:
    points = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
    last = {point["kind"]: point for point in points}
    made = [
        last["validation"] | {"step": step, "bleu": bleu, "loss": bleu / 10, "chrf": 2 * bleu}
        for step, bleu in ((1, 20.0), (2, 30.0), (3, 10.0))
    ]
    made += [
        last["train"] | {"step": step, "loss": 1.0 + step % 7, "tokens_per_second": float(step)}
        for step in range(1, 51)
    ]
    run.metrics_file.write_text("".join(json.dumps(point) + "\n" for point in made))
    kinds = ["test", "validation", *["test"] * 20, "validation"]
    evaluations = [
        EVALUATION.replace('"s"', f'"{kind}-{number}.c.greedy"').replace("31.25", f"{40 + number}.25")
        for number, kind in enumerate(kinds)
    ]
    run.evaluations_file.write_text("".join(evaluations))
    run.sessions_file.write_text("".join(START.replace("00:00:00", f"00:{n:02}:00") for n in range(25)))
    facts = RunFacts(run)
    # The median of the last 20 speeds, 31 to 50.
    assert (facts.best_bleu, facts.tokens_per_second, facts.summary["test_bleu"]) == (30.0, 40.5, 61.25)
    shown = describe(facts)
    assert "20.00 at step 1 to 10.00 at step 3; best 30.00 at step 2" in shown
    assert "2.000 at step 1 to 1.000 at step 3; best 1.000 at step 3" in shown
    assert "40.00 at step 1 to 20.00 at step 3; best 60.00 at step 2" in shown
    for some in ("BLEU {}.25", "2026-01-01 00:{:02}:00"):
        numbers = range(40, 63) if "BLEU" in some else range(25)
        assert [number for number in numbers if some.format(number) in shown] == [*numbers[-20:]]


def test_model_corpus_and_evaluations_are_described_in_every_form(run: RunDirectory) -> None:
    config = run.config_file.read_text().replace("num_encoder_layers: 1", "num_encoder_layers: 3")
    config = config.replace("\ntraining:\n", "\ntraining:\n  freeze: embeddings\n").replace(
        "num_heads: 2", "num_heads: 1"
    )
    run.config_file.write_text(f"{config}init_from:\n  run: elsewhere\n  checkpoint: latest\n")
    corpus = json.loads(run.corpus_file.read_text())
    corpus["sources"].append(corpus["sources"][0] | {"path": "more", "pairs": 7, "weight": 0.5})
    corpus["splits"]["train"]["dropped"] = {"empty": 3}
    corpus["dropped_in_training"] = {"too long": 2, "copied": 5, "odd": 0}
    run.corpus_file.write_text(json.dumps(corpus))
    facts = RunFacts(run)
    for text in all_texts(facts):
        for told in ("3 encoder, 1 decoder", "16, 1 head", "1,880", "elsewhere@latest", "embeddings"):
            assert told in text.replace("&#64;", "@")
    assert list(facts.corpus.dropped.items() if facts.corpus else ()) == [
        ("copied", 5), ("empty", 3), ("too long", 2),
    ]  # fmt: skip
    shown = describe(facts)
    sizes = corpus["vocabulary_sizes"]
    for told in (
        f"word, {sizes['src']} (src) and {sizes['tgt']} (tgt) entries\n",
        "  mixed with more, 7 pairs, weight 0.5\n",
        "  train: 60 pairs (given)\n  validation: 6 pairs (given)\n  test: 6 pairs (given)\n",
        "  dropped from training: 5 copied, 3 empty, 2 too long\n",
        "  d, test, c, greedy search: 2 sentences, 2026-01-01\n    BLEU 31.25 (x)\n",
    ):
        assert told in shown


def test_checkpoints_are_listed_with_their_marks_and_scores(trained: RunDirectory) -> None:
    shown = describe(RunFacts(trained))
    best, latest = ((trained.checkpoints_dir / name).read_text().strip() for name in ("best", "latest"))
    rows = dict(re.findall(r"^  (step_\d+) +(\S.*)$", shown, re.MULTILINE))
    assert list(rows) == ["step_0000100", "step_0000150", "step_0000200"]
    for name, row in rows.items():
        *marks, bleu = row.split()
        assert marks == ["best"] * (name == best) + ["latest"] * (name == latest)
        # That between two validations has no score.
        assert (bleu == "-") == (name == "step_0000150")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(59, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h"), (172_799, "47 h"), (172_800, "2 d")],
)
def test_a_duration_is_in_its_largest_unit(seconds: float, shown: str) -> None:
    assert short_duration(seconds) == shown


def test_a_count_has_three_digits_and_a_unit() -> None:
    counts = (0, 950, 999.6, 1234, 12_345, 2_320_000, 4e9, 5e12, 0.01234)
    shown = ["0", "950", "1k", "1.23k", "12.3k", "2.32M", "4G", "5T", "0.0123"]
    assert [short_count(count) for count in counts] == shown


def test_a_run_is_running_while_another_process_holds_its_lock_and_no_longer(run: RunDirectory) -> None:
    hold = (
        "import sys; from pathlib import Path; from mt.run_directory import RunDirectory\n"
        "with RunDirectory(Path(sys.argv[1])).lock(): print('held', flush=True); sys.stdin.read()"
    )
    text = run.metrics_file.read_text()
    newer = text.splitlines()[-1].replace('"step": 600', '"step": 700')
    run.metrics_file.write_text(f"{text}{newer}\n")
    command = [sys.executable, "-c", hold, str(run.path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        facts = RunFacts(run)
        assert facts.step == 700
        assert (facts.state, facts.detail) == ("running", f"process {process.pid} on {socket.gethostname()}")
        assert "started; still running" in describe(facts)
        process.kill()
    # What a killed process leaves in the lock file does not count.
    assert run.lock_file.read_text() != ""
    assert (RunFacts(run).state, RunFacts(run).step) == ("finished", 600)


def _truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _garbage(file: Path) -> None:
    file.write_bytes(b"\x00\xff[[[[" * 1000)


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("damage", [_truncate, _garbage, _folder, Path.unlink])
def test_a_damaged_part_is_named_and_the_rest_is_described(
    run: RunDirectory, damage: Callable[[Path], object], part: str
) -> None:
    damage(run.path / part)
    facts = RunFacts(run)
    # Lines are read as far as they go. Training writes the pointers again; the tokenizers are read whole only
    # when they are used.
    is_harmless = damage is not _folder and (
        part.endswith(".jsonl")
        or (part in ("checkpoints/latest", "checkpoints/best") and damage is Path.unlink)
        or (part == "src_tokenizer.json" and damage is not Path.unlink)
    )
    assert is_harmless or any(Path(part).name in problem for problem in facts.problems), facts.problems
    is_needed = part not in ("corpus.json", "sessions.jsonl", "evaluations.jsonl")
    assert facts.state == ("damaged" if is_needed and not is_harmless else "finished")
    for text in all_texts(facts):
        assert "31.25" in text or part == "evaluations.jsonl"
    for text in all_texts(facts)[:2]:
        assert is_harmless or Path(part).name in text


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_no_content_of_a_file_makes_describing_fail(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = RunDirectory(tmp_path_factory.mktemp("fuzz") / "run")
    shutil.copytree(GOLDEN, run.path)
    part = add_records(run).path / data.draw(st.sampled_from(PARTS))
    content = part.read_bytes()
    start = data.draw(st.integers(0, len(content)))
    odd = [b"1e999", b"-1", b'"', b"null", b"{}", b"[" * 5000, b"9" * 5000, b"1e308", b"5e-324"]
    noise = data.draw(st.binary(max_size=20) | st.sampled_from(odd))
    part.write_bytes(content[:start] + noise + content[start + data.draw(st.integers(0, 40)) :])
    for text in all_texts(RunFacts(run)):
        assert not [char for char in text if not char.isprintable() and char != "\n"]


def told(run: RunDirectory) -> list[str]:
    return [str(session) for session in RunFacts(run).sessions]


def test_every_attempt_to_train_is_a_session_with_its_end(
    make_config: MakeConfig, tiny_corpus: Path, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "run")
    corpus = tmp_path / "corpus"
    shutil.copytree(tiny_corpus, corpus)
    run_training(make_config(f"data.path={corpus}", "training.max_steps=2"), run)
    longer = make_config(f"data.path={corpus}", "training.max_steps=4", "validation.every_steps=2")
    corpus.rename(tmp_path / "moved")
    with pytest.raises(DataError):
        run_training(longer, run)
    (tmp_path / "moved").rename(corpus)
    run_training(longer, run)
    # A finished run is not trained again.
    run_training(longer, run)
    first, second, third = told(run)
    assert first.startswith("started; finished: training.max_steps (2) reached")
    assert second.startswith("did not begin; failed: ")
    assert third.startswith("resumed from step 2; finished: ")
    assert RunFacts(run).sessions[-1].signatures["BLEU"].startswith("nrefs:1|")


def test_a_killed_session_has_a_start_and_no_end(
    make_config: MakeConfig, train_until: Callable[..., Any], tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "run")
    train_until(make_config(), run.path, step=5, crash=True)
    train_until(make_config(), run.path, step=7)
    killed, stopped = told(run)
    assert killed.startswith("started; nothing says how it ended")
    assert stopped.startswith("resumed from step 4; stopped at step 7, saved: ")
    with run.lock():
        assert told(run)[-1] == "resumed from step 4; still running"


def test_warnings_belong_to_their_session(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warn(*_: object) -> None:
        logging.getLogger("mt.some.module").warning("beware of %s", "\x1b[31m")
        raise DataError("no.")

    monkeypatch.setattr("mt.training.run.train", warn)
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(DataError):
        run_training(make_config(), run)
    logging.getLogger("mt").warning("of somebody else")
    [session] = RunFacts(run).sessions
    assert session.warnings[-1] == "beware of \x1b[31m"
    assert told(run) == ["started; failed: no."]
    assert "warning: beware of \\x1b[31m" in describe(RunFacts(run))


def test_an_option_that_follows_from_another_is_not_compared(golden_run: GoldenRun) -> None:
    runs = {"a": golden_run(name="a"), "b": golden_run(name="b")}
    for run, steps in zip(runs.values(), (600, 900), strict=True):
        text = re.sub("(max|total)_steps: .*", rf"\1_steps: {steps}", run.config_file.read_text())
        run.config_file.write_text(f"{text}init_from:\n  run: x\n  sha256: y{steps}\n")
    facts = {name: RunFacts(run) for name, run in runs.items()}
    assert list(differing_options(facts)) == ["training.max_steps"]
    # The option with most values first; by its full name, if that of its section is needed.
    kinds = {"tokenizer.kind": {"b": "w" * 25}, "schedule.kind": {"a": "x", "b": "y"}, "model.d_ff": {}}
    head, a, b = (re.split("  +", line) for line in runs_table(facts, kinds, width=math.inf).split("\n")[:3])
    assert head[5:8] == ["schedule.kind", "tokenizer.kind", "d_ff"]
    assert (a[5:8], b[5:8]) == (["x", "-", "-"], ["y", "w" * 23 + "…", "-"])
    assert list(sorted_by("tokenizer.kind", facts, kinds)) == ["b", "a"]


def test_runs_are_found_in_folders_and_by_name_without_repetition(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").touch()
    (tmp_path / "notes").mkdir()
    (tmp_path / "README.md").write_text("not a run")

    def names(*paths: Path) -> list[str]:
        return [run.path.name for run in find_runs(paths)]

    assert names(tmp_path) == ["a", "b"]
    assert names(tmp_path / "b", tmp_path) == ["b", "a"]
    (tmp_path / "c").symlink_to("b")
    assert names(tmp_path) == ["a", "b", "c"]
    for nothing in ("notes", "nowhere"):
        with pytest.raises(RunError, match=f"There is no run in .*{nothing}"):
            names(tmp_path / nothing)
