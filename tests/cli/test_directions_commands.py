"""Commands about a run of several directions: scores of each, the mean beside them, and `--to`."""

import json
import re
from pathlib import Path
from statistics import fmean

import pytest
import yaml

from mt.run_directory import RunDirectory
from tests.fixture_types import Call, Refuse

pytestmark = pytest.mark.usefixtures("several")
DIRECTIONS = ["en to de", "de to en", "en to loud"]


def scores_in(out: str) -> list[float]:
    return [float(value) for value in re.findall(r"^BLEU ([\d.]+)  \[", out, re.MULTILINE)]


def test_scores_of_each_direction_and_their_mean(succeed: Call, refuse: Refuse, tiny_corpus: Path) -> None:
    out = succeed("evaluate", "--json", "scores.json", "--outputs", "lines").out
    scores = scores_in(out)
    assert [line for line in out.splitlines() if " to " in line] == DIRECTIONS
    assert f"\nmean of these 3 directions: BLEU {fmean(scores):.2f}  chrF2++ " in out
    # The mean has no signature.
    assert out.count("nrefs:1|") == 3 * 3
    facts = json.loads(Path("scores.json").read_text())
    assert [f"{one['src']} to {one['tgt']}" for one in facts["directions"]] == DIRECTIONS
    assert f"{facts['mean']['bleu']:.2f}" == f"{fmean(scores):.2f}"
    assert Path("lines/de-en/sources.txt").read_text() == (tiny_corpus / "test.de").read_text()
    alone = succeed("evaluate", "--to", "en", "--json", "scores.json").out
    assert (scores_in(alone), "mean of" in alone) == (scores[1:2], False)
    assert json.loads(Path("scores.json").read_text())["tgt"] == "en"
    assert "only en to de, de to en, en to loud" in refuse("evaluate", "--to", "fr")
    assert "from loud into any other" in refuse("evaluate", "--from", "loud")


def test_a_comparison_in_each_direction(succeed: Call, refuse: Refuse) -> None:
    systems = "several", "runs/several/checkpoints/step_0000060"
    out = succeed("compare", *systems, "--json", "scores.json", "--show", "0").out
    assert re.findall(r", (\w+ to \w+), test$", out, re.MULTILINE) == DIRECTIONS
    first, second = (
        [float(line.split()[1]) for line in out.splitlines() if re.match(rf"{letter} +\d", line)]
        for letter in "AB"
    )
    assert f"mean BLEU of these 3 directions: A {fmean(first):.2f}, B {fmean(second):.2f}\n" in out
    assert len(json.loads(Path("scores.json").read_text())["mean"]["ter"]) == 2
    [file] = Path("runs/several").glob("hypotheses.test-de-en-*.step_0000060.greedy.txt")
    assert "choose one by --to" in refuse("compare", "several", file)
    assert "BLEU" in succeed("compare", "several", file, "--to", "en").out


def test_runs_and_show_list_the_directions_beside_their_mean(succeed: Call, several: RunDirectory) -> None:
    assert "best BLEU is the mean over its validation sets\n" in succeed("runs").out
    scores = scores_in(succeed("evaluate", "--scores-only").out)
    points = [json.loads(line) for line in several.metrics_file.read_text().splitlines()]
    best = max(point.get("mean_bleu", 0) for point in points)
    out = succeed("runs").out
    assert re.search(rf"^several +finished +120 +{best:.2f} +{fmean(scores):.2f} ", out, re.MULTILINE)
    assert f"test BLEU that of en to de {scores[0]:.2f}, de to en {scores[1]:.2f}, en to loud " in out
    story = succeed("show").out
    for expected in (
        r"mixed with .*, de to en, 160 pairs",
        r"mean BLEU +[▁-█]+ ",
        r"BLEU on shout +[▁-█]+ ",
        r"marked +mean BLEU\n",
        r", de to en, test, step_\d+, greedy search: 22 sentences",
        rf"mean on test of en to de, de to en, en to loud, step_\d+, .*: BLEU {fmean(scores):.2f}, ",
    ):
        assert re.search(expected, story), f"{expected}\n{story}"


def test_the_report_names_the_direction_of_each_score_and_translation(succeed: Call) -> None:
    scores = scores_in(succeed("evaluate", "--scores-only").out)
    succeed("evaluate", "--scores-only", "--split", "train")
    page = succeed("report", "--sentences", "9").out
    assert f"<dd>{fmean(scores):.1f}</dd><dt>BLEU on test, mean of 3 directions</dt>" in page
    assert page.count("none: the mean of en to de, de to en, en to loud<") == 3
    assert "en → de, de → en, en → loud" in page
    assert "</svg> mean BLEU</span>" in page
    card = succeed("report", "--sentences", "9", "--format", "md").out
    assert yaml.safe_load(card.split("---\n")[1])["language"] == ["en", "de", "loud"]
    samples = re.findall(r"From 3 of the 12 sentences of .*, (\w+ to \w+), validation", card)
    assert samples == DIRECTIONS
    assert "Left out" not in card + page


def test_attention_is_that_of_the_direction(succeed: Call, refuse: Refuse) -> None:
    sentence = "Anna buys milk."
    assert "say into which language, as by --to" in refuse("attention", sentence, "--format", "pharaoh")
    pairs = succeed("attention", sentence, "--format", "pharaoh", "--to", "loud").out
    assert re.fullmatch(r"(\d+-\d+ ?)*\n", pairs)
