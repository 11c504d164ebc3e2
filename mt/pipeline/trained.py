"""What a run has learnt, by one of its checkpoints: config, model and tokenizers, loaded and verified."""

import json
import math
from dataclasses import dataclass

from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.config.load import load_config
from mt.data.tokenizer import Tokenizer
from mt.errors import CheckpointError
from mt.pipeline.tokenizer_checksums import refuse_other_tokenizers
from mt.run_directory import RunDirectory
from mt.transformer.build import build_transformer
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
    checkpoint: str
    """The name of the checkpoint."""
    target_ratio: float
    """Target tokens by source tokens of its training pairs."""


def load_trained(run: RunDirectory, checkpoint: str) -> Trained:
    """Load a run's model, on the CPU, from the named checkpoint and from no other.

    Raises:
        RunError: If there is no such run.
        CheckpointError: If that checkpoint is missing or damaged.
    """
    run.require()
    config = load_config(run.config_file)
    store = CheckpointStore(run.checkpoints_dir)
    # First of all: a run that ended before its first checkpoint may lack all else too.
    found = store.require(checkpoint)
    tokenizers = Tokenizer.load(run.src_tokenizer_file), Tokenizer.load(run.tgt_tokenizer_file)
    refuse_other_tokenizers(run, found)
    model = build_model(config, *tokenizers)
    try:
        model.load_weights(store.load_model(found))
    except ValueError as error:
        raise CheckpointError(f"{found.folder} does not fit {run.config_file}: {error}.") from error
    return Trained(config, model, *tokenizers, found.name, _target_ratio(run))


def _target_ratio(run: RunDirectory) -> float:
    """As `prepare` wrote it down; 1 where it did not, or somebody else has written there."""
    try:
        ratio = json.loads(run.corpus_file.read_text(encoding="utf-8"))["target_ratio"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return 1.0
    return ratio if isinstance(ratio, float) and 0 < ratio < math.inf else 1.0
