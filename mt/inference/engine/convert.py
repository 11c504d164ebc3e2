"""Converts a checkpoint for CTranslate2, verifies it against torch, and decides on its precision; once."""

import logging
import random
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from ctranslate2.specs import TransformerSpec, common_spec
from sacrebleu.metrics.bleu import BLEU
from torch import Tensor, nn

from mt.checkpoint.record import MODEL
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.unsegmented_scripts import bleu_tokenizer
from mt.display import one_line
from mt.errors import EngineError, OverflowedLinesError, is_bug
from mt.files import locked, make_folder, new_folder, remove_leftovers
from mt.inference.engine.ctranslate2_engine import CTranslate2Engine, cpu_has_int8
from mt.inference.engines import Engine, Sentence
from mt.inference.exported_folder import REFUSED, ExportPrecision, remove_stale, write_export_record
from mt.inference.loaded_model import LoadedModel, load_model
from mt.inference.model_translator import ModelTranslator
from mt.inference.translator import Translator
from mt.inference.verification import verification_pairs
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam, Strategy
from mt.special_tokens import SPECIAL_TOKENS
from mt.transformer.decoder import DecoderLayer
from mt.transformer.embedding import positional_encoding
from mt.transformer.encoder import EncoderLayer

LOG = logging.getLogger(__name__)

QUANTIZATIONS: dict[ExportPrecision, str] = {"float32": "float32", "bf16": "bfloat16", "int8": "int8"}
"""CTranslate2's names of our precisions."""
_NUM_RANDOM, _RANDOM_LENGTH = 64, 30
_MAX_DIFFERENCE = 1e-4
"""The largest difference of a log-probability that rounding explains, absolute and relative."""
_FEWEST_VALIDATED = 100
"""The fewest validation sentences that decide on int8."""
_MOST_BLEU_LOST, _MOST_LOST_BY_INT8 = 1.0, 0.3
"""How much less BLEU a converted model may have than torch, and int8 than float32."""
STRATEGIES: dict[str, tuple[Strategy, int]] = {
    "greedy search": (None, 200), "beam of 5": (Beam(5, 1.0, "mean"), 50)
}  # fmt: skip
_MIN_SAME = 0.98
"""The share of sentences that must have the same translation; rounding decides a few near-ties otherwise."""
Translate = Callable[..., list[str]]
Score = Callable[[Sequence[Sentence]], list[list[float]]]


class Agreement(NamedTuple):
    """The translations of the run and of the converted model with one decoding strategy."""

    strategy: str
    num_sentences: int
    num_same: int
    our_bleu: float
    """BLEU of the translations by `mt translate`, except for copied words."""
    their_bleu: float


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
    sources, references = zip(*pairs, strict=True)
    engines = exact, load(precision="int8")
    before, after = (bleu(translator_of(loaded, each).translate(sources), references) for each in engines)
    is_good = before - after <= _MOST_LOST_BY_INT8
    if is_good:
        write("int8")
    return (
        f"verified against torch; on a CPU {'int8' if is_good else 'float32'} is used: on {len(pairs)} "
        f"validation sentences, int8 changes BLEU by {after - before:+.2f}"
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


def compare_scores(loaded: LoadedModel, score: Score) -> None:
    """Compare log-probabilities of random ids, which need no corpus, in float32."""
    drawn = random.Random(1)
    longest = min(_RANDOM_LENGTH, loaded.config.data.max_length - 1)

    def ids(tokenizer: Tokenizer) -> list[int]:
        return drawn.choices(range(len(SPECIAL_TOKENS), tokenizer.size), k=drawn.randint(1, longest))

    sentences = [
        Sentence(line, ids(loaded.src_tokenizer), ids(loaded.tgt_tokenizer)) for line in range(_NUM_RANDOM)
    ]
    ours, theirs = ModelTranslator(loaded).engine.score(sentences), score(sentences)
    expected, differences = np.concatenate(ours), np.abs(np.concatenate(ours) - np.concatenate(theirs))
    if not (differences <= _MAX_DIFFERENCE * (1 + np.abs(expected))).all():
        raise EngineError(
            f"the converted model computes something else: log-probabilities of random sentences differ by "
            f"{differences.max():.2g}. Was its code changed (docs/change-the-model.md)?"
        )


def verify(
    loaded: LoadedModel,
    exported: Translate,
    pairs: Sequence[tuple[str, str]],
    *,
    exact: Collection[str] = tuple(STRATEGIES),
) -> list[Agreement]:
    """Compare translations of validation sentences; ``exact`` names the strategies that must agree."""
    own = translator_of(loaded, ModelTranslator(loaded).engine)
    agreements = []
    for name, (strategy, most) in STRATEGIES.items():
        texts, references = zip(*pairs[:most], strict=True)
        ours, theirs = own.translate(texts, strategy=strategy), exported(texts, strategy=strategy)
        our_bleu, their_bleu = bleu(ours, references), bleu(theirs, references)
        differing = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
        agreements.append(Agreement(name, len(texts), len(texts) - len(differing), our_bleu, their_bleu))
        differs = name in exact and len(differing) > max(1, (1 - _MIN_SAME) * len(texts))
        if differs or our_bleu - their_bleu > _MOST_BLEU_LOST:
            raise EngineError(
                f"the exported model does not translate like the run: with {name}, {len(differing)} of "
                f"{len(texts)} sentences differ, such as {differing[0][0]!r}, exported {differing[0][1]!r}, "
                f"and BLEU changes from {our_bleu:.2f} to {their_bleu:.2f}. Nothing was kept. Export in "
                "float32; if that does not help, please report this."
            )
    return agreements


def translator_of(loaded: LoadedModel, engine: Engine) -> Translator:
    """Translates with an engine by the rules of a model; without copying, which not all libraries can."""
    facts = replace(loaded.facts, copies_words=False)
    return Translator(engine, facts, loaded.src_tokenizer, loaded.tgt_tokenizer)


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU, as `mt evaluate` computes it."""
    return float(BLEU(tokenize=bleu_tokenizer(references)).corpus_score([*hypotheses], [[*references]]).score)


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
    src, tgt = loaded.src_tokenizer, loaded.tgt_tokenizer
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
