"""Loading a checkpoint of a run: config, model and tokenizers, each verified."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from mt.checkpoint.record import Checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.config.load import load_config
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.device import OVERFLOW_REMEDY, SearchPrecision
from mt.errors import CheckpointError, RunError
from mt.files import sha256
from mt.run_directory import RunDirectory
from mt.search.request import TeacherForced
from mt.special_tokens import BOS_ID, EOS_ID
from mt.transformer.build import build_transformer, without_memory
from mt.transformer.transformer import Transformer


def build_model(config: Config, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer) -> Transformer:
    """Build the model of this config for these vocabularies, with initial weights."""
    return build_transformer(
        config.model,
        src_vocab_size=src_tokenizer.size,
        tgt_vocab_size=tgt_tokenizer.size,
        max_length=config.data.max_length,
    )


@dataclass(frozen=True)
class LoadedModel:
    """A model from a checkpoint, with its tokenizers."""

    config: Config
    model: Transformer
    src_tokenizer: Tokenizer
    tgt_tokenizer: Tokenizer
    checkpoint: Checkpoint
    """The record of the checkpoint: its name, step and metrics."""
    target_ratio: float
    """Target tokens per source token in the training data."""


def load_model(run: RunDirectory, checkpoint: str) -> LoadedModel:
    """Load a run's model onto the CPU from the named checkpoint, never from another one."""
    run.require()
    config = load_config(run.config_file)
    # The checkpoint first: a run that ended before its first checkpoint may also lack the tokenizers.
    store = CheckpointStore(run.checkpoints_dir)
    found = store.require(checkpoint)
    check_computation(run, config, found)
    tokenizers = Tokenizer.load(run.src_tokenizer_file), Tokenizer.load(run.tgt_tokenizer_file)
    check_tokenizers(run, found)
    weights = store.load_model(found)
    try:
        model = _model_of_shapes(config, tokenizers, {name: tuple(weights[name].shape) for name in weights})
    except ValueError as error:
        raise CheckpointError(f"{found.folder} does not match {run.config_file}: {error}.") from error
    model.adopt_weights(weights)
    return LoadedModel(config, model, *tokenizers, found, _target_ratio(run))


def check_computation(run: RunDirectory, config: Config, checkpoint: Checkpoint) -> None:
    """Check that the options that determine what the weights compute are those of the checkpoint.

    A different number of heads, for example, would match the same weights.
    """
    now = config.computation()
    changed = [
        f"{key} is {now.get(key)}, but was {then}"
        for key, then in checkpoint.computation.items()
        if now.get(key) != then
    ]
    if changed:
        raise RunError(
            f"{run.config_file} is not the config that {checkpoint.name} was trained with: "
            f"{', '.join(changed)}. Only the old values match the checkpoint; "
            "or use another run directory with --run PATH."
        )


def _model_of_shapes(
    config: Config, tokenizers: tuple[Tokenizer, Tokenizer], shapes: Mapping[str, tuple[int, ...]]
) -> Transformer:
    """Build the model on the meta device, because a wrong config may need more memory than there is."""
    num_layers = config.model.num_encoder_layers + config.model.num_decoder_layers
    if num_layers > len(shapes):
        raise ValueError(f"it has {len(shapes):,} weights, too few for {num_layers:,} layers")
    try:
        with without_memory():
            model = build_model(config, *tokenizers)
    except RuntimeError as error:
        raise ValueError("the sizes in model: are too large for any machine") from error
    model.check_shapes(shapes)
    return model


@torch.inference_mode()
def check_finite_logits(
    model: TeacherForced, folder: Path, device: torch.device, precision: SearchPrecision = "float32"
) -> None:
    """Check that a model in evaluation mode computes finite logits for an empty sentence."""
    see_all = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device)
    src_ids, tgt_ids = (torch.tensor([[token]], device=device) for token in (EOS_ID, BOS_ID))
    if not model.forward(src_ids, see_all, tgt_ids, see_all).isfinite().all():
        raise CheckpointError(
            f"Checkpoint {folder} cannot be used: its weights are so large that the logits in {precision} "
            f"are NaN or infinite. {OVERFLOW_REMEDY}"
        )


def _target_ratio(run: RunDirectory) -> float:
    """The ratio in the corpus report; 1 if the report is missing or does not have a usable one."""
    try:
        ratio = json.loads(run.read_corpus_report())["target_ratio"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return 1.0
    return ratio if isinstance(ratio, float) and 0 < ratio < math.inf else 1.0


def tokenizer_checksums(run: RunDirectory) -> dict[str, str]:
    """Compute the SHA-256 of both tokenizer files, as ``src`` and ``tgt``; each checkpoint records them."""
    checksums = {}
    for side, path in (("src", run.src_tokenizer_file), ("tgt", run.tgt_tokenizer_file)):
        try:
            checksums[side] = sha256(path)
        except OSError as error:
            raise RunError(
                f"cannot read the tokenizer {path}: {error.strerror}. A copy of the run may still have it. "
                "Otherwise start over with --restart, which moves the old run aside."
            ) from error
    return checksums


def check_tokenizers(run: RunDirectory, checkpoint: Checkpoint) -> None:
    """Check that the run's tokenizers are those that the checkpoint was trained with.

    A different tokenizer of the same size would raise no other error, but all translations would be wrong.
    """
    found = tokenizer_checksums(run)
    # Checkpoints of the first versions do not record them.
    changed = [side for side, checksum in checkpoint.tokenizers.items() if found.get(side) != checksum]
    if changed:
        raise RunError(
            f"the {' and '.join(changed)} tokenizer in {run.path} is not the one that {checkpoint.name} was "
            "trained with (its checksum differs). A copy of the run may still have it. "
            "Otherwise start over with --restart, which moves the old run aside."
        )


def load_ensemble(runs: Sequence[RunDirectory], checkpoint: str) -> list[LoadedModel]:
    """Load the model of each run onto the CPU, as `load_model` does."""
    first, *others = [load_model(run, checkpoint) for run in runs]
    for run, other in zip(runs[1:], others, strict=True):
        _check_same_languages(runs[0], first, run, other)
    return [first, *others]


def _check_same_languages(
    run: RunDirectory, loaded: LoadedModel, other_run: RunDirectory, other: LoadedModel
) -> None:
    """Check that two models can form an ensemble."""
    # A shared vocabulary is the same in both directions, and one external tokenizer may serve many languages.
    languages, others = (f"{each.config.data.src} to {each.config.data.tgt}" for each in (loaded, other))
    if languages != others:
        raise RunError(
            f"{other_run.path} translates {others}, but {run.path} {languages}: an ensemble needs models of "
            "the same languages."
        )
    for side, one, another in (
        ("src", loaded.src_tokenizer, other.src_tokenizer),
        ("tgt", loaded.tgt_tokenizer, other.tgt_tokenizer),
    ):
        if one.to_json() != another.to_json():
            raise RunError(
                f"{other_run.path} has a different {side} vocabulary from {run.path}, but an ensemble needs "
                "the same: train it on the same corpus with the same tokenizer options."
            )
