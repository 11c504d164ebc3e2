"""`mt init`: look at a corpus and propose a config for it."""

import math
import textwrap
from dataclasses import dataclass

import numpy as np

from mt.config.config import Config
from mt.config.data import DataConfig
from mt.config.model import ModelConfig
from mt.config.sources import Delimiter, parse_columns
from mt.config.training import ScheduleConfig, TrainingConfig, ValidationConfig
from mt.config.write import config_to_yaml
from mt.data.batches.dataset import encode_pairs
from mt.data.corpus import Corpus, load_corpus
from mt.data.prepare import make_tokenizers, unsegmented_hint
from mt.errors import ConfigError
from mt.preflight.forecast import warn_of_small_splits
from mt.preflight.text import look_at, vocabulary_part

# The options that are decided first; every other option keeps its default.
KEYS = (
    "data.path",
    "data.name",
    "data.src",
    "data.tgt",
    "data.columns",
    "data.delimiter",
    "data.held_out_fraction",
    "data.max_length",
    "tokenizer.kind",
    "tokenizer.min_frequency",
    "tokenizer.max_size",
    "model.d_model",
    "model.num_heads",
    "model.num_encoder_layers",
    "model.num_decoder_layers",
    "model.d_ff",
    "model.dropout",
    "schedule.learning_rate",
    "schedule.warmup_steps",
    "training.precision",
    "training.batch_tokens",
    "training.max_epochs",
    "training.guided_alignment",
    "validation.every_steps",
    "validation.patience",
)


# More than `mt check` requires, because the hash that holds pairs out is not exact.
HELD_OUT = 140
LARGEST_HELD_OUT_FRACTION = 0.15
ALIGNMENT_WEIGHT = 0.1


@dataclass(frozen=True)
class Size:
    """A model size for corpora of up to so many pairs."""

    most_pairs: float
    model: ModelConfig
    learning_rate: float
    warmup_steps: int
    max_epochs: int
    bpe_size: int
    """The size of a BPE vocabulary, if words are not enough."""


# Small corpora overfit, so they get a small model and much dropout; large ones get the paper's base model.
SIZES = (
    Size(20_000, ModelConfig(d_model=128, num_heads=4, d_ff=512, dropout=0.3), 2e-3, 500, 60, 4000),
    Size(1_000_000, ModelConfig(d_model=256, num_heads=4, d_ff=1024, dropout=0.2), 1e-3, 1000, 30, 8000),
    Size(
        math.inf,
        ModelConfig(
            d_model=512, num_heads=8, d_ff=2048, num_encoder_layers=6, num_decoder_layers=6, dropout=0.1
        ),
        7e-4,
        4000,
        20,
        32_000,
    ),
)


def propose_config(
    path: str,
    src: str,
    tgt: str,
    *,
    name: str | None = None,
    columns: str | None = None,
    delimiter: Delimiter = "auto",
) -> str:
    """A commented config for the corpus at ``path``, with a summary of the corpus at the top.

    Raises:
        ConfigError: If ``columns`` are not two.
        DataError: If there is no such corpus, or it cannot be used.
    """
    try:
        parse_columns("src,tgt" if columns is None else columns)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    data = DataConfig(path=path, src=src, tgt=tgt, name=name, columns=columns, delimiter=delimiter)
    corpus = load_corpus(data)
    if (fraction := _held_out_fraction(corpus)) > data.held_out_fraction:
        data = data.model_copy(update={"held_out_fraction": fraction})
        corpus = load_corpus(data)
    num_pairs = len(corpus.train)
    size = next(size for size in SIZES if num_pairs <= size.most_pairs)
    config = Config(
        data=data,
        model=size.model,
        schedule=ScheduleConfig(learning_rate=size.learning_rate, warmup_steps=size.warmup_steps),
        # Costs 2 % of the speed, and lets names and numbers be copied.
        training=TrainingConfig(
            precision="auto", max_epochs=size.max_epochs, guided_alignment=ALIGNMENT_WEIGHT
        ),
        validation=ValidationConfig(patience=8),
    )
    config, about_words = _choose_tokenizer(corpus, config, size.bpe_size)
    config, seen = _look_at_lengths(corpus, config)
    seen += about_words
    # The same warnings as those of `mt check`.
    sizes = {"validation": len(corpus.validation), "test": len(corpus.test)}
    seen += [warning[0].upper() + warning[1:] for warning in warn_of_small_splits(sizes)]
    head = [
        f"{path}: {num_pairs:,} training pairs, "
        f"{len(corpus.validation):,} validation, {len(corpus.test):,} test.",
        *seen,
        "Options that are not here keep their defaults; mt config lists them all.",
    ]
    comment = [line for text in head for line in textwrap.wrap(text, 100)]
    keys = _keys(config)
    return "".join(f"# {line}\n" for line in comment) + "\n" + config_to_yaml(config, keys=keys)


def _keys(config: Config) -> list[str]:
    """The options to write: those that users often change, and those that differ from their defaults."""
    is_word = config.tokenizer.kind == "word"
    left_out = {
        "data.name": config.data.name is None,
        "data.columns": config.data.columns is None,
        "data.delimiter": config.data.delimiter == "auto",
        "data.held_out_fraction": config.data.held_out_fraction
        == DataConfig.model_fields["held_out_fraction"].default,
        "tokenizer.max_size": is_word,
        "tokenizer.min_frequency": not is_word,
        "training.guided_alignment": not is_word,
    }
    return [key for key in KEYS if not left_out.get(key)]


def _held_out_fraction(corpus: Corpus) -> float:
    """The share of all pairs that makes a carved validation or test split large enough to score on."""
    splits = {"train": corpus.train, "validation": corpus.validation, "test": corpus.test}
    carved = [name for name, split in corpus.report.splits.by_name().items() if split.origin == "carved"]
    if not carved:
        return 0.0
    num_pairs = len(corpus.train) + sum(len(splits[name]) for name in carved)
    return min(LARGEST_HELD_OUT_FRACTION, round(HELD_OUT / num_pairs, 3))


def _choose_tokenizer(corpus: Corpus, config: Config, bpe_size: int) -> tuple[Config, list[str]]:
    """Choose words if the vocabulary contains nearly all of them, otherwise subwords, and say why.

    `mt check` uses the same figures, so that it does not warn of what is chosen here.
    """
    hint = unsegmented_hint(config, corpus.train)
    reasons = [hint] if hint else vocabulary_part(look_at(corpus, config)).warnings
    if not reasons:
        return config, []
    tokenizer = config.tokenizer.model_copy(update={"kind": "bpe", "max_size": bpe_size})
    # Subwords are never unknown, so that none has to be copied.
    training = config.training.model_copy(update={"guided_alignment": 0.0})
    why = "Words alone would not do: " + reasons[0].split(". ")[0] + ". Hence tokenizer.kind: bpe."
    return config.model_copy(update={"tokenizer": tokenizer, "training": training}), [why]


def _look_at_lengths(corpus: Corpus, config: Config) -> tuple[Config, list[str]]:
    """Choose what depends on the lengths and the number of sentences, and summarise them.

    All but the longest of a thousand pairs fit into data.max_length. An epoch has fifty steps or more, and at
    most a tenth of all steps are warm-up, so that a small corpus can be learnt too.
    """
    src_tokenizer, tgt_tokenizer = make_tokenizers(corpus.train, config)
    pairs, _ = encode_pairs(corpus.train, src_tokenizer, tgt_tokenizer, max_length=None)
    longest = np.maximum(pairs.src.lengths, pairs.tgt.lengths)
    fits_most = int(np.quantile(longest, 0.999))
    max_length = max(32, -(-fits_most // 16) * 16)
    num_tokens = int(pairs.tgt.lengths.sum())
    batch_tokens = min(4096, max(256, 2 ** int(math.log2(max(num_tokens // 50, 1)))))
    assert config.training.max_epochs is not None
    # A longer pair would become a batch by itself.
    batch_tokens = max(batch_tokens, max_length)
    num_steps = config.training.max_epochs * max(1, num_tokens // batch_tokens)
    tenth = max(1, num_steps // 10)
    changes: dict[str, dict[str, object]] = {
        "data": {"max_length": max_length},
        "schedule": {"warmup_steps": min(config.schedule.warmup_steps, tenth)},
        "training": {"batch_tokens": batch_tokens},
        "validation": {"every_steps": min(config.validation.every_steps, tenth)},
    }
    sections = {name: getattr(config, name).model_copy(update=change) for name, change in changes.items()}
    seen = [
        f"Tokens in a sentence: {pairs.src.lengths.mean():.1f} source, {pairs.tgt.lengths.mean():.1f} target "
        f"on average; 99.9 % of the pairs have at most {fits_most}.",
        f"Vocabulary: {src_tokenizer.size:,} source and {tgt_tokenizer.size:,} target entries.",
    ]
    return config.model_copy(update=sections), seen
