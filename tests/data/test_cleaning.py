"""The cleaning section: what each filter drops, against Python's own Unicode data, and what is reported."""

import random
import sys
import unicodedata
from pathlib import Path
from typing import Any, get_args

import pytest
import regex  # type: ignore[import-untyped]

from mt.config.data import CleaningConfig, Script
from mt.data.cleaning.filters import CONTROL_CHARACTER, SEVERAL_SCRIPTS, Cleaner
from mt.data.corpus import Corpus, load_corpus
from tests.data.corpora import Pairs, corpus, data_config, write


def clean(pairs: Pairs, **fields: object) -> tuple[Pairs, dict[str, int]]:
    cleaner = Cleaner(CleaningConfig.model_validate({"unicode_form": "none", "invisible": "keep", **fields}))
    return cleaner.clean(pairs), dict(cleaner.dropped.counts)


def load(folder: Path, pairs: Pairs, num_train_pairs: int | None = None, **fields: object) -> Corpus:
    for name, rows in (("train", pairs), ("dev", [("v", "w")]), ("test", [("t", "u")])):
        write(folder, corpus("jsonl", name, rows))
    cleaning = CleaningConfig.model_validate(fields)
    return load_corpus(data_config(folder, num_train_pairs=num_train_pairs), cleaning)


def test_nothing_is_touched_unless_it_is_asked_for() -> None:
    pairs = [("a", "a"), ("a", "a"), ("\x07.", "ﬁ"), ("и", "x" * 1000), ("e\u0301", "b\u200b")]
    assert clean(pairs) == (pairs, {})


def test_the_lengths_are_those_of_the_text_between_the_spaces() -> None:
    pairs = [("ab", "abc"), (" ab\u3000", "abcd"), ("é" * 4, "😀" * 4), ("abc", "abcde"), ("abcde", "a")]
    kept, dropped = clean(pairs, min_characters=3, max_characters=4)
    assert kept == [("é" * 4, "😀" * 4)]
    assert dropped == {"a side has under 3 characters": 3, "a side has over 4 characters": 1}
    assert clean(pairs, min_characters=3) == (pairs[2:4], {"a side has under 3 characters": 3})


@pytest.mark.parametrize("ratio", [1.5, 2.0, 3.0])
def test_the_ratio_is_that_of_the_longer_side(ratio: float) -> None:
    pairs = [("x" * i, "y" * j) for i in range(1, 12) for j in range(1, 12)]
    kept, dropped = clean(pairs, max_length_ratio=ratio)
    assert kept == [(s, t) for s, t in pairs if max(len(s) / len(t), len(t) / len(s)) <= ratio]
    assert dropped == {f"one side is over {ratio:g} times as long as the other": len(pairs) - len(kept)}


def test_control_characters_are_those_of_unicode_but_tab_and_line_ends() -> None:
    characters = [chr(code) for code in range(0x3000)]
    kept, _ = clean([(f"a{c}b", "x") for c in characters], remove_control_characters=True)
    expected = [c for c in characters if unicodedata.category(c) != "Cc" or c in "\t\n\r"]
    assert [src[1] for src, _ in kept] == expected
    assert regex.search(CONTROL_CHARACTER.replace(r"\x{9F}", r"\x9F"), "a\x80")
    assert clean([("x", "a\0b")], remove_control_characters=True) == (
        [],
        {"a side holds a control character": 1},
    )


@pytest.mark.parametrize(
    ("script", "right", "wrong"),
    [
        ("Latin", ["Łódź ªº", "12 + 3 = 15", "K2 и", "!?"], ["Москва", "ab гдежз", "東京 a"]),
        ("Japanese", ["東京タワーです", "ラーメン"], ["Tokyo", "한국"]),
        ("Korean", ["한국 韓國"], ["東京タワーです"]),
    ],
)
def test_text_in_another_script(script: str, right: list[str], wrong: list[str]) -> None:
    pairs = [(text, "x") for text in right + wrong]
    assert clean(pairs, src_script=script) == (
        [(text, "x") for text in right],
        {f"the source is not in {script} script": len(wrong)},
    )
    _, dropped = clean([(tgt, src) for src, tgt in pairs], tgt_script=script)
    assert dropped == {f"the target is not in {script} script": len(wrong)}


def test_scripts_are_assigned_as_another_library_assigns_letters() -> None:
    letters = regex.compile(r"\p{L}")
    chance = random.Random(3)
    alphabet = [chr(c) for c in range(sys.maxunicode) if unicodedata.category(chr(c))[0] in "LNP"]
    for script in (name for name in get_args(Script) if name not in ("any", *SEVERAL_SCRIPTS)):
        own = regex.compile(rf"[\p{{Script={script}}}\p{{Script=Common}}\p{{Script=Inherited}}]")
        inside = [c for c in alphabet[:20_000] if own.fullmatch(c)]
        texts = ["".join(chance.choices(chance.choice([inside, alphabet]), k=9)) for _ in range(20)]
        kept, _ = clean([(text, "x") for text in texts], src_script=script)
        for text in texts:
            found = letters.findall(text)
            foreign = sum(own.fullmatch(c) is None for c in found)
            assert ((text, "x") in kept) == (2 * foreign <= len(found)), (script, text)


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_text_is_rewritten_before_anything_else_is_looked_at(form: str) -> None:
    pairs = [("cafe\u0301", "ﬁn"), ("café", "ﬁn"), ("Å", "Ⅳ")]
    cleaner = Cleaner(CleaningConfig.model_validate({"unicode_form": form, "remove_duplicates": True}))
    kept = cleaner.clean(pairs)
    expected = [tuple(unicodedata.normalize(form, side) for side in pair) for pair in pairs]  # type: ignore[arg-type]
    assert kept == [expected[0], expected[2]]
    assert cleaner.dropped.counts == {"the pair was there before": 1}


def test_a_pair_is_counted_under_its_first_reason_only() -> None:
    pairs = [("a\0", "a\0"), ("и", "и"), ("same", "same"), ("same", "same"), ("one", "eins"), ("one", "eins")]
    kept, dropped = clean(
        pairs,
        remove_control_characters=True,
        src_script="Latin",
        remove_identical=True,
        remove_duplicates=True,
    )
    assert kept == [("one", "eins")]
    assert dropped == {
        "a side holds a control character": 1,
        "the source is not in Latin script": 1,
        "source and target are the same": 2,
        "the pair was there before": 1,
    }


def test_duplicates_are_those_of_all_chunks_so_far() -> None:
    cleaner = Cleaner(CleaningConfig(remove_duplicates=True))
    assert cleaner.clean([("ab", "c"), ("a", "bc"), ("ab", "c")]) == [("ab", "c"), ("a", "bc")]
    assert cleaner.clean([("a", "bc"), ("a", "c"), ("d", "bc")]) == [("a", "c"), ("d", "bc")]
    assert cleaner.dropped.counts["the pair was there before"] == 2


def test_what_was_dropped_is_in_the_description_with_two_examples_each(tmp_path: Path) -> None:
    pairs = [
        *[("", "x")] * 3,
        ("same", "same"),
        ("a b", "c d"),
        *[(f"l\n{'o' * 99}ng {i}", "x") for i in range(3)],
    ]
    training = load(tmp_path, pairs, remove_identical=True, max_characters=50).report.splits["train"]
    assert training.pairs == 1
    # The most frequent reason first, others by name.
    assert list(training.dropped.items()) == [
        ("a side has over 50 characters", 3),
        ("the source is empty", 3),
        ("source and target are the same", 1),
    ]
    assert list(training.examples) == list(training.dropped)
    assert {reason: len(each) for reason, each in training.examples.items()} == {
        "the source is empty": 2,
        "a side has over 50 characters": 2,
        "source and target are the same": 1,
    }
    assert training.examples["a side has over 50 characters"][0] == [f"l {'o' * 57}…", "x"]


def test_validation_and_test_are_never_cleaned(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "unicode_form": "NFKC",
        "min_characters": 2,
        "src_script": "Greek",
        "remove_identical": True,
    }
    cleaned = load(tmp_path, [("αβγ", "abc")], **fields)
    expected = {"src": ["v"], "tgt": ["w"]}, {"src": ["t"], "tgt": ["u"]}
    assert (cleaned.validation[:], cleaned.test[:]) == expected


def test_the_number_of_training_pairs_counts_those_that_stay(tmp_path: Path) -> None:
    pairs = [("a", "a"), ("b", "c")] * 30
    train = load(tmp_path, pairs, num_train_pairs=7, remove_identical=True).train
    assert train["src"][:] == ["b"] * 7
