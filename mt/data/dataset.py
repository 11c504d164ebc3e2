"""Sentence pairs as ids: flat arrays and offsets, a few bytes a token however many sentences there are."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import datasets
import numpy as np
import numpy.typing as npt
from tqdm import tqdm

CHUNK_SIZE = 10_000

Ids = npt.NDArray[np.int32]


class TextEncoder(Protocol):
    """What is asked of a tokenizer here."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, with neither BOS nor EOS."""
        ...


@dataclass(frozen=True)
class EncodedSentences:
    """Raw ids of N sentences, laid end to end, with neither BOS nor EOS.

    Attributes:
        ids: ``(total,)`` int32.
        offsets: ``(N + 1,)`` int64; sentence i is ``ids[offsets[i]:offsets[i + 1]]``.
    """

    ids: Ids
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Ids:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def __iter__(self) -> Iterator[Ids]:
        return (self[i] for i in range(len(self)))

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """``(N,)`` tokens of each sentence, one end mark included."""
        return np.diff(self.offsets) + 1


@dataclass(frozen=True)
class EncodedPairs:
    """Sentence pairs of one split; ``tgt[i]`` translates ``src[i]``."""

    src: EncodedSentences
    tgt: EncodedSentences

    def __len__(self) -> int:
        return len(self.src)

    def select(self, indices: npt.NDArray[np.integer]) -> tuple[list[Ids], list[Ids]]:
        """Sources and targets at ``indices``, as `collate` takes them."""
        return [self.src[i] for i in indices], [self.tgt[i] for i in indices]


def encode_pairs(
    pairs: datasets.Dataset,
    src_tokenizer: TextEncoder,
    tgt_tokenizer: TextEncoder,
    *,
    max_length: int | None,
) -> tuple[EncodedPairs, dict[str, int]]:
    """Turn the text of a split into ids.

    Args:
        pairs: Rows with the columns ``src`` and ``tgt``.
        src_tokenizer: Encodes the sources.
        tgt_tokenizer: Encodes the targets.
        max_length: For training: drop pairs that are empty on a side, or longer than this on a side, the end
            mark counted. For validation and test: None, which drops nothing.

    Returns:
        The pairs that stay, in their order, and how many were dropped under "empty" and under "too long".
    """
    src_chunks: list[EncodedSentences] = []
    tgt_chunks: list[EncodedSentences] = []
    dropped = {"empty": 0, "too long": 0}
    with tqdm(total=len(pairs), desc="encoding", unit=" pairs", disable=None, leave=False) as progress:
        for start in range(0, len(pairs), CHUNK_SIZE):
            chunk = pairs[start : start + CHUNK_SIZE]
            src = src_tokenizer.encode_batch(chunk["src"])
            tgt = tgt_tokenizer.encode_batch(chunk["tgt"])
            progress.update(len(src))
            if max_length is not None:
                reasons = [_reason_to_drop(*pair, max_length) for pair in zip(src, tgt, strict=True)]
                for reason in dropped:
                    dropped[reason] += reasons.count(reason)
                src = [ids for ids, reason in zip(src, reasons, strict=True) if reason is None]
                tgt = [ids for ids, reason in zip(tgt, reasons, strict=True) if reason is None]
            src_chunks.append(_lay_end_to_end(src))
            tgt_chunks.append(_lay_end_to_end(tgt))
    return EncodedPairs(_join(src_chunks), _join(tgt_chunks)), dropped


def _reason_to_drop(src: list[int], tgt: list[int], max_length: int) -> str | None:
    if not src or not tgt:
        return "empty"
    if max(len(src), len(tgt)) + 1 > max_length:
        return "too long"
    return None


def _lay_end_to_end(sentences: list[list[int]]) -> EncodedSentences:
    offsets = np.cumsum([0, *map(len, sentences)], dtype=np.int64)
    ids = np.fromiter(chain.from_iterable(sentences), dtype=np.int32, count=int(offsets[-1]))
    return EncodedSentences(ids, offsets)


def _join(chunks: list[EncodedSentences]) -> EncodedSentences:
    lengths = [np.diff(chunk.offsets) for chunk in chunks]
    offsets = np.concatenate([[0], *lengths]).cumsum(dtype=np.int64)
    ids = np.concatenate([np.empty(0, dtype=np.int32), *(chunk.ids for chunk in chunks)])
    return EncodedSentences(ids, offsets)
