"""`mt runs` and `mt show` as a user calls them."""

import json
import re
import shutil
from pathlib import Path
from statistics import median

import pytest

from mt.run_directory import RunDirectory
from tests.fixture_types import Call

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture
def two_runs() -> None:
    """A finished run and an interrupted one, in ``runs/``."""
    for which, name in (("format_2", "done"), ("format_2_interrupted", "half")):
        shutil.copytree(GOLDEN / which / "run", Path("runs") / name)


@pytest.mark.usefixtures("two_runs")
def test_all_runs_or_those_that_are_named_are_listed_with_their_figures(succeed: Call) -> None:
    metrics = map(json.loads, Path("runs/done/metrics.jsonl").read_text().splitlines())
    speed = median([line["tokens_per_second"] for line in metrics if line["kind"] == "train"][-20:])
    for paths, prefix in ((), ""), (("runs/done", "runs/half"), "runs/"):
        _, out, err = succeed("runs", *paths)
        assert err == ""
        head, done, half = (re.split(r"  +", line) for line in out.splitlines())
        assert head[:5] == ["name", "state", "step", "best BLEU", "test BLEU"]
        assert done[:5] == [f"{prefix}done", "finished", "600", "100.00", "-"]
        assert half[:3] == [f"{prefix}half", "stopped", "605"]
        column = head.index("ema_decay")
        assert (done[column], half[column]) == ("null", "0.9")
        assert "d_model" not in head
        assert head[-3:] == ["epochs", "tokens", "tokens/s"]
        assert done[-3:] == ["200", "82.8k", f"{speed:,.0f}"]


def test_a_sweep_shows_its_option_its_test_scores_and_the_mean_over_seeds(
    call: Call, succeed: Call, trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of a run, as if each had been trained with its config."""
    succeed("evaluate", "--run", trained.path, "--scores-only")
    config = trained.config_file.read_text()
    for name, rate, seed in (("a", "0.01", 1), ("b", "0.02", 1), ("c", "0.02", 2)):
        shutil.copytree(trained.path, f"sweep/{name}")
        text = re.sub(r"  learning_rate: .*", f"  learning_rate: {rate}", config)
        Path(f"sweep/{name}/config.yaml").write_text(re.sub(r"  seed: .*", f"  seed: {seed}", text))
    better = json.loads(Path("sweep/c/evaluations.jsonl").read_text())
    better["scores"]["bleu"]["value"] += 2
    Path("sweep/c/evaluations.jsonl").write_text(json.dumps(better))
    head, *rows = call("runs", "sweep").out.splitlines()
    titles = re.split(r"  +", head)
    assert titles[5:7] == ["learning_rate", "seed"]
    cells = [dict(zip(titles, re.split(r"  +", row), strict=True)) for row in rows[:3]]
    assert [(row["name"], row["learning_rate"], row["seed"]) for row in cells] == [
        ("sweep/a", "0.01", "1"), ("sweep/b", "0.02", "1"), ("sweep/c", "0.02", "2"),
    ]  # fmt: skip
    bleu = cells[0]["test BLEU"]
    assert float(bleu) > 0
    assert rows[-1].startswith("2 seeds (sweep/b, sweep/c): best BLEU ")
    assert rows[-1].endswith(f"test BLEU {float(bleu) + 1:.2f} ± 1.41")
    for column, order in (
        ("learning_rate", "bca"),
        ("schedule.learning_rate", "bca"),
        ("test BLEU", "cab"),
        ("best bleu", "abc"),
        ("name", "abc"),
    ):
        rows = succeed("runs", "sweep", "--sort", column).out.splitlines()[1:4]
        assert [row[len("sweep/")] for row in rows] == [*order]
    assert "only name" in call("runs", "sweep", "--sort", "colour").err
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "no room for learning_rate, seed, epochs" in call("runs", "sweep").out


@pytest.mark.usefixtures("two_runs")
def test_a_damaged_run_is_named_and_does_not_keep_the_others_from_being_listed(call: Call) -> None:
    Path("runs/half/config.yaml").write_text("[")
    code, out, _ = call("runs")
    assert code == 0
    assert re.search(r"^half +damaged", out, re.MULTILINE)
    assert re.search(r"^half: damaged, .*config\.yaml, line [12]", out, re.MULTILINE)
    assert re.search(r"^done +finished", out, re.MULTILINE)


def test_show_tells_the_story_of_a_run_up_to_its_evaluations(succeed: Call, trained: RunDirectory) -> None:
    """Of what it consists: tests/reports/test_facts.py."""
    succeed("evaluate", "--scores-only", "--device", "cpu")
    _, out, err = succeed("show")
    assert err == ""
    corpus = json.loads(trained.corpus_file.read_text())
    for expected in (
        r"runs/tiny\n  state +finished: training\.max_steps \(200\) reached",
        r"validation loss +[▁-█]+ ",
        r"started; finished: ",
        rf"{re.escape(corpus['sources'][0]['path'])}, test, step_\d+, greedy search: 22 sentences",
        r"BLEU \d+\.\d\d \[.*\] \(nrefs:1\|.*version:",
    ):
        assert re.search(expected, out), f"{expected}\n{out}"
