"""Single sentences, ordered as sacreBLEU scores them."""

import sacrebleu

from mt.evaluation.analysis import most_different_sentences, sentence_scores, worst_sentences

SOURCES = ["one", "two", "three", "four"]
REFERENCES = ["der Hund läuft schnell", "ein Haus", "Milch", "das Auto ist rot"]
FIRST = ["der Hund läuft", "ein Haus", "Käse", "das Auto ist rot"]
SECOND = ["der Hund rennt schnell", "kein Baum", "Milch", "das Auto ist rot"]


def test_sentence_scores_are_those_of_sacrebleu() -> None:
    metric = sacrebleu.CHRF(word_order=2)
    expected = [metric.sentence_score(h, [r]).score for h, r in zip(FIRST, REFERENCES, strict=True)]
    assert sentence_scores(FIRST, REFERENCES) == expected


def test_the_worst_come_first() -> None:
    worst = worst_sentences(SOURCES, FIRST, REFERENCES, 3)
    assert [each.number for each in worst] == [3, 1, 2]
    assert (worst[0].source, worst[0].translation, worst[0].reference) == ("three", "Käse", "Milch")
    assert [each.chrfpp for each in worst] == sorted(sentence_scores(FIRST, REFERENCES))[:3]
    assert len(worst_sentences(SOURCES, FIRST, REFERENCES, 10)) == 4
    assert worst_sentences(SOURCES, FIRST, REFERENCES, 0) == []


def test_the_most_different_come_first_and_equal_ones_never() -> None:
    found = most_different_sentences(SOURCES, (FIRST, SECOND), REFERENCES, 10)
    assert {each.number for each in found} == {1, 2, 3}
    gaps = [abs(each.chrfpp[0] - each.chrfpp[1]) for each in found]
    assert gaps == sorted(gaps, reverse=True)
    assert found[-1].number == 1
    assert found[-1].translations == (FIRST[0], SECOND[0])
    assert len(most_different_sentences(None, (FIRST, SECOND), REFERENCES, 1)) == 1
