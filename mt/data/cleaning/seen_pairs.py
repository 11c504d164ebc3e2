"""Finds duplicate pairs by 64-bit hashes: 8 bytes per pair, however long the texts."""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
import numpy.typing as npt


class SeenPairs:
    """The hashes of all pairs so far, in a few sorted arrays that are merged as they grow.

    In one of 370,000 corpora of ten million pairs, two different pairs have the same hash by chance.
    """

    def __init__(self) -> None:
        self._runs: list[npt.NDArray[np.uint64]] = []

    def add(self, pairs: Iterable[tuple[str, str]]) -> npt.NDArray[np.bool_]:
        """Add N pairs, and return a mask ``(N,)``: True where a pair is new."""
        digests = np.frombuffer(b"".join(_digest(*pair) for pair in pairs), dtype="<u8")
        hashes, first = np.unique(digests, return_index=True)
        is_new = np.ones(len(hashes), dtype=np.bool_)
        for run in self._runs:
            positions = np.minimum(np.searchsorted(run, hashes), len(run) - 1)
            is_new &= run[positions] != hashes
        self._keep(hashes[is_new])
        result = np.zeros(len(digests), dtype=np.bool_)
        result[first[is_new]] = True
        return result

    def _keep(self, run: npt.NDArray[np.uint64]) -> None:
        """Add a sorted array, merged with earlier ones until each is over twice as long as the next.

        The number of arrays to search and the number of times a hash is merged both grow as log(pairs).
        """
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.concatenate([self._runs.pop(), run])
            run.sort()
        if len(run):
            self._runs.append(run)


def _digest(src: str, tgt: str) -> bytes:
    encoded = src.encode()
    # The length distinguishes ("a", "bc") from ("ab", "c").
    return blake2b(b"%d:%b%b" % (len(encoded), encoded, tgt.encode()), digest_size=8).digest()
