"""Converts a checkpoint for CTranslate2, verifies it against torch, and decides on its precision; once."""

import logging
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from ctranslate2.specs import TransformerSpec, common_spec
from torch import Tensor, nn

from mt.checkpoint.record import MODEL
from mt.display import one_line
from mt.errors import EngineError, OverflowedLinesError, is_bug
from mt.files import locked, make_folder, new_folder, remove_leftovers
from mt.inference.engine.ctranslate2_engine import CTranslate2Engine, cpu_has_int8
from mt.inference.exported_folder import REFUSED, ExportPrecision, remove_stale, write_export_record
from mt.inference.loaded_model import LoadedModel, ModelOfText, load_model
from mt.inference.verify import bleu_of, compare_scores, translator_of, verification_pairs, verify
from mt.run_directory import RunDirectory
from mt.transformer.decoder import DecoderLayer
from mt.transformer.embedding import positional_encoding
from mt.transformer.encoder import EncoderLayer

LOG = logging.getLogger(__name__)

QUANTIZATIONS: dict[ExportPrecision, str] = {"float32": "float32", "bf16": "bfloat16", "int8": "int8"}
"""CTranslate2's names of our precisions."""
_FEWEST_VALIDATED = 100
"""The fewest validation sentences that decide on int8."""
_MOST_LOST_BY_INT8 = 0.3
"""How much less BLEU int8 may have than float32."""


def convert(run: RunDirectory, checkpoint: str) -> Path:
    """Convert a checkpoint, unless another process has just done that; return the folder of its engine."""
    loaded = load_model(run, checkpoint)
    folder = run.engine_dir / loaded.checkpoint.checksums[MODEL]
    make_folder(run.engine_dir)
    with locked(run.engine_dir):
        remove_leftovers(run.engine_dir)
        if folder.exists():
            return folder
        LOG.info("preparing the fast engine for %s, once", loaded.checkpoint.name)
        with new_folder(folder) as partial:
            try:
                LOG.info("%s", _make(partial, run, loaded))
            except (EngineError, OverflowedLinesError) as error:
                # Of the processor or the build: the next time may be better.
                if isinstance(error.__cause__, RuntimeError | ValueError):
                    raise
                LOG.warning("torch will translate with this checkpoint: %s", error)
                shutil.rmtree(partial)
                partial.mkdir()
                why = f"CTranslate2 does not translate as torch does: {error}"
                (partial / REFUSED).write_text(why, encoding="utf-8")
            except Exception as error:
                why = str(error) or type(error).__name__
                raise EngineError(f"preparing the fast engine failed: {why}") from error
    remove_stale(run)
    return folder


def _make(folder: Path, run: RunDirectory, loaded: LoadedModel) -> str:
    """Write and verify the model in each of its precisions; return what users are told."""

    def write(precision: ExportPrecision) -> None:
        (folder / precision).mkdir()
        write_model(write_ctranslate2, loaded, folder / precision, precision)
        write_export_record(folder / precision, loaded, "ctranslate2", run.name, precision)

    load = partial(CTranslate2Engine, folder / "float32", loaded.src_tokenizer, loaded.tgt_tokenizer)
    write("float32")
    exact = load(precision="float32")
    compare_scores(loaded, exact.score)
    pairs = verification_pairs(run)
    if pairs:
        verify(loaded, translator_of(loaded, exact).translate, pairs)
    if len(pairs) < _FEWEST_VALIDATED or not cpu_has_int8():
        return "verified against torch"
    before, after = (bleu_of(loaded, engine, pairs) for engine in (exact, load(precision="int8")))
    best: ExportPrecision = "int8" if before - after <= _MOST_LOST_BY_INT8 else "float32"
    if best == "int8":
        write("int8")
    return (
        f"verified against torch; on a CPU {best} is used: on {len(pairs)} validation sentences, "
        f"int8 changes BLEU by {after - before:+.2f}"
    )


def write_model(write: Callable[..., None], *arguments: Any) -> None:
    """Write a model for a library; a model whose code was changed may have parts that are not converted."""
    try:
        write(*arguments)
    except Exception as error:
        if not is_bug(error):
            raise
        why = one_line(f"{type(error).__name__}: {error}", 200)
        raise EngineError(
            f"the model has parts that are not converted ({why}); docs/change-the-model.md says which are."
        ) from error


def write_ctranslate2(loaded: ModelOfText, folder: Path, precision: ExportPrecision) -> None:
    """Write a model, which is on the CPU and in float32, and its tokenizers into an existing folder."""
    model = loaded.model
    config = loaded.config.model
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
    src = loaded.src_tokenizer
    tgt = loaded.tgt_tokenizer
    spec.register_source_vocabulary(src.tokens(range(src.size)))
    spec.register_target_vocabulary(tgt.tokens(range(tgt.size)))
    src.save(folder / "src_tokenizer.json")
    tgt.save(folder / "tgt_tokenizer.json")
    spec.encoder.embeddings[0].weight = _array(model.src_embedding.tokens.weight)
    spec.decoder.embeddings.weight = _array(model.tgt_embedding.tokens.weight)
    _linear(spec.decoder.projection, model.output)
    # CTranslate2's own positions have all sines before all cosines, and count from 1.
    positions = _array(positional_encoding(loaded.config.data.max_length, config.d_model))
    for stack, written in ((model.encoder, spec.encoder), (model.decoder, spec.decoder)):
        written.position_encodings.encodings = positions
        if config.norm_first:
            _norm(written.layer_norm, cast(nn.LayerNorm, stack.norm))
        for layer, written_layer in zip(stack.layers, written.layer, strict=True):
            _layer(written_layer, cast(EncoderLayer, layer))
    spec.validate()
    spec.optimize(quantization=QUANTIZATIONS[precision])
    spec.save(str(folder))


def _layer(spec: Any, layer: EncoderLayer) -> None:
    attention = layer.self_attention
    _linear(spec.self_attention.linear[0], attention.query, attention.key, attention.value)
    _linear(spec.self_attention.linear[1], attention.output)
    _norm(spec.self_attention.layer_norm, layer.self_attention_residual.norm)
    _linear(spec.ffn.linear_0, layer.feed_forward.inner)
    _linear(spec.ffn.linear_1, layer.feed_forward.outer)
    _norm(spec.ffn.layer_norm, layer.feed_forward_residual.norm)
    if isinstance(layer, DecoderLayer):
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
    return np.array(weight.detach().float().numpy())
