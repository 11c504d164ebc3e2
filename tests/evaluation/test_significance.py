"""Resampling against sacreBLEU's command line, and by what it must say."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from mt.errors import DataError
from mt.evaluation.scores import paired_bootstrap, score_with_confidence

REFERENCES = [f"der {word} Hund läuft über die Straße Nummer {i}." for i, word in enumerate("abcdefghij" * 3)]
GOOD = [line.replace("Hund", "Mund") if i % 5 == 0 else line for i, line in enumerate(REFERENCES)]
BAD = [line.replace("läuft über", "geht auf") if i % 2 else line for i, line in enumerate(REFERENCES)]


def test_figures_equal_the_command_line(table_of_command_line: Callable[..., list[list[str]]]) -> None:
    arguments = ["-m", "bleu", "chrf", "ter", "--chrf-word-order", "2", "--paired-bs", "-w", "8"]
    baseline, system = table_of_command_line(BAD, GOOD, REFERENCES, *arguments)
    found = paired_bootstrap([BAD, GOOD, BAD], REFERENCES)
    assert list(found) == ["bleu", "chrfpp", "ter"]
    for (one, two, again), first, second in zip(found.values(), baseline, system, strict=True):
        assert two.gain == pytest.approx(two.score.value - one.score.value)
        assert (again.score, again.gain, again.p_value) == (one.score, 0, 1)
        for score, cell in ((one.score, first), (two.score, second)):
            assert score.interval is not None
            low, high = score.interval
            # Half of what sacreBLEU computes with has seven digits only, and so has the width.
            shown = [float(number) for number in re.findall(r"\d+\.\d+", cell)[:3]]
            assert shown[0] == pytest.approx(score.value, abs=1e-7)
            assert shown[1:] == pytest.approx([(low + high) / 2, (high - low) / 2], abs=1e-4)
        assert f"(p = {two.p_value:.4f})" in second
        assert 0 < two.p_value < 1


def test_a_clear_difference_is_significant_and_none_is_not() -> None:
    clear = paired_bootstrap([BAD, REFERENCES], REFERENCES)["bleu"][1]
    assert clear.p_value < 0.01
    same = paired_bootstrap([GOOD, GOOD], REFERENCES)["bleu"][1]
    assert same.gain == 0
    # Whatever is as good as the other, a difference of nothing or more is certain.
    assert same.p_value == 1


def test_scores_with_intervals_equal_the_command_line(
    command_line: Callable[..., dict[str, dict[str, Any]]],
) -> None:
    arguments = ["-m", "bleu", "chrf", "ter", "--chrf-word-order", "2", "--confidence", "-w", "10"]
    expected = command_line(GOOD, REFERENCES, *arguments)
    scores = score_with_confidence(GOOD, REFERENCES)
    assert [score.name for score in scores.values()] == ["BLEU", "chrF2++", "TER"]
    for score in scores.values():
        line = expected[score.name]
        assert score.value == pytest.approx(line["score"], abs=1e-9)
        assert score.signature == line["signature"]
        assert "bs:1000|seed:12345" in score.signature
        assert score.interval is not None
        middle, half = line["confidence_mean"], line["confidence_var"]
        assert score.interval == pytest.approx((middle - half, middle + half), abs=1e-4)
        assert half > 0


def test_very_many_lines_are_scored_without_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = score_with_confidence(GOOD, REFERENCES)
    monkeypatch.setattr("mt.evaluation.scores.MAX_RESAMPLED_LINES", len(REFERENCES) - 1)
    for key, score in score_with_confidence(GOOD, REFERENCES).items():
        assert score.value == pytest.approx(exact[key].value)
        assert score.interval is None
    with pytest.raises(DataError, match="29 translations cannot be scored against 30 references"):
        score_with_confidence(GOOD[1:], REFERENCES)
    monkeypatch.setattr("mt.evaluation.scores.MAX_RESAMPLED_LINES", len(REFERENCES))
    assert score_with_confidence(GOOD, REFERENCES) == exact


def test_a_resample_that_scores_zero_is_counted_and_a_rate_above_100_is_in_its_interval() -> None:
    # sacreBLEU's own corpus_score(n_bootstrap=...) ends in a TypeError here.
    zero = score_with_confidence(["a b c d", "x"], ["a b c d", "y"])["bleu"]
    above = score_with_confidence(["w x y z", "a b c d e f"] * 9, ["a", "b c"] * 9)["ter"]
    for score in zero, above:
        assert score.interval is not None
        assert score.interval[0] < score.value < score.interval[1]
    assert above.value > 100
