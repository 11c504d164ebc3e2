"""The residual connection and layer norm of every sub-layer (Vaswani et al. 2017, sections 3.1 and 5.4)."""

from collections.abc import Callable

from torch import Tensor, nn

from mt.transformer.dropout import Dropout


class Residual(nn.Module):
    """A residual connection around a sub-layer, with dropout and layer norm, before or after it.

    The paper uses post-norm. Pre-norm keeps the residual path free of norms from bottom to top, which makes
    training more stable (Xiong et al. 2020), and needs one more norm at the top of the stack.
    """

    def __init__(self, d_model: int, *, dropout: float, norm_first: bool, bias: bool = True) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.norm = nn.LayerNorm(d_model, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply ``sublayer``, which keeps the shape, and add its input ``(B, T, D)``: ``(B, T, D)``."""
        if self.norm_first:
            output: Tensor = x + self.dropout(sublayer(self.norm(x)))
        else:
            output = self.norm(x + self.dropout(sublayer(x)))
        return output
