"""Loading a checkpoint of a run: config, model and tokenizers, each verified."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mt.checkpoint.record import Checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.config.load import load_config
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.errors import CheckpointError, RunError
from mt.files import sha256
from mt.inference.exported_folder import ModelFacts
from mt.run_directory import RunDirectory
from mt.transformer.build import build_transformer
from mt.transformer.transformer import Transformer
from mt.transformer.weights import adopt_weights, without_memory


def build_model(config: Config, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer) -> Transformer:
    """Build the model of this config for these vocabularies, with initial weights."""
    return build_transformer(
        config.model,
        src_vocab_size=src_tokenizer.size,
        tgt_vocab_size=tgt_tokenizer.size,
        max_length=config.data.max_length,
    )


@dataclass(frozen=True)
class ModelOfText:
    """A model with its config and its tokenizers."""

    config: Config
    model: Transformer
    src_tokenizer: Tokenizer
    tgt_tokenizer: Tokenizer
    facts: ModelFacts


@dataclass(frozen=True)
class LoadedModel(ModelOfText):
    """One from a checkpoint, with its record."""

    checkpoint: Checkpoint


def facts_of(config: Config, of_corpus: Mapping[str, Any], checkpoint: str = "") -> ModelFacts:
    """What translating with a model of this config needs to know, with `corpus_facts`."""
    data = config.data
    directions = config.data.directions
    return ModelFacts(
        data.src,
        data.tgt,
        data.max_length,
        config.copies_words,
        checkpoint=checkpoint,
        directions=directions if len(directions) > 1 else (),
        **of_corpus,
    )


def load_model(run: RunDirectory, checkpoint: str) -> LoadedModel:
    """Load a run's model onto the CPU from the named checkpoint, never from another one."""
    run.require()
    config = load_config(run.config_file)
    # The checkpoint first: a run that ended before its first checkpoint may also lack the tokenizers.
    store = CheckpointStore(run.checkpoints_dir)
    saved = store.require(checkpoint)
    check_computation(run, config, saved)
    tokenizers = Tokenizer.load(run.src_tokenizer_file), Tokenizer.load(run.tgt_tokenizer_file)
    check_tokenizers(run, saved)
    weights = store.load_model(saved)
    try:
        # Without memory, because a wrong config may need more than there is.
        with without_memory():
            model = build_model(config, *tokenizers)
        adopt_weights(model, weights)
    except (ValueError, RuntimeError) as error:
        raise CheckpointError(f"{saved.folder} does not match {run.config_file}: {error}.") from error
    return LoadedModel(config, model, *tokenizers, facts_of(config, corpus_facts(run), saved.name), saved)


def check_computation(run: RunDirectory, config: Config, checkpoint: Checkpoint) -> None:
    """Check that the config computes what the weights were trained for; other heads would fit them, too."""
    now = config.computation()
    for key, then in checkpoint.computation.items():
        if now.get(key) != then:
            raise RunError(
                f"{run.config_file} is not the config that {checkpoint.name} was trained with: {key} is "
                f"{now.get(key)}, but was {then}. Only the old values match the checkpoint; or use another "
                "run directory with --run PATH."
            )


def corpus_facts(run: RunDirectory) -> dict[str, Any]:
    """What the corpus report says about translating; of one that is missing, a target ratio of 1 only."""
    try:
        report = json.loads(run.read_corpus_report())
        return {
            "target_ratio": float(report["target_ratio"]),
            "example": str(report.get("example", "")),
            "abbreviations": [str(word) for word in report.get("abbreviations", [])],
            "copies_signs": report.get("lines_without_letters") == 0,
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return {"target_ratio": 1.0}


def tokenizer_checksums(run: RunDirectory) -> dict[str, str]:
    """Compute the SHA-256 of both tokenizer files, as ``src`` and ``tgt``; each checkpoint records them."""
    try:
        return {"src": sha256(run.src_tokenizer_file), "tgt": sha256(run.tgt_tokenizer_file)}
    except OSError as error:
        raise RunError(f"{error.filename}: {error.strerror}. A copy of the run may still have it.") from error


def check_tokenizers(run: RunDirectory, checkpoint: Checkpoint) -> None:
    """Check that the tokenizers are the checkpoint's; others of the same size would translate wrongly."""
    checksums = tokenizer_checksums(run)
    changed = [side for side, checksum in checkpoint.tokenizers.items() if checksums.get(side) != checksum]
    if changed:
        raise RunError(
            f"the {' and '.join(changed)} tokenizer in {run.path} is not the one that {checkpoint.name} was "
            "trained with (its checksum differs). A copy of the run may still have it. "
            "Otherwise start over with --restart, which moves the old run aside."
        )


def load_ensemble(runs: Sequence[RunDirectory], checkpoint: str) -> list[LoadedModel]:
    """Load the model of each run onto the CPU, as `load_model` does; all have the same vocabularies."""
    models = [load_model(run, checkpoint) for run in runs]
    # Two directions may share a vocabulary, and so may all languages of an external tokenizer.
    vocabularies = [(model.facts.src, model.facts.tgt, model.checkpoint.tokenizers) for model in models]
    for run, vocabulary in zip(runs, vocabularies, strict=True):
        if vocabulary != vocabularies[0]:
            raise RunError(
                f"{run.path} has other languages or vocabularies than {runs[0].path}, but an ensemble needs "
                "the same: train it on the same corpus with the same tokenizer options."
            )
    return models
