"""The ``model`` and ``init_from`` sections: the shape of the Transformer, and its first weights."""

from typing import Literal, Self

from pydantic import Field, model_validator

from mt.config.section import Count, Fraction, Section, Text, TextOrNone, changeable

PARTS = ("encoder", "decoder", "src_embedding", "tgt_embedding", "output")


class ModelConfig(Section):
    """The shape of the Transformer."""

    d_model: int = Field(default=256, ge=2)
    """Width of the embeddings and hidden states."""

    num_heads: Count = 4
    """Attention heads; d_model must be a multiple of it."""

    num_encoder_layers: int = Field(default=3, ge=1, le=1000)
    """Layers of the encoder, which reads the source."""

    num_decoder_layers: int = Field(default=3, ge=1, le=1000)
    """Layers of the decoder, which writes the target."""

    d_ff: Count = 1024
    """Inner width of the position-wise feed-forward network; the paper's is 4 times d_model."""

    dropout: Fraction = 0.1
    """Dropout probability after each sub-layer and on the embeddings (section 5.4)."""

    attention_dropout: Fraction = 0.0
    """Dropout probability on the attention weights; the paper has none there."""

    activation_dropout: Fraction = 0.0
    """Dropout probability between the two feed-forward layers; the paper has none there."""

    word_dropout: Fraction = 0.0
    """Fraction of tokens on both sides whose embedding is zeroed (Gal and Ghahramani 2016); paper: none."""

    activation: Literal["relu", "gelu", "swish"] = "relu"
    """The activation function between the two feed-forward layers."""

    norm_first: bool = True
    """Apply layer norm before each sub-layer (more stable), not after it as in the paper."""

    bias: bool = True
    """Whether linear layers and layer norms have biases."""

    initial_std: float | None = Field(default=None, gt=0)
    """Standard deviation of the initial weights, such as 0.02; null: Xavier, and D ** -0.5 for embeddings."""

    share_embeddings: bool = False
    """One embedding for both languages; needs tokenizer.shared."""

    tie_output: bool = True
    """Whether the output projection shares the target embedding's weights (section 3.4)."""

    output_bias: bool = False
    """Whether the output projection adds a bias to the logit of each token; the paper has none."""

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.d_model % self.num_heads:
            fits = ", ".join(str(n) for n in range(1, min(self.d_model, 64) + 1) if self.d_model % n == 0)
            raise ValueError(
                f"model.d_model ({self.d_model}) must be a multiple of model.num_heads ({self.num_heads}), "
                f"because each head gets an equal slice. For this width choose num_heads from {fits}."
            )
        if self.d_model % 2:
            raise ValueError(f"model.d_model ({self.d_model}) must be even: it holds sines and cosines.")
        return self


class InitFromConfig(Section):
    """The run that this one begins from: with its weights, tokenizers and shape, and a new optimizer."""

    run: TextOrNone = None
    """The run directory of the model to begin from, such as runs/general; null: random weights."""

    checkpoint: Text = changeable("best")
    """Its checkpoint: best, latest or a name; training writes the name here."""

    parts: TextOrNone = None
    """Only these of encoder, decoder, src_embedding, tgt_embedding and output, with commas; null: all."""

    sha256: TextOrNone = changeable(None)
    """The checksum of the weights, which training writes here."""

    @property
    def chosen(self) -> tuple[str, ...]:
        """The parts to take; none without a run."""
        if self.run is None:
            return ()
        return PARTS if self.parts is None else tuple(part.strip() for part in self.parts.split(","))

    @property
    def sides(self) -> set[str]:
        """``src`` and ``tgt``, where the tokenizer is taken over, because a part belongs to its ids."""
        return {"src" if part in ("encoder", "src_embedding") else "tgt" for part in self.chosen}

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        for part in self.chosen:
            if part not in PARTS:
                raise ValueError(f"init_from.parts: '{part}' is not one of {', '.join(PARTS)}.")
        if self.run is None and self.parts is not None:
            raise ValueError("init_from.parts needs init_from.run, the run to take them from.")
        return self
