"""Encoded pairs against a plain loop over the same text, with a tokenizer simple enough to see through."""

from collections.abc import Sequence

import datasets
import numpy as np

from mt.data.batches.dataset import encode_pairs
from mt.data.batches.pairs import EncodedPairs
from mt.data.batches.sampler import Share
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.sides import Sides


class WordLengths(Tokenizer):
    """A word's id is 10 plus its number of letters."""

    def __init__(self) -> None:
        self.reserved = {"<to:fr>": 9}

    def to_json(self) -> str:
        return "lengths"

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[10 + len(word) for word in text.split()] for text in texts]


def encode(
    src: list[str], tgt: list[str], max_length: int | None = None
) -> tuple[EncodedPairs, dict[str, int]]:
    pairs = datasets.Dataset.from_dict({"src": src, "tgt": tgt})
    return encode_pairs(pairs, Sides(WordLengths(), WordLengths()), max_length=max_length)


def test_without_a_limit_every_pair_stays() -> None:
    src, tgt = ["a bb", "", "ccc " * 1000], ["dd", "e", ""]
    pairs, dropped = encode(src, tgt)
    sides = (WordLengths().encode_batch(side) for side in (src, tgt))
    assert as_lists(pairs) == list(zip(*sides, strict=True))
    assert pairs.target_ratio == (2 + 2 + 1) / (3 + 1 + 1001)
    assert dropped == {"empty": 0, "too long": 0}


def test_training_pairs_that_are_empty_or_too_long_are_dropped_and_counted() -> None:
    fits, too_long = "a b c", "a b c d"
    src = [fits, too_long, fits, "", "  ", fits, too_long, "a"]
    tgt = [fits, fits, too_long, fits, fits, "", "", "b"]
    pairs, dropped = encode(src, tgt, max_length=4)  # three words and EOS
    assert as_lists(pairs) == [([11, 11, 11], [11, 11, 11]), ([11], [11])]
    assert dropped == {"empty": 4, "too long": 2}
    none, dropped = encode(["", "a"], ["b", ""], max_length=4)
    assert (len(none), dropped["empty"]) == (0, 2)


def as_lists(pairs: EncodedPairs) -> list[tuple[list[int], list[int]]]:
    return [(src.tolist(), tgt.tolist()) for src, tgt in zip(pairs.src, pairs.tgt, strict=True)]


def test_more_pairs_than_are_encoded_at_a_time() -> None:
    generator = np.random.default_rng(2)
    texts = [
        [" ".join("x" * n for n in generator.integers(1, 9, k % 40)) for k in range(12_000)] for _ in range(2)
    ]
    pairs = datasets.Dataset.from_dict({"src": texts[0], "tgt": texts[1]})
    src, tgt = (WordLengths().encode_batch(side) for side in texts)
    expected = [(src[k], tgt[k]) for k in range(12_000) if 0 < k % 40 < 30]
    shares = [Share(5_000, 1.0), Share(7_000, 2.5)]
    encoded, dropped = encode_pairs(pairs, Sides(WordLengths(), WordLengths()), max_length=30, shares=shares)
    assert as_lists(encoded) == expected
    assert encoded.shares == (Share(3_625, 1.0), Share(5_075, 2.5))
    assert dropped == {"empty": 300, "too long": 3_000}
    for side in (encoded.src, encoded.tgt):
        assert [array.dtype for array in (side.ids, side.lengths)] == ["i4", "i4"]
        assert isinstance(side.ids.base, np.memmap)


def test_select_gives_the_pairs_asked_for() -> None:
    pairs, _ = encode(["a", "bb", "ccc"], ["dddd", "eeeee", "ffffff"])
    selected = EncodedPairs(*pairs.select(np.array([2, 0])))
    assert as_lists(selected) == [([13], [16]), ([11], [14])]
