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


def test_scores_of_each_direction_and_their_mean(
    succeed: Call, refuse: Refuse, tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = succeed("evaluate", "--outputs", "lines").out
    scores = scores_in(out)
    assert re.findall(r"^\w+ to \w+$", out, re.MULTILINE) == DIRECTIONS
    assert f"\nBLEU {fmean(scores):.2f}  (mean of {', '.join(DIRECTIONS)})\n" in out
    # The mean has no signature.
    assert out.count("nrefs:1|") == 3 * 3
    facts = json.loads(succeed("evaluate", "--json").out)
    assert [one["direction"] for one in facts] == DIRECTIONS
    for name, language in (("de-en", "de"), ("en-loud", "en")):
        sources = (tiny_corpus / f"test.{language}").read_text()
        assert Path(f"lines/{name}/sources.txt").read_text() == sources
    alone = succeed("evaluate", "--to", "en").out
    assert (scores_in(alone), "mean of" in alone) == (scores[1:2], False)
    [fact] = json.loads(succeed("evaluate", "--to", "en", "--json").out)
    assert fact["direction"] == "de to en"
    several_match = ("--from", "en"), ("--data", tiny_corpus)
    none_match = ("--to", "fr"), ("--from", "de", "--to", "loud")
    for asked in (*several_match, *none_match):
        assert "en to de, de to en, en to loud: choose one by --to" in refuse("evaluate", *asked)
    assert "training pairs are of several directions" in refuse("evaluate", "--split", "train")
    monkeypatch.setattr("mt.processes.ARE_SEVERAL", True)
    assert "choose one by --to" in refuse("evaluate")


def test_a_direction_without_the_split_is_left_out(succeed: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mt.evaluation.test_set.sets_of_sources", lambda *_: {})
    shown = succeed("evaluate", "--scores-only")
    assert "left out: no source has a test split for de to en: give another" in shown.err
    assert (len(scores_in(shown.out)), "mean of" in shown.out) == (1, False)


def test_a_comparison_is_in_one_direction(succeed: Call, refuse: Refuse) -> None:
    systems = "several", "runs/several/checkpoints/step_0000200"
    assert "choose one by --to" in refuse("compare", *systems)
    out = succeed("compare", *systems, "--to", "en").out
    assert re.search(r", de to en, test$", out, re.MULTILINE)
    [file] = Path("runs/several").glob("hypotheses.test-de-en-*.step_0000200.greedy.txt")
    assert "BLEU" in succeed("compare", "several", file, "--to", "en").out


def test_runs_and_show_list_the_directions_beside_their_mean(succeed: Call, several: RunDirectory) -> None:
    scores = scores_in(succeed("evaluate", "--scores-only").out)
    points = [json.loads(line) for line in several.metrics_file.read_text().splitlines()]
    best = max(point.get("mean_bleu", 0) for point in points)
    out = succeed("runs").out
    assert re.search(rf"^several +finished +400 +{best:.2f} +{fmean(scores):.2f} ", out, re.MULTILINE)
    assert "several: BLEU is the mean of those that mt show lists by direction\n" in out
    story = succeed("show").out
    for expected in (
        r"mixed with .*, de to en, 160 pairs",
        r"mean BLEU +[▁-█]+ ",
        r"BLEU on shout +[▁-█]+ ",
        r"marked +mean BLEU\n",
        r", de to en, test, step_\d+, greedy search: 22 sentences",
        rf"test, mean of 3 directions, step_\d+, greedy search\n +BLEU {fmean(scores):.2f} \(mean of en",
    ):
        assert re.search(expected, story), f"{expected}\n{story}"


def test_the_report_names_the_direction_of_each_score(succeed: Call) -> None:
    scores = scores_in(succeed("evaluate", "--scores-only").out)
    page = succeed("report", "--sentences", "9").out
    assert f"<dd>{fmean(scores):.1f}</dd><dt>BLEU on test, mean of 3 directions</dt>" in page
    assert page.count("mean of en to de, de to en, en to loud<") == 3
    assert "en → de, de → en, en → loud" in page
    assert "</svg> mean BLEU</span>" in page
    card = succeed("report", "--sentences", "9", "--format", "md").out
    assert yaml.safe_load(card.split("---\n")[1])["language"] == ["en", "de", "loud"]
    assert re.search(r"From 9 of the 12 sentences of .*, en to de, validation", card)
    assert "Left out" not in card + page


def test_attention_is_that_of_the_direction(succeed: Call, refuse: Refuse) -> None:
    sentence = "Anna buys milk."
    assert "say into which language, as by --to" in refuse("attention", sentence, "--format", "pharaoh")
    pairs = succeed("attention", sentence, "--format", "pharaoh", "--to", "loud").out
    assert re.fullmatch(r"(\d+-\d+ ?)*\n", pairs)
