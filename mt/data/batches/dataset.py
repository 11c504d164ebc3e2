"""The pairs of a split turned into ids, in memory or in files that are memory-mapped."""

import hashlib
import io
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import datasets
import numpy as np
import numpy.typing as npt

from mt.data.batches.pairs import EncodedPairs, EncodedSentences, mapped
from mt.data.batches.sampler import Share
from mt.data.cache import MANY_PAIRS, cached
from mt.data.corpus import Corpus
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.display import track

CHUNK_SIZE = 10_000
_FACTS = "facts.json"
_ARRAYS: dict[str, npt.DTypeLike] = {"ids": np.int32, "offsets": np.int64, "lengths": np.int32}

DropCounts = dict[str, int]


def cached_training_pairs(
    corpus: Corpus, tokenizers: tuple[Tokenizer, Tokenizer], *, max_length: int
) -> tuple[EncodedPairs, DropCounts]:
    """The result of `encode_pairs` for the training pairs; the ids of a large corpus are cached."""
    key = {
        "what": "ids",
        "text": corpus.report.splits.train.fingerprint,
        "shares": corpus.shares,
        "tokenizers": [hashlib.sha256(tokenizer.to_json().encode()).hexdigest() for tokenizer in tokenizers],
        "max_length": max_length,
    }

    def fill(folder: Path) -> bool:
        encode_pairs(corpus.train, *tokenizers, max_length=max_length, shares=corpus.shares, folder=folder)
        return len(corpus.train) > MANY_PAIRS

    return cached(key, fill, load_pairs)


def encode_pairs(
    pairs: datasets.Dataset,
    src_tokenizer: Tokenizer,
    tgt_tokenizer: Tokenizer,
    *,
    max_length: int | None,
    shares: Sequence[Share] = (),
    folder: Path | None = None,
) -> tuple[EncodedPairs, DropCounts]:
    """Turn the text of a split into ids; return the pairs kept and how many were "empty" and "too long".

    A pair is dropped that is longer than ``max_length`` on a side, including EOS; None drops nothing.
    ``shares`` are the sources that ``pairs`` come from. Ids are written to the empty ``folder``, for
    `load_pairs`; None keeps them in memory.
    """
    dropped = {"empty": 0, "too long": 0}
    ends = np.cumsum([share.num_pairs for share in shares], dtype=np.int64)
    num_kept = np.zeros(len(shares) + 1, dtype=np.int64)
    sides = closing(_Side(folder, "src")), closing(_Side(folder, "tgt"))
    chunks = [range(len(pairs))[start : start + CHUNK_SIZE] for start in range(0, len(pairs), CHUNK_SIZE)]
    with sides[0] as src_side, sides[1] as tgt_side:
        for rows in track(chunks, "encoding", unit="pairs", total=len(pairs), size=len):
            chunk = pairs[rows]
            src = src_tokenizer.encode_batch(chunk["src"])
            tgt = tgt_tokenizer.encode_batch(chunk["tgt"])
            kept_rows = np.array(rows)
            if max_length is not None:
                reasons = [_reason_to_drop(*pair, max_length) for pair in zip(src, tgt, strict=True)]
                for reason in dropped:
                    dropped[reason] += reasons.count(reason)
                src = [ids for ids, reason in zip(src, reasons, strict=True) if reason is None]
                tgt = [ids for ids, reason in zip(tgt, reasons, strict=True) if reason is None]
                kept_rows = kept_rows[[reason is None for reason in reasons]]
            num_kept += np.bincount(np.searchsorted(ends, kept_rows, side="right"), minlength=len(num_kept))
            src_side.append(src)
            tgt_side.append(tgt)
        kept = tuple(Share(num, share.weight) for num, share in zip(num_kept.tolist(), shares, strict=False))
        if folder is None:
            return EncodedPairs(src_side.in_memory(), tgt_side.in_memory(), kept), dropped
    facts = {"dropped": dropped, "shares": kept}
    (folder / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
    return load_pairs(folder)


def load_pairs(folder: Path) -> tuple[EncodedPairs, DropCounts]:
    """The result of the `encode_pairs` that filled ``folder``; the files are memory-mapped."""
    facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
    src, tgt = (
        EncodedSentences(*(mapped(folder / f"{side}_{name}", kind) for name, kind in _ARRAYS.items()))
        for side in ("src", "tgt")
    )
    return EncodedPairs(src, tgt, tuple(Share(*share) for share in facts["shares"])), facts["dropped"]


class _Side:
    """The arrays of `EncodedSentences`, appended to in files of a folder or in memory."""

    def __init__(self, folder: Path | None, side: str) -> None:
        self._files: list[BinaryIO] = [
            io.BytesIO() if folder is None else (folder / f"{side}_{name}").open("wb") for name in _ARRAYS
        ]
        self._total = 0
        self._files[1].write(np.zeros(1, dtype=np.int64).data)

    def append(self, sentences: Sequence[Sequence[int]]) -> None:
        """Add the ids of some sentences."""
        more = EncodedSentences.of(sentences)
        arrays: tuple[npt.NDArray[Any], ...] = (more.ids, more.offsets[1:] + self._total, more.lengths)
        for file, array in zip(self._files, arrays, strict=True):
            file.write(array.data)
        self._total += len(more.ids)

    def in_memory(self) -> EncodedSentences:
        contents = [file.getvalue() for file in self._files if isinstance(file, io.BytesIO)]
        return EncodedSentences(*map(np.frombuffer, contents, _ARRAYS.values()))

    def close(self) -> None:
        for file in self._files:
            file.close()


def _reason_to_drop(src: list[int], tgt: list[int], max_length: int) -> str | None:
    if not src or not tgt:
        return "empty"
    if max(len(src), len(tgt)) + 1 > max_length:
        return "too long"
    return None
