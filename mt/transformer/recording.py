"""Records what every attention of a Transformer attends to, while it computes as usual."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from mt.masks import causal_mask
from mt.transformer.attention import MultiHeadAttention, attention_weights
from mt.transformer.decoder import DecoderLayer
from mt.transformer.encoder import EncoderLayer
from mt.transformer.kernels.attention import Mask
from mt.transformer.transformer import Transformer


@dataclass(frozen=True)
class RecordedAttention:
    """Attention weights by kind of attention: ``kind[layer][call]``, layers from the bottom up.

    The weights are those of `attention_weights`, in float32, without gradient and before dropout. Encoding
    and teacher-forced decoding are one call each.
    """

    encoder_self: list[list[Tensor]] = field(default_factory=list)
    """Self-attention of the encoder, ``(B, H, S, S)``."""
    decoder_self: list[list[Tensor]] = field(default_factory=list)
    """Masked self-attention of the decoder, ``(B, H, T, T)``."""
    cross: list[list[Tensor]] = field(default_factory=list)
    """Attention of the decoder over the source, ``(B, H, T, S)``."""


@contextmanager
def recording_attention(model: Transformer) -> Iterator[RecordedAttention]:
    """Record the attention weights of everything that ``model`` computes inside the ``with`` block.

    They are computed from the queries, keys and masks of its attention modules, in addition to the fused
    kernel, which does not return them.

        with recording_attention(model) as recorded:
            model(src_ids, src_mask, tgt_ids, tgt_mask)
        [weights] = recorded.cross[-1]  # (B, H, T, S), of the last layer
    """
    recorded = RecordedAttention()
    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, EncoderLayer):
                stack.enter_context(_record(module.self_attention, recorded.encoder_self))
            elif isinstance(module, DecoderLayer):
                stack.enter_context(_record(module.self_attention, recorded.decoder_self))
                stack.enter_context(_record(module.cross_attention, recorded.cross))
        yield recorded


def _record(attention: MultiHeadAttention, kind: list[list[Tensor]]) -> torch.utils.hooks.RemovableHandle:
    calls: list[Tensor] = []
    kind.append(calls)

    def hook(module: nn.Module, inputs: tuple[Tensor, Tensor, Tensor, Mask]) -> None:
        query, key, _, mask = inputs
        if isinstance(mask, str):
            mask = causal_mask(query.size(2), query.device)
        with torch.no_grad(), torch.autocast(query.device.type, enabled=False):
            calls.append(attention_weights(query.float(), key.float(), mask))

    return attention.scaled_dot_product.register_forward_pre_hook(hook)
