"""Scores against sacreBLEU's own functions, and against its command line."""

from collections.abc import Callable
from typing import Any

import pytest
import sacrebleu

from mt.errors import DataError
from mt.metrics import scores as scores_module
from mt.metrics.scores import Score, exact_match, refuse_empty, score_translations, score_with_confidence

CommandLine = Callable[..., dict[str, dict[str, Any]]]

HYPOTHESES = ["Der Hund läuft schnell über die Straße.", "Das ist gut!", "Ein Mann liest ein altes Buch ."]
REFERENCES = ["Der Hund rennt schnell über die Straße.", "Das ist gut!", "Ein Mann liest ein altes Buch."]


def test_scores_equal_those_of_sacrebleu() -> None:
    scores = score_translations(HYPOTHESES, REFERENCES)
    assert list(scores) == ["bleu", "chrf"]
    assert scores["bleu"].value == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert scores["chrf"].value == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert 0 < scores["bleu"].value < 100


def test_scores_are_of_the_corpus_and_not_means_of_sentences() -> None:
    bleu = score_translations(HYPOTHESES, REFERENCES)["bleu"].value
    alone = [score_translations([h], [r])["bleu"].value for h, r in zip(HYPOTHESES, REFERENCES, strict=True)]
    assert abs(bleu - sum(alone) / len(alone)) > 1


def test_perfect_translations_score_100() -> None:
    scores = score_translations(REFERENCES, REFERENCES)
    assert scores["bleu"].value == pytest.approx(100)
    assert scores["chrf"].value == pytest.approx(100)


def test_no_score_is_printed_without_its_signature() -> None:
    scores = score_translations(HYPOTHESES, REFERENCES)
    version = sacrebleu.__version__
    bleu = f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    chrf = f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}"
    assert scores["bleu"].signature == bleu
    assert scores["chrf"].signature == chrf
    assert str(scores["bleu"]) == f"BLEU {scores['bleu'].value:.2f}  ({bleu})"
    assert str(scores["chrf"]) == f"chrF2 {scores['chrf'].value:.2f}  ({chrf})"


def test_empty_translations_are_scored_and_not_dropped() -> None:
    hypotheses = ["", *HYPOTHESES[1:]]
    expected = sacrebleu.corpus_bleu(hypotheses, [REFERENCES]).score
    assert score_translations(hypotheses, REFERENCES)["bleu"].value == expected
    assert expected < score_translations(HYPOTHESES, REFERENCES)["bleu"].value


@pytest.mark.parametrize("num_hypotheses", [0, 2])
def test_unequal_numbers_of_lines_are_refused(num_hypotheses: int) -> None:
    with pytest.raises(DataError, match=rf"^{num_hypotheses} translations .* 3 references"):
        score_translations(HYPOTHESES[:num_hypotheses], REFERENCES)


def test_nothing_to_score_is_refused() -> None:
    with pytest.raises(DataError, match="the references are empty"):
        score_translations([], [])


def test_exact_match_is_a_share_in_percent() -> None:
    assert exact_match(["a b", "c", "d ", "e"], ["a b", "c", "d", "E"]) == 50.0
    assert exact_match(["a"], ["a"]) == 100.0
    with pytest.raises(ValueError, match="longer"):
        exact_match(["a"], ["a", "b"])


def test_scores_with_intervals_equal_the_command_line(command_line: CommandLine) -> None:
    arguments = ["-m", "bleu", "chrf", "ter", "--chrf-word-order", "2", "--confidence", "-w", "10"]
    expected = command_line(HYPOTHESES, REFERENCES, *arguments)
    scores = score_with_confidence(HYPOTHESES, REFERENCES)
    assert [score.name for score in scores.values()] == ["BLEU", "chrF2++", "TER"]
    for score in scores.values():
        line = expected[score.name]
        assert score.value == pytest.approx(line["score"], abs=1e-9)
        assert score.signature == line["signature"]
        assert "bs:1000|seed:12345" in score.signature
        assert score.interval is not None
        middle, half = line["confidence_mean"], line["confidence_var"]
        assert score.interval == pytest.approx((middle - half, middle + half), abs=1e-9)
        assert half > 0


def test_resampling_is_seeded() -> None:
    assert score_with_confidence(HYPOTHESES, REFERENCES) == score_with_confidence(HYPOTHESES, REFERENCES)


def test_more_lines_than_fit_are_scored_without_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    with_interval = score_with_confidence(HYPOTHESES, REFERENCES)
    monkeypatch.setattr(scores_module, "MAX_RESAMPLED_LINES", 2)
    for key, score in score_with_confidence(HYPOTHESES, REFERENCES).items():
        assert score.value == with_interval[key].value
        assert score.interval is None
        assert "bs:" not in score.signature


def test_an_interval_stands_beside_its_score() -> None:
    assert str(Score("TER", 43.217, "sig", (41.0, 45.555))) == "TER 43.22  [41.00, 45.55]  (sig)"


def test_an_empty_reference_is_refused() -> None:
    refuse_empty(REFERENCES, "my.jsonl, test")
    with pytest.raises(DataError, match=r"^my.jsonl, test, sentence 2: the reference is empty"):
        refuse_empty(["a", " \t", "b"], "my.jsonl, test")
    with pytest.raises(DataError, match=r"sentence 1, and 2 more: the reference is empty"):
        refuse_empty(["", "", "\u3000"], "x")
