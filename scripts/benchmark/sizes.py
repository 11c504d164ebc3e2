"""The models that are measured."""

from dataclasses import dataclass


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
