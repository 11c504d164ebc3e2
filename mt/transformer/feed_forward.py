"""The position-wise feed-forward network (Vaswani et al. 2017, section 3.3)."""

from typing import Literal

from torch import Tensor, nn

from mt.transformer.kernels.dropout import Dropout
from mt.transformer.kernels.linear import Linear

Activation = Literal["relu", "gelu", "swish"]
ACTIVATIONS: dict[Activation, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "swish": nn.SiLU}


class FeedForward(nn.Module):
    """Two linear layers with an activation between them, applied to each position separately (equation 2)."""

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: Activation = "relu",
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.inner = Linear(d_model, d_ff, bias=bias)
        self.outer = Linear(d_ff, d_model, bias=bias)
        self.activation = ACTIVATIONS[activation]()
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position of ``(B, T, D)``; the shape stays the same."""
        return Linear.on_rows(self._transform, x)

    def _transform(self, rows: Tensor) -> Tensor:
        if isinstance(self.activation, nn.ReLU):
            hidden = self.inner(rows, relu=True)
        else:
            hidden = self.activation(self.inner(rows))
        output: Tensor = self.outer(self.dropout(hidden))
        return output
