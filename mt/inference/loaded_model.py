"""What a run has learnt, by one of its checkpoints: config, model and tokenizers, loaded and verified."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from mt.checkpoint.record import Checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.config.load import load_config
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.errors import CheckpointError, RunError
from mt.regular_files import open_regular
from mt.run_directory import RunDirectory
from mt.special_tokens import BOS_ID, EOS_ID
from mt.transformer.build import build_transformer, without_memory
from mt.transformer.transformer import Transformer


def build_model(config: Config, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer) -> Transformer:
    """The model of this config for these vocabularies, with first weights."""
    return build_transformer(
        config.model,
        src_vocab_size=src_tokenizer.size,
        tgt_vocab_size=tgt_tokenizer.size,
        max_length=config.data.max_length,
    )


@dataclass(frozen=True)
class Trained:
    """What a run has learnt by one of its checkpoints."""

    config: Config
    model: Transformer
    src_tokenizer: Tokenizer
    tgt_tokenizer: Tokenizer
    checkpoint: Checkpoint
    """What the checkpoint says of itself."""
    target_ratio: float
    """Target tokens by source tokens of its training pairs."""


def load_trained(run: RunDirectory, checkpoint: str) -> Trained:
    """Load a run's model, on the CPU, from the named checkpoint and from no other.

    Training may go on meanwhile and remove the checkpoint: what is loaded is of one save.

    Raises:
        RunError: If there is no such run, or its config or tokenizers are not those of the checkpoint.
        CheckpointError: If that checkpoint is missing or damaged, or does not fit the config.
    """
    run.require()
    config = load_config(run.config_file)
    # First of all: a run that ended before its first checkpoint may lack all else too.
    with CheckpointStore(run.checkpoints_dir).hold(checkpoint) as held:
        found = held.checkpoint
        refuse_other_computation(run, config, found)
        tokenizers = Tokenizer.load(run.src_tokenizer_file), Tokenizer.load(run.tgt_tokenizer_file)
        refuse_other_tokenizers(run, found)
        try:
            model = _model_of_shapes(config, tokenizers, held.model_shapes())
        except ValueError as error:
            raise CheckpointError(f"{found.folder} does not fit {run.config_file}: {error}.") from error
        model.adopt_weights(held.load_model())
    return Trained(config, model, *tokenizers, found, _target_ratio(run))


def refuse_other_computation(run: RunDirectory, config: Config, checkpoint: Checkpoint) -> None:
    """Compare the run's config with what the checkpoint says of it: other heads would fit the same weights.

    Raises:
        RunError: If an option differs that decides what the weights compute.
    """
    now = config.computation()
    changed = [
        f"{key} is {now.get(key)} and was {then}"
        for key, then in checkpoint.computation.items()
        if now.get(key) != then
    ]
    if changed:
        raise RunError(
            f"{run.config_file} is not the config that {checkpoint.name} was trained with: "
            f"{', '.join(changed)}. Put the old values back, or train into a new directory with --run."
        )


def _model_of_shapes(
    config: Config, tokenizers: tuple[Tokenizer, Tokenizer], shapes: Mapping[str, tuple[int, ...]]
) -> Transformer:
    """The model of this config, without memory: what a config asks for may be larger than any memory.

    Raises:
        ValueError: If weights of these shapes do not fit it.
    """
    num_layers = config.model.num_encoder_layers + config.model.num_decoder_layers
    if num_layers > len(shapes):
        raise ValueError(f"it has {len(shapes):,} weights, too few for {num_layers:,} layers")
    try:
        with without_memory():
            model = build_model(config, *tokenizers)
    except RuntimeError as error:
        raise ValueError("the options in model: are too large for any machine") from error
    model.refuse_other_shapes(shapes)
    return model


@torch.inference_mode()
def refuse_overflow(trained: Trained) -> None:
    """Check that the shortest of all translations has finite logits; the model must be in evaluation mode.

    Raises:
        CheckpointError: If it has not: search would find nothing.
    """
    see_all = torch.ones(1, 1, 1, 1, dtype=torch.bool)
    logits = trained.model(torch.tensor([[EOS_ID]]), see_all, torch.tensor([[BOS_ID]]), see_all)
    if not logits.isfinite().all():
        raise CheckpointError(
            f"Checkpoint {trained.checkpoint.folder} cannot be used: its weights are so large that what they "
            "compute is NaN or infinite. Take another with --checkpoint."
        )


def _target_ratio(run: RunDirectory) -> float:
    """As `prepare` wrote it down; 1 where it did not, or somebody else has written there."""
    try:
        ratio = json.loads(run.read_corpus_report())["target_ratio"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return 1.0
    return ratio if isinstance(ratio, float) and 0 < ratio < math.inf else 1.0


def tokenizer_checksums(run: RunDirectory) -> dict[str, str]:
    """SHA-256 of the tokenizer files under ``src`` and ``tgt``, to be kept in each checkpoint.

    Raises:
        RunError: If one is missing or cannot be read.
    """
    checksums = {}
    for side, path in (("src", run.src_tokenizer_file), ("tgt", run.tgt_tokenizer_file)):
        try:
            with open_regular(path) as file:
                checksums[side] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise RunError(
                f"cannot read the tokenizer {path}: {error.strerror}. Restore it from a copy of the run, or "
                "train anew with --restart."
            ) from error
    return checksums


def refuse_other_tokenizers(run: RunDirectory, checkpoint: Checkpoint) -> None:
    """Compare the tokenizers in the run with what the checkpoint says of them.

    With another tokenizer of equal size all would run, and every word mean another.

    Raises:
        RunError: If one was changed since, is missing, or cannot be read.
    """
    found = tokenizer_checksums(run)
    # Checkpoints of the first versions do not say.
    changed = [side for side, checksum in checkpoint.tokenizers.items() if found.get(side) != checksum]
    if changed:
        raise RunError(
            f"the {' and '.join(changed)} tokenizer in {run.path} is not the one that {checkpoint.name} was "
            "trained with (its checksum differs). Restore it from a copy of the run, or train anew with "
            "--restart."
        )
