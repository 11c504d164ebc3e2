"""The pairs of a split turned into ids, in files that are memory-mapped."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from datasets import Dataset

from mt.data.batches.pairs import EncodedPairs, EncodedSentences, mapped
from mt.data.batches.sampler import Share
from mt.data.cache import cached
from mt.data.chunks import tables_of
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.display import track
from mt.sides import Sides

_FACTS = "facts.json"
_FILES = ("src_ids", "src_lengths", "tgt_ids", "tgt_lengths", "rows")

DropCounts = dict[str, int]


def encode_pairs(
    pairs: Dataset,
    tokenizers: Sides[Tokenizer],
    *,
    max_length: int | None,
    shares: Sequence[Share] = (),
) -> tuple[EncodedPairs, DropCounts]:
    """Turn the text of a split into ids, and count what is dropped, if there is a ``max_length``; cached."""
    key = {
        "what": "ids and rows",
        "text": pairs._fingerprint,
        "shares": shares,
        "tokenizers": [hashlib.sha256(tokenizer.to_json().encode()).hexdigest() for tokenizer in tokenizers],
        "max_length": max_length,
    }

    def fill(folder: Path) -> int:
        write_pairs(folder, pairs, tokenizers, max_length, shares)
        return len(pairs)

    return cached(key, fill, load_pairs)


def write_pairs(
    folder: Path,
    pairs: Dataset,
    tokenizers: Sides[Tokenizer],
    max_length: int | None,
    shares: Sequence[Share],
) -> None:
    """Write the result of `encode_pairs` into an empty folder, in chunks."""
    dropped = {"empty": 0, "too long": 0}
    is_kept = np.ones(len(pairs), dtype=np.bool_)
    ends = np.cumsum([share.num_pairs for share in shares], dtype=np.int64)
    beginnings = [tokenizers.src.beginning(share.tgt, share.tag) for share in shares]
    beginnings.append([])
    start = 0
    with ExitStack() as stack:
        files = [stack.enter_context((folder / name).open("wb")) for name in _FILES]
        for table in track(tables_of(pairs), "encoding", unit="pairs", total=len(pairs), size=len):
            rows = slice(start, start + len(table))
            start = rows.stop
            numbers = np.searchsorted(ends, np.arange(rows.start, rows.stop), side="right")
            begins = [beginnings[number] for number in numbers]
            texts = Sides(table["src"].to_pylist(), table["tgt"].to_pylist())
            src, tgt = encode_texts(texts, tokenizers, begins)
            is_empty = np.minimum(src.lengths - [*map(len, begins)], tgt.lengths) == 1
            if max_length is not None:
                is_long = ~is_empty & (np.maximum(src.lengths, tgt.lengths) > max_length)
                dropped["empty"] += int(is_empty.sum())
                dropped["too long"] += int(is_long.sum())
                is_kept[rows] = ~(is_empty | is_long)
            kept = np.flatnonzero(is_kept[rows])
            src, tgt = (side.select(kept) for side in (src, tgt))
            arrays = src.ids, src.lengths, tgt.ids, tgt.lengths, (kept + rows.start).astype(np.int32)
            for file, array in zip(files, arrays, strict=True):
                # Not `tofile`, which loses up to 4,096 bytes on a full disk without an error.
                file.write(array.data)
    parts = np.split(is_kept, ends)
    kept_shares = []
    for share, part in zip(shares, parts, strict=False):
        kept_shares.append(share._replace(num_pairs=int(part.sum())))
    facts = {"dropped": dropped, "shares": kept_shares}
    (folder / _FACTS).write_text(json.dumps(facts), encoding="utf-8")


def encode_texts(
    texts: Sides[list[str]], tokenizers: Sides[Tokenizer], begins: Iterable[Sequence[int]]
) -> Sides[EncodedSentences]:
    """The ids of some pairs; each source begins with those of ``begins``, such as that of its direction."""
    src_ids = tokenizers.src.encode_batch(texts.src)
    for begin, ids in zip(begins, src_ids, strict=True):
        ids[:0] = begin
    tgt_ids = tokenizers.tgt.encode_batch(texts.tgt)
    return Sides(EncodedSentences.of(src_ids), EncodedSentences.of(tgt_ids))


def load_pairs(folder: Path) -> tuple[EncodedPairs, DropCounts]:
    """What `write_pairs` has written; the files are memory-mapped."""
    facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
    src_ids, src_lengths, tgt_ids, tgt_lengths, rows = (mapped(folder / name, np.int32) for name in _FILES)
    src = EncodedSentences(src_ids, src_lengths)
    tgt = EncodedSentences(tgt_ids, tgt_lengths)
    shares = tuple(Share(*share) for share in facts["shares"])
    return EncodedPairs(src, tgt, shares, rows), facts["dropped"]
