"""Encoded pairs against a plain loop over the same text, with a tokenizer simple enough to see through."""

from collections.abc import Sequence
from pathlib import Path

import datasets
import numpy as np
import pytest

from mt.data.batches import dataset
from mt.data.batches.dataset import EncodedPairs, EncodedSentences, encode_pairs, load_pairs
from mt.data.batches.sampler import Share
from mt.data.tokenizers.tokenizer import Tokenizer


class WordLengths(Tokenizer):
    """A word's id is 10 plus its number of letters."""

    def __init__(self) -> None:
        pass

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[10 + len(word) for word in text.split()] for text in texts]


def encode(
    src: list[str], tgt: list[str], max_length: int | None = None
) -> tuple[EncodedPairs, dict[str, int]]:
    pairs = datasets.Dataset.from_dict({"src": src, "tgt": tgt})
    return encode_pairs(pairs, WordLengths(), WordLengths(), max_length=max_length)


def test_without_a_limit_every_pair_stays() -> None:
    src, tgt = ["a bb", "", "ccc " * 1000], ["dd", "e", ""]
    pairs, dropped = encode(src, tgt)
    assert len(pairs) == 3
    assert [ids.tolist() for ids in pairs.src] == WordLengths().encode_batch(src)
    assert [ids.tolist() for ids in pairs.tgt] == WordLengths().encode_batch(tgt)
    assert dropped == {"empty": 0, "too long": 0}


def test_training_pairs_that_are_empty_or_too_long_are_dropped_and_counted() -> None:
    fits, too_long = "a b c", "a b c d"
    src = [fits, too_long, fits, "", "  ", fits, too_long, "a"]
    tgt = [fits, fits, too_long, fits, fits, "", "", "b"]
    pairs, dropped = encode(src, tgt, max_length=4)  # three words and EOS
    assert len(pairs) == 2
    assert [ids.tolist() for ids in pairs.tgt] == [[11, 11, 11], [11]]
    assert dropped == {"empty": 4, "too long": 2}


def test_lengths_include_eos() -> None:
    pairs, _ = encode(["a b", ""], ["c", "d e f"])
    assert pairs.src.lengths.tolist() == [3, 1]
    assert pairs.tgt.lengths.tolist() == [2, 4]


def test_chunks_leave_no_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    src, tgt = ([" ".join("x" * n for n in generator.integers(1, 9, k)) for k in range(25)] for _ in range(2))
    whole, dropped = encode(src, tgt, max_length=20)
    monkeypatch.setattr(dataset, "CHUNK_SIZE", 4)
    pieces, dropped_in_pieces = encode(src, tgt, max_length=20)
    assert dropped == dropped_in_pieces == {"empty": 1, "too long": 5}
    for one, other in [(whole.src, pieces.src), (whole.tgt, pieces.tgt)]:
        assert np.array_equal(one.ids, other.ids)
        assert np.array_equal(one.offsets, other.offsets)


def as_lists(pairs: EncodedPairs) -> list[tuple[list[int], list[int]]]:
    return [(src.tolist(), tgt.tolist()) for src, tgt in zip(pairs.src, pairs.tgt, strict=True)]


def test_in_files_they_are_what_they_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "CHUNK_SIZE", 7)
    generator = np.random.default_rng(2)
    texts = [[" ".join("x" * n for n in generator.integers(1, 9, k)) for k in range(40)] for _ in range(2)]
    pairs = datasets.Dataset.from_dict({"src": texts[0], "tgt": texts[1]})
    shares = [Share(15, 1.0), Share(25, 2.5)]

    def encode(folder: Path | None) -> tuple[EncodedPairs, dict[str, int]]:
        return encode_pairs(pairs, WordLengths(), WordLengths(), max_length=30, shares=shares, folder=folder)

    in_memory, dropped = encode(None)
    for in_files, dropped_there in (encode(tmp_path), load_pairs(tmp_path)):
        assert as_lists(in_files) == as_lists(in_memory)
        assert in_files.shares == in_memory.shares == (Share(14, 1.0), Share(15, 2.5))
        assert dropped_there == dropped == {"empty": 1, "too long": 10}
        for one, other in ((in_files.src, in_memory.src), (in_files.tgt, in_memory.tgt)):
            assert np.array_equal(one.offsets, other.offsets)
            assert np.array_equal(one.lengths, other.lengths)
            assert [array.dtype for array in (one.ids, one.offsets, one.lengths)] == ["i4", "i8", "i4"]
            assert isinstance(one.ids.base, np.memmap)


def test_files_of_no_pairs_can_be_loaded(tmp_path: Path) -> None:
    pairs = datasets.Dataset.from_dict({"src": ["", "a"], "tgt": ["b", ""]})
    encoded, dropped = encode_pairs(pairs, WordLengths(), WordLengths(), max_length=4, folder=tmp_path)
    assert len(encoded) == len(load_pairs(tmp_path)[0]) == 0
    assert dropped["empty"] == 2


def test_sentences_laid_end_to_end_are_what_they_were() -> None:
    sentences = [[5, 6], [], [7]]
    laid = EncodedSentences.of(sentences)
    assert [ids.tolist() for ids in laid] == sentences
    assert laid.lengths.tolist() == [3, 1, 2]


def test_an_empty_split_has_no_pairs() -> None:
    pairs, _ = encode([], [], max_length=4)
    assert len(pairs) == 0
    assert pairs.src.lengths.tolist() == []


def test_select_gives_the_pairs_asked_for() -> None:
    pairs, _ = encode(["a", "bb", "ccc"], ["dddd", "eeeee", "ffffff"])
    src, tgt = pairs.select(np.array([2, 0]))
    assert [ids.tolist() for ids in src] == [[13], [11]]
    assert [ids.tolist() for ids in tgt] == [[16], [14]]


def test_ids_take_four_bytes_a_token() -> None:
    pairs, _ = encode(["a b c"] * 100, ["d e"] * 100)
    assert pairs.src.ids.nbytes == 4 * 300


def test_no_progress_bar_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    encode(["a"] * 10, ["b"] * 10)
    assert capfd.readouterr() == ("", "")
