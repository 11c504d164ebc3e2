"""scripts/reproduce reads the heads of the recipes, and fails where a run falls short of one."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer.main

from mt.cli.app import app
from mt.config.load import load_config
from scripts import reproduce

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

data:
  # evaluate:  not in the header
  path: corpus
"""


def test_what_a_header_says(tmp_path: Path) -> None:
    file = tmp_path / "captions.yaml"
    file.write_text(GOOD)
    header = reproduce.read_header(file)
    assert header.average == ["--last", "10"]
    assert header.evaluate == ["--split", "test", "--beam", "5", "--literature"]
    assert header.expected == {"literature BLEU": 35.92, "exact sentences": 4.1}
    assert header.reaches.endswith("(greedy: BLEU 33), chrF2++ only seen")
    assert header.at_least == {"literature BLEU": 35.4}
    assert header.takes == "7.4 minutes, alone"
    for old, new, error in (
        ("# evaluate: ", "# evalaute: ", "lacks the line '# evaluate:'"),
        ("last 10", "last 0", "'average: last 0' must be"),
        ("BLEU 35.4;", "BLEU high;", "'at least: literature BLEU high' must be one of"),
    ):
        file.write_text(GOOD.replace(old, new))
        with pytest.raises(reproduce.RecipeError, match=error):
            reproduce.read_header(file)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda file: file.stem)
def test_the_shipped_recipes(recipe: Path) -> None:
    header = reproduce.read_header(recipe)
    assert {measure for measure, bar in header.at_least.items() if bar > header.expected[measure]} == set()
    config = load_config(recipe, [])
    if header.average:
        assert int(header.average[1]) <= config.checkpoint.keep
    # The command line's own parser, which raises for an option that it does not know.
    evaluate = typer.main.get_command(app).get_command(None, "evaluate")  # type: ignore[attr-defined]
    evaluate.make_context("evaluate", list(header.evaluate))


@pytest.fixture
def call(
    tiny_config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Run scripts/reproduce.py on a recipe of a second with a header of these lines: exit code and stdout."""
    monkeypatch.chdir(tmp_path)
    Path("configs").mkdir()

    def run(header: str, *options: str) -> tuple[int, str]:
        config = f"# Tiny.\n#\n{header}# takes: a second\n{tiny_config_file.read_text(encoding='utf-8')}"
        Path("configs/tiny.yaml").write_text(config, encoding="utf-8")
        monkeypatch.setattr(sys, "argv", ["scripts/reproduce", "tiny", *options])
        return reproduce.main(), capfd.readouterr().out

    return run


def test_a_run_is_held_against_its_score(call: Callable[..., tuple[int, str]]) -> None:
    short_run = ("--set", "training.max_steps=6")
    code, out = call(
        "# average: last 2\n# evaluate: --split test\n# reaches: BLEU 12.34\n# at least: BLEU 0.0\n",
        *short_run,
    )
    assert code == 0
    assert re.search(r"\nBLEU +\d+\.\d\d +12\.34 +0\.00  reached\n", out)
    assert re.search(r"\ntraining took \d+\.\d minutes; expected: a second\n$", out)
    curves = Path("runs/tiny/metrics.jsonl").read_text(encoding="utf-8")

    code, out = call(
        "# evaluate: --split test --literature\n# reaches: BLEU 100\n# at least: BLEU 100\n", *short_run
    )
    assert code == 1
    assert re.search(r"\nBLEU +\d+\.\d\d +100\.00 +100\.00  SHORT\n", out)
    assert re.search(r"\nliterature BLEU +\d+\.\d\d\n", out)
    _, out = call("# evaluate: --split test\n# reaches: not measured\n", *short_run, "--record")
    [row] = [line for line in out.splitlines() if re.match(r"\| \d", line)]
    assert re.fullmatch(
        r"\| \d+\.\d\d \| \d+\.\d\d \| 6 \| .* threads of .*torch .* \| `[0-9a-f]{12}` \|", row
    )
    # The run was finished, and nothing was trained again.
    assert Path("runs/tiny/metrics.jsonl").read_text(encoding="utf-8") == curves


@pytest.mark.slow
def test_the_mean_of_several_seeds_is_held_against_the_score(call: Callable[..., tuple[int, str]]) -> None:
    code, out = call(
        "# evaluate: --split test\n# reaches: not measured\n", "--seeds", "2", "--set", "training.max_steps=6"
    )
    assert code == 0
    assert sorted(map(str, Path("runs").iterdir())) == ["runs/tiny-seed1", "runs/tiny-seed2"]
    [figures] = re.findall(r"^chrF2\+\+ +([\d.]+) +([\d.]+) +([\d.]+) +[\d.]+$", out, re.MULTILINE)
    one, two, mean = map(float, figures)
    assert one != two
    assert mean == pytest.approx((one + two) / 2, abs=0.01)
