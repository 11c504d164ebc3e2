"""The ``model`` section: the shape of the Transformer."""

from typing import Literal, Self

from pydantic import Field, model_validator

from mt.config.section import Section


class ModelConfig(Section):
    """The sizes and variants of the Transformer (Vaswani et al. 2017, table 3)."""

    d_model: int = Field(default=256, ge=2)
    """Width of embeddings and of everything between the layers."""

    num_heads: int = Field(default=4, ge=1)
    """Attention heads; d_model must be a multiple of it."""

    num_encoder_layers: int = Field(default=3, ge=1)
    """Layers that read the source."""

    num_decoder_layers: int = Field(default=3, ge=1)
    """Layers that write the target."""

    d_ff: int = Field(default=1024, ge=1)
    """Inner width of the position-wise feed-forward network; the paper's is 4 times d_model."""

    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of zeros after each sub-layer and on the embeddings (section 5.4)."""

    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of zeros among the attention weights; the paper has none there."""

    activation_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of zeros between the two feed-forward layers; the paper has none there."""

    word_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of tokens on both sides whose embedding is zeros (Gal and Ghahramani 2016); not in the paper."""

    activation: Literal["relu", "gelu"] = "relu"
    """The non-linearity between the two feed-forward layers."""

    norm_first: bool = True
    """Layer norm before each sub-layer, which trains more steadily, instead of after it, as in the paper."""

    bias: bool = True
    """Biases in the linear layers and layer norms."""

    initial_std: float | None = Field(default=None, gt=0)
    """Standard deviation of the initial weights, such as 0.02; null: Xavier's, for embeddings D ** -0.5."""

    share_embeddings: bool = False
    """One embedding for both languages; needs tokenizer.shared."""

    tie_output: bool = True
    """The output projection uses the target embedding's weights (section 3.4)."""

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.d_model % self.num_heads:
            fits = ", ".join(str(n) for n in range(1, min(self.d_model, 64) + 1) if self.d_model % n == 0)
            raise ValueError(
                f"model.d_model ({self.d_model}) must be a multiple of model.num_heads ({self.num_heads}), "
                f"because each head gets an equal slice. For this width choose num_heads from {fits}."
            )
        if self.d_model % 2:
            raise ValueError(
                f"model.d_model ({self.d_model}) must be even, "
                "because positions are encoded as pairs of a sine and a cosine."
            )
        return self
