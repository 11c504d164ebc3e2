"""The encoder (Vaswani et al. 2017, section 3.1)."""

from torch import Tensor, nn

from mt.transformer import kernels
from mt.transformer.layer import LayerFactory


class EncoderLayer(nn.Module):
    """Self-attention over the source, then a feed-forward network."""

    def __init__(self, factory: LayerFactory) -> None:
        super().__init__()
        self.self_attention = factory.attention()
        self.feed_forward = factory.feed_forward()
        self.self_attention_residual = factory.residual()
        self.feed_forward_residual = factory.residual()

    def forward(self, x: Tensor, src_mask: kernels.Mask) -> Tensor:
        """Encode ``(B, S, D)``, with a mask broadcastable to ``(B, H, S, S)``, as ``(B, S, D)``."""
        x = self.self_attention_residual(x, lambda h: self.self_attention(h, h, src_mask))
        output: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return output


class Encoder(nn.Module):
    """A stack of ``num_layers`` layers of the same shape."""

    def __init__(self, factory: LayerFactory, num_layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(factory) for _ in range(num_layers))
        self.norm = factory.final_norm()

    def forward(self, x: Tensor, src_mask: kernels.Mask) -> Tensor:
        """Encode the embedded source ``(B, S, D)`` as memory ``(B, S, D)``."""
        for layer in self.layers:
            x = layer(x, src_mask)
        memory: Tensor = self.norm(x)
        return memory
