"""`mt init`: look at a corpus and propose a config for it."""

import math
import textwrap
from dataclasses import dataclass

import numpy as np

from mt.config.columns import Delimiter, parse_columns
from mt.config.config import Config
from mt.config.data import DataConfig
from mt.config.model import ModelConfig
from mt.config.training import ScheduleConfig, TrainingConfig, ValidationConfig
from mt.config.write import config_to_yaml
from mt.data.corpus import Corpus, load_corpus
from mt.data.dataset import encode_pairs
from mt.errors import ConfigError
from mt.pipeline.prepare import make_tokenizers, unsegmented_hint

# What a reader decides first; every other option keeps its default.
KEYS = (
    "data.path",
    "data.name",
    "data.src",
    "data.tgt",
    "data.columns",
    "data.delimiter",
    "data.max_length",
    "tokenizer.min_frequency",
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


# On fewer sentences, chance moves BLEU by several points.
FEWEST_HELD_OUT = 100


@dataclass(frozen=True)
class Size:
    """A model for corpora of up to so many pairs."""

    most_pairs: float
    model: ModelConfig
    learning_rate: float
    warmup_steps: int
    max_epochs: int


# Small corpora are learnt by heart, so they get a small model and much dropout; large ones the paper's base.
SIZES = (
    Size(20_000, ModelConfig(d_model=128, num_heads=4, d_ff=512, dropout=0.3), 2e-3, 500, 60),
    Size(1_000_000, ModelConfig(d_model=256, num_heads=4, d_ff=1024, dropout=0.2), 1e-3, 1000, 30),
    Size(
        math.inf,
        ModelConfig(
            d_model=512, num_heads=8, d_ff=2048, num_encoder_layers=6, num_decoder_layers=6, dropout=0.1
        ),
        7e-4,
        4000,
        20,
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
    """A commented config for the corpus at ``path``, with what was seen there at its head.

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
    num_pairs = len(corpus.train)
    size = next(size for size in SIZES if num_pairs <= size.most_pairs)
    config = Config(
        data=data,
        model=size.model,
        schedule=ScheduleConfig(learning_rate=size.learning_rate, warmup_steps=size.warmup_steps),
        # Costs two steps in a hundred, and names and numbers arrive.
        training=TrainingConfig(precision="auto", max_epochs=size.max_epochs, guided_alignment=0.1),
        validation=ValidationConfig(patience=8),
    )
    config, seen = _look_at_lengths(corpus, config)
    if hint := unsegmented_hint(config, corpus.train):
        seen += textwrap.wrap(f"{hint[0].upper()}{hint[1:]}.", width=100)
    num_held_out = min(len(corpus.validation), len(corpus.test))
    if num_held_out < FEWEST_HELD_OUT:
        seen.append(
            f"A score on {num_held_out} sentences says little: bring more, or raise data.held_out_fraction."
        )
    head = [
        f"# {path}: {num_pairs:,} training pairs, "
        f"{len(corpus.validation):,} validation, {len(corpus.test):,} test.",
        *(f"# {line}" for line in seen),
        "# Options that are not here keep their defaults; the run directory's config.yaml shows them all.",
    ]
    optional = {"data.name": name, "data.columns": columns, "data.delimiter": delimiter}
    keys = [key for key in KEYS if optional.get(key, key) not in (None, "auto")]
    return "\n".join(head) + "\n\n" + config_to_yaml(config, keys=keys)


def _look_at_lengths(corpus: Corpus, config: Config) -> tuple[Config, list[str]]:
    """Choose what depends on lengths and on how much there is, and say what was seen.

    All but the longest of a thousand pairs fit into data.max_length. An epoch has fifty steps or more, and of
    all steps a tenth at most are warm-up, so that a small corpus is learnt too.
    """
    src_tokenizer, tgt_tokenizer = make_tokenizers(corpus.train, config)
    pairs, _ = encode_pairs(corpus.train, src_tokenizer, tgt_tokenizer, max_length=None)
    longest = np.maximum(pairs.src.lengths, pairs.tgt.lengths)
    fits_most = int(np.quantile(longest, 0.999))
    max_length = max(32, -(-fits_most // 16) * 16)
    num_tokens = int(pairs.tgt.lengths.sum())
    batch_tokens = min(4096, max(256, 2 ** int(math.log2(max(num_tokens // 50, 1)))))
    assert config.training.max_epochs is not None
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
        f"Vocabulary: {src_tokenizer.size:,} source and {tgt_tokenizer.size:,} target words.",
    ]
    return config.model_copy(update=sections), seen
