"""The stack that reads the source (Vaswani et al. 2017, section 3.1)."""

from torch import Tensor, nn

from mt.transformer.layer import LayerShape


class EncoderLayer(nn.Module):
    """Self-attention over the source, then the feed-forward network."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.self_attention = shape.attention()
        self.feed_forward = shape.feed_forward()
        self.self_attention_residual = shape.residual()
        self.feed_forward_residual = shape.residual()

    def forward(self, x: Tensor, src_mask: Tensor | None) -> Tensor:
        """``(B, S, D)`` and a mask broadcastable to ``(B, H, S, S)`` -> ``(B, S, D)``."""
        x = self.self_attention_residual(x, lambda h: self.self_attention(h, h, src_mask))
        output: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return output


class Encoder(nn.Module):
    """``num_layers`` layers of the same shape, one on top of the other."""

    def __init__(self, shape: LayerShape, num_layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(shape) for _ in range(num_layers))
        self.norm = shape.final_norm()

    def forward(self, x: Tensor, src_mask: Tensor | None) -> Tensor:
        """Embedded source ``(B, S, D)`` -> memory ``(B, S, D)``."""
        for layer in self.layers:
            x = layer(x, src_mask)
        memory: Tensor = self.norm(x)
        return memory
