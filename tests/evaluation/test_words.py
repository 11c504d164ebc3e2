"""Statistics of words and single sentences against counts by hand, brute force and sacreBLEU."""

import random

import sacrebleu

from mt.evaluation.analysis import by_source_length, length_ratio, sentence_scores, words, worst_sentences

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
    sources, hypotheses, references = random_lines(3), random_lines(4), random_lines(5)
    groups = by_source_length(sources, hypotheses, references)
    assert [group.source_words for group in groups] == ["0-9", "10-19", "20-29", "30-39"]
    assert sum(group.num_sentences for group in groups) == 200
    short = [i for i, source in enumerate(sources) if len(source.split()) < 10]
    outputs, wanted = [hypotheses[i] for i in short], [references[i] for i in short]
    assert groups[0].num_sentences == len(short)
    assert groups[0].bleu == sacrebleu.corpus_bleu(outputs, [wanted]).score
    assert groups[0].chrfpp == sacrebleu.corpus_chrf(outputs, [wanted], word_order=2).score
    assert groups[-1].num_sentences == sum(len(source.split()) == 30 for source in sources)


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
