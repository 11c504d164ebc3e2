"""The alignment of the training pairs: computed once, that of a large corpus kept in the cache."""

import hashlib
from pathlib import Path

import numpy as np

from mt.data.alignment import ALIGNMENT_VERSION, Places, align
from mt.data.cache import recipe
from mt.data.dataset import EncodedPairs
from mt.pipeline.reuse import made_once

# Fewer are aligned in a few seconds.
_WORTH_KEEPING = 20_000
_FILE = "places"


def aligned_places(pairs: EncodedPairs) -> Places:
    """The place in the source of each target token, or a negative number: laid out as ``pairs.tgt.ids``."""

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
    return made_once(
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
