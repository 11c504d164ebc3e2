"""The pairs of a split turned into ids, in files that are memory-mapped."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import compress
from pathlib import Path
from tempfile import TemporaryDirectory

import datasets
import numpy as np
import numpy.typing as npt

from mt.data.batches.pairs import EncodedPairs, EncodedSentences, mapped, offsets_of
from mt.data.batches.sampler import Share
from mt.data.cache import MANY_PAIRS, cached
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.display import track

CHUNK_SIZE = 10_000
_FACTS = "facts.json"
_SIDES = ("src", "tgt")
_ARRAYS: dict[str, npt.DTypeLike] = {"ids": np.int32, "offsets": np.int64, "lengths": np.int32}

DropCounts = dict[str, int]


def encode_pairs(
    pairs: datasets.Dataset,
    *tokenizers: Tokenizer,
    max_length: int | None,
    shares: Sequence[Share] = (),
    fingerprint: str | None = None,
) -> tuple[EncodedPairs, DropCounts]:
    """Turn the text of a split into ids, and count what is dropped, if there is a ``max_length``.

    The ids of a large split whose text has a ``fingerprint`` are cached.
    """

    def fill(folder: Path) -> bool:
        write_pairs(folder, pairs, *tokenizers, max_length=max_length, shares=shares)
        return len(pairs) > MANY_PAIRS

    if fingerprint is None:
        with TemporaryDirectory() as folder:
            fill(Path(folder))
            return load_pairs(Path(folder))
    key = {
        "what": "ids",
        "text": fingerprint,
        "shares": shares,
        "tokenizers": [hashlib.sha256(tokenizer.to_json().encode()).hexdigest() for tokenizer in tokenizers],
        "max_length": max_length,
    }
    return cached(key, fill, load_pairs)


def write_pairs(
    folder: Path,
    pairs: datasets.Dataset,
    *tokenizers: Tokenizer,
    max_length: int | None,
    shares: Sequence[Share],
) -> None:
    """Write the result of `encode_pairs` into an empty folder, thousands of pairs at a time."""
    dropped = {"empty": 0, "too long": 0}
    is_kept = np.zeros(len(pairs), dtype=np.bool_)
    chunks = [range(len(pairs))[start : start + CHUNK_SIZE] for start in range(0, len(pairs), CHUNK_SIZE)]
    with ExitStack() as stack:
        files = [
            [stack.enter_context((folder / f"{side}_{name}").open("wb")) for name in ("ids", "lengths")]
            for side in _SIDES
        ]
        for rows in track(chunks, "encoding", unit="pairs", total=len(pairs), size=len):
            chunk = pairs[rows]
            src, tgt = (
                tokenizer.encode_batch(chunk[side])
                for side, tokenizer in zip(_SIDES, tokenizers, strict=True)
            )
            reasons = [_reason_to_drop(*pair, max_length) for pair in zip(src, tgt, strict=True)]
            for reason in dropped:
                dropped[reason] += reasons.count(reason)
            is_kept[rows] = [reason is None for reason in reasons]
            for (ids, lengths), sentences in zip(files, (src, tgt), strict=True):
                encoded = EncodedSentences.of([*compress(sentences, is_kept[rows])])
                ids.write(encoded.ids.data)
                lengths.write(encoded.lengths.data)
    for side in _SIDES:
        offsets_of(mapped(folder / f"{side}_lengths", np.int32) - 1).tofile(folder / f"{side}_offsets")
    parts = np.split(is_kept, np.cumsum([share.num_pairs for share in shares], dtype=np.int64))
    kept = [share._replace(num_pairs=int(part.sum())) for share, part in zip(shares, parts, strict=False)]
    facts = {"dropped": dropped, "shares": kept}
    (folder / _FACTS).write_text(json.dumps(facts), encoding="utf-8")


def load_pairs(folder: Path) -> tuple[EncodedPairs, DropCounts]:
    """What `write_pairs` has written; the files are memory-mapped."""
    facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
    src, tgt = (
        EncodedSentences(*(mapped(folder / f"{side}_{name}", kind) for name, kind in _ARRAYS.items()))
        for side in _SIDES
    )
    return EncodedPairs(src, tgt, tuple(Share(*share) for share in facts["shares"])), facts["dropped"]


def _reason_to_drop(src: list[int], tgt: list[int], max_length: int | None) -> str | None:
    if max_length is None:
        return None
    if not src or not tgt:
        return "empty"
    return "too long" if max(len(src), len(tgt)) + 1 > max_length else None
