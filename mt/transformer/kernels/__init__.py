"""Fast forms of plain operations, each with the signature of the plain one and perhaps more arguments.

Only `sampled_softmax` has no plain form: it approximates the softmax over all entries.
"""

from mt.transformer.kernels.attention import Mask, attention, masks_for_kernel
from mt.transformer.kernels.cross_entropy import (
    FusedLosses,
    product_dtype,
    r_drop_loss,
    smoothed_cross_entropy,
)
from mt.transformer.kernels.dropout import Dropout
from mt.transformer.kernels.feed_forward import feed_forward
from mt.transformer.kernels.linear import Linear
from mt.transformer.kernels.sampled_softmax import sampled_softmax

__all__ = ["Dropout", "FusedLosses", "Linear", "Mask", "attention", "feed_forward", "masks_for_kernel"]
__all__ += ["product_dtype", "r_drop_loss", "sampled_softmax", "smoothed_cross_entropy"]
