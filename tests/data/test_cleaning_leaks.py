"""Evaluation pairs in the training data: what is found, against a slow search in plain Python."""

import random
import unicodedata
from dataclasses import asdict
from pathlib import Path

import datasets
import pytest

from mt.config.data import CleaningConfig
from mt.data.cleaning.leaks import LeakCheck
from mt.data.corpus import Corpus, load_corpus
from mt.data.text_form import TextForm
from tests.data.corpora import Pairs, data_config, pairs_of, parallel, write


def dataset(pairs: Pairs) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"src": [src for src, _ in pairs], "tgt": [tgt for _, tgt in pairs]})


def normalised(text: str) -> str:
    """The definition in other words: lower case, without punctuation, symbols and spaces."""
    words = "".join(c for c in text.lower() if unicodedata.category(c)[0] not in "PSZC")
    return words or text.lower()


def load(folder: Path, train: Pairs, test: Pairs, **fields: object) -> Corpus:
    write(folder, parallel("train", train) | parallel("dev", [("v", "w")]) | parallel("test", test))
    return load_corpus(data_config(folder), CleaningConfig.model_validate(fields))


TRAIN = [
    ("A man sleeps.", "Ein Mann schläft."),
    ("a  MAN, sleeps", "ein mann SCHLÄFT!"),
    ("A man sleeps.", "Ein Hund."),
    ("A cat.", "„Ein Kind“ lacht –"),
    ("Nothing.", "Nichts."),
]
TEST = [("A man sleeps.", "Ein Mann schläft."), ("A child laughs", "Ein Kind lacht."), ("Other", "Anderes")]


def test_leaks_are_counted_apart_by_side_and_removed_only_on_request(tmp_path: Path) -> None:
    kept = load(tmp_path, TRAIN, TEST)
    assert {split: asdict(report) for split, report in kept.report.leaks.items()} == {
        "validation": {"pairs": 1, "source": 0, "target": 0, "pair": 0},
        "test": {"pairs": 3, "source": 1, "target": 2, "pair": 1},
    }
    assert len(kept.train) == 5
    assert kept.report.has_leaked
    assert "1 pair, 1 source and 2 targets of 3 in test; cleaning.remove_leaks" in kept.report.leak_sentence
    removed = load(tmp_path, TRAIN, TEST, remove_leaks=True)
    assert pairs_of(removed.train) == TRAIN[2:]
    assert [share[:2] for share in removed.shares] == [(3, 1.0)]
    of_another = load(tmp_path, [("V!", "w."), *TRAIN], TEST, remove_leaks=True)
    assert [share[:2] for share in of_another.shares] == [(3, 1.0)]
    training = removed.report.splits["train"]
    assert training.dropped == {"the pair is in validation or test": 2}
    assert training.pairs == 3
    backwards = load(tmp_path, TRAIN[::-1], TEST, remove_leaks=True).report.splits["train"]
    assert [src for (src, _), *_ in backwards.examples.values()] == ["a MAN, sleeps"]
    assert removed.report.leak_sentence.endswith("these pairs were removed from training")
    assert not removed.report.has_leaked


def test_evaluation_pairs_in_another_unicode_form_are_found(tmp_path: Path) -> None:
    test = [("Room １２３", "Zimmer １２３"), ("cafe\u0301", "Cafe\u0301"), ("A dog", "Ein Hund")]
    other = ("A cat", "Eine Katze")
    for form in ("none", "NFC", "NFKC"):
        corpus = load(tmp_path, [*test, other], test, unicode_form=form, remove_leaks=True)
        assert corpus.train["src"][:] == [other[0]]
        assert corpus.report.leaks["test"].pair == 3
        assert corpus.test["src"][0] == test[0][0]


def test_carved_splits_are_looked_for_too(tmp_path: Path) -> None:
    lines = [f"Number {i}" for i in range(300)] + [f"number {i}!" for i in range(300)]
    write(tmp_path, parallel("all", [(line, line) for line in lines]))
    data = data_config(tmp_path / "all", held_out_fraction=0.2)
    corpus = load_corpus(data, CleaningConfig(remove_leaks=True))
    held_out = {normalised(text) for text in [*corpus.validation["src"], *corpus.test["src"]]}
    assert len(corpus.train) > 100
    assert not held_out & {normalised(text) for text in corpus.train["src"]}


@pytest.mark.parametrize(
    "alphabet", ["aA .", "aÄäß„“", "中文。！", "مر،\u200f", "กา่", "\0\t\u00ad!-", "İıKſé e\u0301"]
)
def test_equal_to_a_slow_search(alphabet: str) -> None:
    chance = random.Random(alphabet)

    def texts(count: int) -> Pairs:
        drawn = ("".join(chance.choices(alphabet, k=chance.randrange(1, 6))) for _ in range(2 * count))
        sides = TextForm().rewrite(drawn)
        return list(zip(sides[::2], sides[1::2], strict=True))

    train, test = texts(400), texts(100)
    check = LeakCheck({"test": dataset(test)}, TextForm())
    first, second = check.search(dataset(train[:150])), check.search(dataset(train[150:]))

    def both(pair: tuple[str, str]) -> tuple[str, str]:
        return normalised(pair[0]), normalised(pair[1])

    tested = set(map(both, test))
    assert [*first, *second] == [both(pair) in tested for pair in train]
    report = asdict(check.report()["test"])
    ours, theirs = list(map(both, train)), list(map(both, test))
    for side, index in (("source", 0), ("target", 1)):
        assert report[side] == sum(pair[index] in {p[index] for p in ours} for pair in theirs)
    assert report["pair"] == sum(pair in ours for pair in theirs)
