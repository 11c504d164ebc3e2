"""Writes the weights of `mt` as a model of CTranslate2, in a process whose memory nobody counts."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tokenizers
from ctranslate2.specs import TransformerSpec, common_spec
from safetensors.numpy import load_file

from scripts.benchmark.session import Channel, Job, serve
from scripts.benchmark.sizes import Size

Weights = dict[str, np.ndarray]
_QKV = ("query", "key", "value")


def export(
    weights: Weights, size: Size, sides: Sequence[tokenizers.Tokenizer], max_length: int, folder: Path
) -> None:
    """Write the weights of `mt` as a model of CTranslate2."""
    spec = TransformerSpec.from_config(
        (size.num_layers, size.num_layers),
        size.num_heads,
        pre_norm=False,
        activation=common_spec.Activation.RELU,
    )
    # The source gets its EOS only if one says so, and the epsilon is 1e-6 unless one writes it.
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = 1e-5
    for side, register in zip(
        sides, (spec.register_source_vocabulary, spec.register_target_vocabulary), strict=True
    ):
        register([side.id_to_token(number) for number in range(side.get_vocab_size())])
    spec.encoder.embeddings[0].weight = weights["src_embedding.tokens.weight"]
    spec.decoder.embeddings.weight = weights["tgt_embedding.tokens.weight"]
    spec.decoder.projection.weight = weights["tgt_embedding.tokens.weight"]
    for name, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        # Its own table has all sines before all cosines, and counts from 1.
        stack.position_encodings.encodings = _sinusoids(max_length, size.d_model)
        for number, layer in enumerate(stack.layer):
            prefix = f"{name}.layers.{number}."
            attention = f"{prefix}self_attention."
            _linear(layer.self_attention.linear[0], weights, *(attention + part for part in _QKV))
            _linear(layer.self_attention.linear[1], weights, attention + "output")
            _norm(layer.self_attention.layer_norm, weights, prefix + "self_attention_residual.norm")
            if name == "decoder":
                attention = f"{prefix}cross_attention."
                _linear(layer.attention.linear[0], weights, attention + "query")
                _linear(layer.attention.linear[1], weights, attention + "key", attention + "value")
                _linear(layer.attention.linear[2], weights, attention + "output")
                _norm(layer.attention.layer_norm, weights, prefix + "cross_attention_residual.norm")
            _linear(layer.ffn.linear_0, weights, prefix + "feed_forward.inner")
            _linear(layer.ffn.linear_1, weights, prefix + "feed_forward.outer")
            _norm(layer.ffn.layer_norm, weights, prefix + "feed_forward_residual.norm")
    spec.validate()
    spec.optimize()
    folder.mkdir(exist_ok=True)
    spec.save(str(folder))


def _linear(spec: common_spec.LinearSpec, weights: Weights, *names: str) -> None:
    spec.weight = np.concatenate([weights[f"{name}.weight"] for name in names])
    spec.bias = np.concatenate([weights[f"{name}.bias"] for name in names])


def _norm(spec: common_spec.LayerNormSpec, weights: Weights, name: str) -> None:
    spec.gamma, spec.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]


def _sinusoids(num_positions: int, d_model: int) -> np.ndarray:
    angle = np.arange(num_positions)[:, None] * 10_000.0 ** (-np.arange(0, d_model, 2) / d_model)
    table = np.stack((np.sin(angle), np.cos(angle)), axis=-1)
    return table.reshape(num_positions, d_model).astype(np.float32)


def run(channel: Channel, job: Job) -> None:
    sides = [
        tokenizers.Tokenizer.from_file(str(job.folder / f"{side}_tokenizer.json")) for side in ("src", "tgt")
    ]
    weights = load_file(job.folder / "decoding.safetensors")
    export(weights, job.size, sides, job.workload.description.max_length, job.folder / "ctranslate2")
    serve(channel, {})
