"""Statistics of words and single sentences against counts by hand, brute force and sacreBLEU."""

import random
from collections import Counter
from pathlib import Path

import pytest
import sacrebleu

from mt.config.config import Config
from mt.config.data import CleaningConfig, DataConfig, UnicodeForm
from mt.config.training import TrainingConfig
from mt.evaluation.analysis import (
    SourceWords,
    analyse_translations,
    by_source_length,
    by_training_frequency,
    count_source_words,
    length_ratio,
    most_different_sentences,
    sentence_scores,
    words,
    worst_sentences,
)
from mt.evaluation.test_set import load_evaluation_set
from mt.run_directory import RunDirectory

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


@pytest.mark.parametrize(
    ("form", "word", "written"),
    [("NFC", "café", "cafe\u0301"), ("NFKC", "2024年のCPU...", "２０２４年のＣＰＵ…")],
)
def test_words_are_looked_up_in_the_unicode_form_of_the_training_data(
    form: UnicodeForm, word: str, written: str, tmp_path: Path
) -> None:
    splits = {"train": [f"a {word}", f"b {word}", "c"], "validation": ["c"], "test": [f"a {written}"]}
    for split, lines in splits.items():
        rows = "".join(f"{line}\t{line}\n" for line in lines)
        (tmp_path / f"{split}.tsv").write_text(f"en\tde\n{rows}", encoding="utf-8")
    data = DataConfig(path=str(tmp_path), src="en", tgt="de")
    for used, num_unknown in ((form, 0), ("none", 1)):
        config = Config(
            data=data, cleaning=CleaningConfig(unicode_form=used), training=TrainingConfig(max_steps=1)
        )
        test_set = load_evaluation_set(config, "test")
        found = analyse_translations(RunDirectory(tmp_path / "run"), config, test_set, [f"c {word}"])
        assert found.source_words.num_unknown is not None
        assert bool(found.source_words.num_unknown) == bool(num_unknown)
        groups = found.by_training_frequency
        assert groups is not None
        assert ("0" in [group.training_frequency for group in groups]) == bool(num_unknown)


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


def test_f1_by_training_frequency_by_brute_force() -> None:
    hypotheses, references = random_lines(6), random_lines(7)
    frequencies = {word: 3**i % 1500 for i, word in enumerate(WORDS)}
    groups = by_training_frequency(hypotheses, references, frequencies)
    ends = {"0": (0, 0), "1": (1, 1), "2-4": (2, 4), "5-9": (5, 9), "10-99": (10, 99), "100-999": (100, 999)}
    for group in groups:
        low, high = ends.get(group.training_frequency, (1000, 9**9))
        members = {word for word, count in frequencies.items() if low <= count <= high}
        matched = output = wanted = 0
        for hypothesis, reference in zip(hypotheses, references, strict=True):
            left = [word for word in reference.split() if word in members]
            wanted += len(left)
            for word in hypothesis.split():
                output += word in members
                if word in left:
                    left.remove(word)
                    matched += 1
        precision, recall = matched / output, matched / wanted
        assert group.f1 == pytest.approx(200 * precision * recall / (precision + recall))
    assert sum(group.num_reference_words for group in groups) == sum(len(r.split()) for r in references)


def test_source_words_by_hand() -> None:
    sources = ["Anna sees Xyzzy , Anna", "the blorb !"]
    hypotheses = ["Anna sieht Anna ,", "das blorb !"]
    references = ["Anna sieht Xyzzy ,", "der Blorb !"]
    known = Counter({"Anna": 5, "sees": 2, "the": 9})
    found = count_source_words(sources, hypotheses, references, known)
    # Punctuation is left out; both Annas are in the output, and the blorb; in the reference Anna and Xyzzy.
    assert found == SourceWords(
        num_words=6, num_copied=3, num_copied_by_reference=3, num_unknown=2, num_unknown_copied=1
    )
    assert count_source_words(sources, hypotheses, references, None) == SourceWords(6, 3, 3, None, None)


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
