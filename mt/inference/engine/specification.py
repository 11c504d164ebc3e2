"""The folder that CTranslate2 loads, by its own specification of a Transformer."""

from pathlib import Path
from typing import cast

import numpy as np
from ctranslate2.specs import TransformerSpec, common_spec, transformer_spec
from torch import Tensor, nn

from mt.inference.exported_folder import ExportPrecision
from mt.inference.loaded_model import LoadedModel
from mt.transformer.decoder import DecoderLayer
from mt.transformer.embedding import positional_encoding
from mt.transformer.encoder import EncoderLayer

QUANTIZATIONS: dict[ExportPrecision, str] = {"float32": "float32", "bf16": "bfloat16", "int8": "int8"}
"""CTranslate2's names of our precisions."""


def write_ctranslate2(loaded: LoadedModel, folder: Path, precision: ExportPrecision) -> None:
    """Write a model, which is on the CPU and in float32, and its tokenizers into an existing folder."""
    model, config = loaded.model, loaded.config.model
    alignment_layer, alignment_heads = loaded.config.aligning_heads
    spec = TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.norm_first,
        activation=common_spec.Activation[config.activation.upper()],
        alignment_layer=alignment_layer,
        alignment_heads=alignment_heads,
    )
    # By default, there is no EOS after the source, and the epsilon is 1e-6.
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = nn.LayerNorm(1).eps
    for tokenizer, register, name in (
        (loaded.src_tokenizer, spec.register_source_vocabulary, "src_tokenizer.json"),
        (loaded.tgt_tokenizer, spec.register_target_vocabulary, "tgt_tokenizer.json"),
    ):
        register(tokenizer.tokens(range(tokenizer.size)))
        tokenizer.save(folder / name)
    spec.encoder.embeddings[0].weight = _array(model.src_embedding.tokens.weight)
    spec.decoder.embeddings.weight = _array(model.tgt_embedding.tokens.weight)
    _linear(spec.decoder.projection, model.output)
    # CTranslate2's own positions have all sines before all cosines, and count from 1.
    positions = _array(positional_encoding(loaded.config.data.max_length, config.d_model))
    for stack, written in ((model.encoder, spec.encoder), (model.decoder, spec.decoder)):
        written.position_encodings.encodings = positions
        if isinstance(stack.norm, nn.LayerNorm):
            _norm(written.layer_norm, stack.norm)
        for layer, written_layer in zip(stack.layers, written.layer, strict=True):
            _layer(written_layer, cast(EncoderLayer, layer))
    for layer, written_layer in zip(model.decoder.layers, spec.decoder.layer, strict=True):
        _cross_attention(written_layer, cast(DecoderLayer, layer))
    spec.validate()
    spec.optimize(quantization=QUANTIZATIONS[precision])
    spec.save(str(folder))


def _layer(spec: transformer_spec.TransformerEncoderLayerSpec, layer: EncoderLayer) -> None:
    attention = layer.self_attention
    _linear(spec.self_attention.linear[0], attention.query, attention.key, attention.value)
    _linear(spec.self_attention.linear[1], attention.output)
    _norm(spec.self_attention.layer_norm, layer.self_attention_residual.norm)
    _linear(spec.ffn.linear_0, layer.feed_forward.inner)
    _linear(spec.ffn.linear_1, layer.feed_forward.outer)
    _norm(spec.ffn.layer_norm, layer.feed_forward_residual.norm)


def _cross_attention(spec: transformer_spec.TransformerDecoderLayerSpec, layer: DecoderLayer) -> None:
    attention = layer.cross_attention
    _linear(spec.attention.linear[0], attention.query)
    _linear(spec.attention.linear[1], attention.key, attention.value)
    _linear(spec.attention.linear[2], attention.output)
    _norm(spec.attention.layer_norm, layer.cross_attention_residual.norm)


def _linear(spec: common_spec.LinearSpec, *layers: nn.Linear) -> None:
    spec.weight = np.concatenate([_array(layer.weight) for layer in layers])
    if all(layer.bias is not None for layer in layers):
        spec.bias = np.concatenate([_array(layer.bias) for layer in layers])


def _norm(spec: common_spec.LayerNormSpec, norm: nn.LayerNorm) -> None:
    spec.gamma = _array(norm.weight)
    spec.beta = np.zeros_like(spec.gamma) if norm.bias is None else _array(norm.bias)


def _array(weight: Tensor) -> np.ndarray:
    # A copy, because saving quantizes in place.
    array: np.ndarray = weight.detach().float().numpy().copy()
    return array
