"""Words made unknown on both sides of training pairs, so that the model learns to carry such words over.

It has to write "unknown" where it reads "unknown", wherever that may be. Rare words alone teach this too
seldom.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mt.data.batches.dataset import Ids
from mt.special_tokens import UNK_ID

Places = npt.NDArray[np.integer]


def hide_words(
    src: Ids, tgt: Ids, places: Places, count: int, generator: np.random.Generator
) -> tuple[Ids, Ids]:
    """A pair in which up to ``count`` words, and what they are translated by, are UNK.

    Only words that are translated one by one are taken; of two that are drawn, the rarer, as names are rare.

    Args:
        src: Source ids, the more frequent words having the smaller ids.
        tgt: Target ids.
        places: For each target token its place in the source, or a negative number.
        count: How often to draw.
        generator: What is drawn from.
    """
    aligned = np.flatnonzero(places >= 0)
    links = aligned[np.bincount(places[aligned])[places[aligned]] == 1] if len(aligned) else aligned
    if not len(links):
        return src, tgt
    drawn = links[generator.integers(len(links), size=(count, 2))]
    rarer = drawn[np.arange(count), src[places[drawn]].argmax(1)]
    src, tgt = src.copy(), tgt.copy()
    src[places[rarer]] = UNK_ID
    tgt[rarer] = UNK_ID
    return src, tgt


def hide_words_of_some(
    src: Sequence[Ids],
    tgt: Sequence[Ids],
    places: Sequence[Places],
    share: float,
    generator: np.random.Generator,
) -> tuple[list[Ids], list[Ids]]:
    """`hide_words` in a ``share`` of pairs; of those that lose a word a ``share`` loses two, and so on."""
    counts = (generator.geometric(1 - share, size=len(src)) - 1).tolist()
    pairs = [
        hide_words(src_ids, tgt_ids, row, count, generator) if count else (src_ids, tgt_ids)
        for src_ids, tgt_ids, row, count in zip(src, tgt, places, counts, strict=True)
    ]
    return [src_ids for src_ids, _ in pairs], [tgt_ids for _, tgt_ids in pairs]
