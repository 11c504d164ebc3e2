"""scripts/reproduce reads the heads of the recipes, and fails where a run falls short of one."""

import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import typer.main
import yaml

from mt.cli.app import app
from mt.config.load import load_config
from scripts import reproduce
from scripts.recipe import RecipeError, read_header

ROOT = Path(__file__).parent.parent.parent
RECIPES = sorted((ROOT / "configs").glob("*.yaml"))
GOOD = """\
# Captions.
#
# average:   last 10
# evaluate:  --split test --beam 5 --literature
# reaches:   literature BLEU 35.92, exact sentences 4.1 % (greedy: BLEU 33),
#            chrF2++ only seen
# at least:  literature BLEU 35.4; half a point is chance
# takes:     7.4 minutes, alone
#
# mt train --config configs/captions.yaml

data:
  # evaluate:  not in the header
  path: corpus
"""

Reproduce = Callable[[str], tuple[int, str, str]]


def as_file(folder: Path, text: str) -> Path:
    file = folder / "captions.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_what_a_header_says(tmp_path: Path) -> None:
    header = read_header(as_file(tmp_path, GOOD))
    assert header.average == ["--last", "10"]
    assert header.evaluate == ["--split", "test", "--beam", "5", "--literature"]
    assert header.expected == {"literature BLEU": 35.92, "exact sentences": 4.1}
    assert header.reaches.endswith("(greedy: BLEU 33), chrF2++ only seen")
    assert header.at_least == {"literature BLEU": 35.4}
    assert header.takes == "7.4 minutes, alone"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("# evaluate:", "# evalaute:", "its header lacks the line '# evaluate:'"),
        ("# takes:", "# at least:", "'at least:' appears twice"),
        ("last 10", "last 0", "'average: last 0' must be such as 'last 10'"),
        ("BLEU 35.4;", "BLEU high;", "'at least: literature BLEU high' must be one of BLEU, chrF2"),
        (" --literature", "", "so 'evaluate:' needs --literature"),
    ],
)
def test_a_head_that_says_nothing_clear(old: str, new: str, says: str, tmp_path: Path) -> None:
    broken = re.sub(old, new, GOOD, count=1)
    assert broken != GOOD
    with pytest.raises(RecipeError) as error:
        read_header(as_file(tmp_path, broken))
    assert says in str(error.value)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda file: file.stem)
def test_the_shipped_recipes(recipe: Path) -> None:
    header = read_header(recipe)
    for measure, bar in header.at_least.items():
        assert bar <= header.expected[measure]
    config = load_config(recipe, [])
    if header.average:
        assert int(header.average[1]) <= config.checkpoint.keep
    text = recipe.read_text(encoding="utf-8")
    assert f"\n# mt train --config configs/{recipe.name}" in text
    # The command line's own parser, which raises for an option that it does not know.
    evaluate = typer.main.get_command(app).commands["evaluate"]  # type: ignore[attr-defined]
    evaluate.make_context("evaluate", list(header.evaluate))


@pytest.fixture
def recipe(tmp_path: Path, tiny_config_file: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Write a recipe of a second, with these lines in its header, among ``configs/``."""
    monkeypatch.chdir(tmp_path)
    Path("configs").mkdir()
    options = tiny_config_file.read_text(encoding="utf-8")

    def write(lines: str) -> None:
        Path("configs/tiny.yaml").write_text(
            f"# Tiny.\n#\n{lines}# takes: a second\n{options}", encoding="utf-8"
        )

    return write


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Reproduce:
    """Run scripts/reproduce.py on a command line: its exit code, stdout and stderr."""

    def run(command: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["scripts/reproduce", *shlex.split(command)])
        try:
            code: int | str | None = reproduce.main()
        except SystemExit as end:
            code = end.code
        return int(code or 0), *capfd.readouterr()

    return run


def test_a_run_is_held_against_its_score(recipe: Callable[[str], None], call: Reproduce) -> None:
    recipe("# average: last 2\n# evaluate: --split test\n# reaches: BLEU 12.34\n# at least: BLEU 0.0\n")
    code, out, err = call("tiny --set training.max_steps=6")
    assert code == 0
    assert re.search(r"\nBLEU +\d+\.\d\d +12\.34 +0\.00  reached\n", out)
    assert re.search(r"\nexact sentences +\d+\.\d\d\n", out)
    assert re.search(r"\ntraining took \d+\.\d minutes; expected: a second\n$", out)
    assert "runs/tiny, average_0000006, " in err
    curves = Path("runs/tiny/metrics.jsonl").read_text(encoding="utf-8")

    recipe("# evaluate: --split validation --literature\n# reaches: BLEU 100\n# at least: BLEU 100\n")
    code, out, err = call("tiny --set training.max_steps=6")
    assert code == 1
    assert re.search(r"\nBLEU +\d+\.\d\d +100\.00 +100\.00  SHORT\n", out)
    assert re.search(r"\nliterature BLEU +\d+\.\d\d\n", out)
    assert re.search(r"runs/tiny, step_\d+, .*, validation: greedy search", err)
    # The run was finished, and nothing was trained again.
    assert Path("runs/tiny/metrics.jsonl").read_text(encoding="utf-8") == curves

    recipe("# evaluate: --split test\n# reaches: not measured here; published: 27.3\n")
    code, out, _ = call("tiny --set training.max_steps=6")
    assert code == 0
    assert out.endswith(
        "There is no measured score to hold this against. configs/tiny.yaml says: "
        "not measured here; published: 27.3\n"
    )


def scores_of(run: str) -> dict[str, float]:
    found = json.loads(Path(run, "reproduce.json").read_text(encoding="utf-8"))["scores"]
    return {score["name"]: score["value"] for score in found.values()}


@pytest.mark.slow
def test_several_seeds_are_trained_and_their_mean_is_held_against_the_score(
    recipe: Callable[[str], None], call: Reproduce
) -> None:
    recipe("# evaluate: --split test\n# reaches: not measured\n")
    command = "tiny --seeds 3 --set training.max_steps=40"
    code, out, _ = call(command)
    runs = [f"runs/tiny-seed{seed}" for seed in (1, 2, 3)]
    assert sorted(map(str, Path("runs").iterdir())) == runs
    configs = [yaml.safe_load(Path(run, "config.yaml").read_text(encoding="utf-8")) for run in runs]
    assert [config["training"].pop("seed") for config in configs] == [1, 2, 3]
    assert configs[0] == configs[1] == configs[2]
    scores = [scores_of(run)["chrF2++"] for run in runs]
    assert len(set(scores)) == 3
    mean, deviation = np.mean(scores), np.std(scores, ddof=1)
    figures = "  ".join(f"{figure:7.2f}" for figure in (*scores, mean, deviation))
    assert code == 0
    assert f"\n{'chrF2++':15}  {figures}\n" in out
    assert re.search(r"^ +seed 1 +seed 2 +seed 3 +mean +sd +expected +at least$", out, re.MULTILINE)
    assert re.search(r"\ntraining took \d+\.\d \+ \d+\.\d \+ \d+\.\d minutes; expected: a second each\n", out)

    curves = [Path(run, "metrics.jsonl").read_bytes() for run in runs]
    # Above the lowest seed or the highest: the mean alone decides.
    for bar, verdict, exit_code in (
        (round(mean, 2) - 0.01, "reached", 0),
        (round(mean, 2) + 0.01, "SHORT", 1),
    ):
        assert min(scores) < bar < max(scores)
        recipe(f"# evaluate: --split test\n# reaches: chrF2++ 99\n# at least: chrF2++ {bar:.2f}\n")
        code, out, _ = call(command)
        assert code == exit_code
        assert f"\n{'chrF2++':15}  {figures}     99.00  {bar:8.2f}  {verdict}\n" in out
    assert [Path(run, "metrics.jsonl").read_bytes() for run in runs] == curves
