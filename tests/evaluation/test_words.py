"""Statistics of words and single sentences against counts by hand, brute force and sacreBLEU."""

import random

import sacrebleu

from mt.evaluation.analysis import (
    analyse_lengths,
    length_ratio,
    most_different_sentences,
    sentence_scores,
    words,
    worst_sentences,
)

WORDS = [f"w{i}" for i in range(40)]


def random_lines(seed: int, num: int = 200) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 30))) for _ in range(num)]


def test_words_are_those_that_bleu_counts() -> None:
    assert words("我用 PyTorch。") == ["我", "用", "PyTorch", "。"]
    assert words("It's 3,000 \"new\" ones, isn't it?") == (
        ["It's", "3,000", '"', "new", '"', "ones", ",", "isn't", "it", "?"]
    )
    lines = ["Ein Mann, der läuft.", "„Nein“, sagt sie: 3.5!"]
    assert sum(len(words(line)) for line in lines) == sacrebleu.BLEU().corpus_score(lines, [lines]).sys_len


def test_the_length_ratio_is_that_of_bleu() -> None:
    hypotheses, references = random_lines(1), random_lines(2)
    assert length_ratio(hypotheses, references) == sacrebleu.corpus_bleu(hypotheses, [references]).ratio


def test_groups_by_length_hold_every_sentence_once_and_score_as_sacrebleu_does() -> None:
    sources = [" ".join(WORDS[:1] * (number % 75)) for number in range(200)]
    hypotheses, references = random_lines(4), random_lines(5)
    groups = analyse_lengths(sources, hypotheses, references).by_source_length
    bounds = (0, 10, 20, 30, 40, 60, 75)
    assert [group.source_words for group in groups] == ["0-9", "10-19", "20-29", "30-39", "40-59", "60+"]
    for group, least, end in zip(groups, bounds[:-1], bounds[1:], strict=True):
        of_group = [i for i, source in enumerate(sources) if least <= len(source.split()) < end]
        outputs, wanted = [hypotheses[i] for i in of_group], [references[i] for i in of_group]
        bleu = sacrebleu.corpus_bleu(outputs, [wanted])
        assert group.num_sentences == len(of_group)
        assert (group.bleu, group.length_ratio) == (bleu.score, bleu.ratio)
        assert group.chrfpp == sacrebleu.corpus_chrf(outputs, [wanted], word_order=2).score


SOURCES = ["one", "two", "three", "four"]
REFERENCES = ["der Hund läuft schnell", "ein Haus", "Milch", "das Auto ist rot"]
FIRST = ["der Hund läuft", "ein Haus", "Käse", "das Auto ist rot"]


def test_the_worst_come_first() -> None:
    worst = worst_sentences(SOURCES, FIRST, REFERENCES, 3)
    assert [each.number for each in worst] == [3, 1, 2]
    assert (worst[0].source, worst[0].translation, worst[0].reference) == ("three", "Käse", "Milch")
    assert [each.chrfpp for each in worst] == sorted(sentence_scores(FIRST, REFERENCES))[:3]
    assert len(worst_sentences(SOURCES, FIRST, REFERENCES, 10)) == 4
    assert worst_sentences(SOURCES, FIRST, REFERENCES, 0) == []


def test_the_sentences_that_differ_most_between_systems_come_first() -> None:
    second = ["der Hund läuft", "eine Maus", "Milch", "das Auto war rot"]
    found = most_different_sentences(SOURCES, [FIRST, second], REFERENCES, 10)
    # The first has the same translation twice.
    assert {each.number for each in found} == {2, 3, 4}
    differences = [abs(one - other) for one, other in (each.chrfpp for each in found)]
    assert differences == sorted(differences, reverse=True)
    for each in found:
        place = each.number - 1
        assert each.translations == (FIRST[place], second[place])
        assert (each.source, each.reference) == (SOURCES[place], REFERENCES[place])
        assert list(each.chrfpp) == sentence_scores(each.translations, [each.reference] * 2)
    assert most_different_sentences(SOURCES, [FIRST, second], REFERENCES, 2) == found[:2]
