"""Which pairs were there before, from 64-bit hashes: 8 bytes a pair, however long the texts."""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
import numpy.typing as npt


class SeenPairs:
    """The hashes of all pairs so far, in a few sorted arrays that are merged as they grow.

    That two different pairs of ten million share a hash by chance happens in one corpus of 370,000.
    """

    def __init__(self) -> None:
        self._runs: list[npt.NDArray[np.uint64]] = []

    def add(self, pairs: Iterable[tuple[str, str]]) -> npt.NDArray[np.bool_]:
        """Remember ``pairs``, N of them, and give ``(N,)``: True where a pair was not there before."""
        digests = np.frombuffer(b"".join(_digest(*pair) for pair in pairs), dtype="<u8")
        hashes, first = np.unique(digests, return_index=True)
        is_new = np.ones(len(hashes), dtype=np.bool_)
        for run in self._runs:
            places = np.minimum(np.searchsorted(run, hashes), len(run) - 1)
            is_new &= run[places] != hashes
        self._keep(hashes[is_new])
        result = np.zeros(len(digests), dtype=np.bool_)
        result[first[is_new]] = True
        return result

    def _keep(self, run: npt.NDArray[np.uint64]) -> None:
        """Add a sorted array, merged with those before it until each is over twice as long as the next.

        So there are few arrays to be searched, and a hash is merged few times: both grow as log(pairs).
        """
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.concatenate([self._runs.pop(), run])
            run.sort()
        if len(run):
            self._runs.append(run)


def _digest(src: str, tgt: str) -> bytes:
    encoded = src.encode()
    # The length tells ("a", "bc") from ("ab", "c").
    return blake2b(b"%d:%b%b" % (len(encoded), encoded, tgt.encode()), digest_size=8).digest()
