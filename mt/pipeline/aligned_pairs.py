"""The alignment of the training pairs; that of a large corpus is cached."""

import hashlib
from pathlib import Path

import numpy as np

from mt.data.alignment import ALIGNMENT_VERSION, Places, align
from mt.data.cache import recipe
from mt.data.dataset import EncodedPairs
from mt.pipeline.reuse import cached

# Fewer pairs are aligned in a few seconds.
_WORTH_KEEPING = 20_000
_FILE = "places"


def aligned_places(pairs: EncodedPairs) -> Places:
    """The source position of each target token, or -1, in the layout of ``pairs.tgt.ids``."""

    def make() -> Places:
        return np.concatenate(list(align(pairs)))

    def fill(folder: Path) -> None:
        with (folder / _FILE).open("wb") as file:
            for places in align(pairs):
                file.write(places.tobytes())

    def load(folder: Path) -> Places:
        return np.memmap(folder / _FILE, dtype=np.int16, mode="r")

    if len(pairs) < _WORTH_KEEPING:
        return make()
    return cached(
        {"what": "alignment", "ids": _digest(pairs), "recipe": recipe(ALIGNMENT_VERSION, "numpy")},
        fill,
        load,
        make,
    )


def _digest(pairs: EncodedPairs) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for side in (pairs.src, pairs.tgt):
        for array in (side.ids, side.offsets):
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
