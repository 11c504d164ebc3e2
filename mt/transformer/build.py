"""Builds a model and draws its initial weights: the only file in this folder that sees a config."""

from dataclasses import fields

from torch import nn

from mt.config.model import ModelConfig
from mt.transformer.decoder import Decoder
from mt.transformer.embedding import Embedding
from mt.transformer.encoder import Encoder
from mt.transformer.layer import LayerFactory
from mt.transformer.transformer import Transformer


def build_transformer(
    config: ModelConfig, *, src_vocab_size: int, tgt_vocab_size: int, max_length: int
) -> Transformer:
    """Build the model and draw its initial weights from torch's global generator.

    ``max_length`` is the number of tokens in the longest sentence, on either side.
    """
    # Each field of `LayerFactory` is an option of the same name.
    factory = LayerFactory(**{field.name: getattr(config, field.name) for field in fields(LayerFactory)})
    tgt_tokens = nn.Embedding(tgt_vocab_size, config.d_model)
    src_tokens = tgt_tokens if config.share_embeddings else nn.Embedding(src_vocab_size, config.d_model)
    model = Transformer(
        Encoder(factory, config.num_encoder_layers),
        Decoder(factory, config.num_decoder_layers),
        Embedding(src_tokens, max_length, config.dropout, config.word_dropout),
        Embedding(tgt_tokens, max_length, config.dropout, config.word_dropout),
        nn.Linear(config.d_model, tgt_vocab_size, bias=config.output_bias),
    )
    if config.tie_output:
        model.output.weight = tgt_tokens.weight
    initialise(model, config.initial_std)
    return model


def initialise(model: nn.Module, std: float | None) -> None:
    """Draw the initial weights.

    ==================  =====================================================================
    linear weights      Xavier uniform (Glorot and Bengio 2010), which roughly keeps the variance
    embeddings          normal with variance 1/D: times sqrt(D) they are about as large as the
                        positions that are added to them, and tied logits have a variance near 1
    biases              0
    layer norms         torch's default: gain 1, bias 0
    ==================  =====================================================================

    With ``std``, linear weights and embeddings are normal with this standard deviation instead.
    """
    for module in model.modules():
        # `kernels.Linear` is one, too.
        if isinstance(module, nn.Linear):
            if std:
                nn.init.normal_(module.weight, std=std)
            else:
                nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    # After the linear layers: a tied output projection is initialised as an embedding.
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=std or module.embedding_dim**-0.5)
