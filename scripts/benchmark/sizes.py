"""The two models that are measured, and how much arithmetic they need."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Size:
    """A Transformer with as many layers in the encoder as in the decoder."""

    name: str
    d_model: int
    num_heads: int
    d_ff: int
    num_layers: int


SIZES = {
    "tiny": Size("tiny", 64, 4, 128, 2),
    "small": Size("small", 256, 4, 1024, 3),
    "base": Size("base", 512, 8, 2048, 6),
    "big": Size("big", 1024, 16, 4096, 6),
}


def training_flops(
    size: Size, vocabulary_size: int, src_lengths: Sequence[int], tgt_lengths: Sequence[int]
) -> float:
    """Floating-point operations that training on these sentences needs, real tokens only.

    Each weight of a matrix is multiplied and added once for each token it sees, which makes 2 operations
    forward, and twice as many backward: 6 for each weight and token. With D, F and V the widths of the
    model, of the feed-forward network and of the vocabulary, a source token sees, in each layer pair,

        4 D^2 (self-attention) + 2 D F (feed-forward) + 2 D^2 (keys and values of cross-attention)

    weights, and a target token ``4 D^2 + 2 D^2 (query and output of cross-attention) + 2 D F`` in each layer,
    and D V at the output. Attention multiplies each query with each key that it may see, and each weight
    with its value: 2 D for each such pair, of which there are S^2 in a source sentence, T (T + 1) / 2 in a
    target sentence, and T S between the two.
    """
    d, f = size.d_model, size.d_ff
    src, tgt = np.asarray(src_lengths, dtype=np.float64), np.asarray(tgt_lengths, dtype=np.float64)
    weights_seen = size.num_layers * ((6 * d * d + 2 * d * f) * (src.sum() + tgt.sum()))
    weights_seen += d * vocabulary_size * tgt.sum()
    pairs = (src**2).sum() + (tgt * (tgt + 1) / 2).sum() + (src * tgt).sum()
    return float(6 * (weights_seen + size.num_layers * 2 * d * pairs))
