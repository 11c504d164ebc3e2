"""The rule of `mt init`: which settings suit a corpus and a budget. docs/recipes.md gives its experiments."""

import math
from dataclasses import dataclass
from typing import Any

from mt.config.config import Config
from mt.config.model import ModelConfig

# Most running words of the training text, and entries of a BPE vocabulary shared by both languages.
VOCABULARIES = ((1e5, 2000), (2.5e5, 4000), (2e6, 8000), (1e7, 12_000), (5e7, 16_000), (math.inf, 32_000))
# A vocabulary of one language needs the 256 bytes and the frequent pairs, however small the corpus is. One
# with an unsegmented script must have room for subwords besides up to two thousand characters.
FEWEST_ENTRIES = 1000
FEWEST_ENTRIES_IF_UNSEGMENTED = 4000
# Up to this many running words per side, words with guided alignment are ahead of BPE, unless more than this
# share of the running words in a held-out text is unknown.
FEW_WORDS = 100_000
MOST_UNKNOWN_OF_FEW = 0.25
# The same for a short run: its passes in a time, and the limits of running words and of the unknown share.
FEW_PASSES = 40
FEW_WORDS_IN_SHORT_RUNS = 2_000_000
MOST_UNKNOWN_IN_SHORT_RUNS = 0.1
# The weight of the alignment loss for so few words, or for subwords, and the share of pairs with a word that
# stays.
ALIGNMENT_OF_FEW, KEEP_SHARE = 0.5, 0.1
# A word vocabulary counts as closed, as that of generated text, if at most this share of the held-out words
# is missing from it; the weight of its alignment loss.
MOST_UNKNOWN_OF_CLOSED, ALIGNMENT_OF_CLOSED = 0.005, 0.1
# The fewest and the most pairs in a held-out split: more than `mt check` requires, because choosing by a hash
# is not exact, and no more than a validation has time for.
FEWEST_HELD_OUT = 140
MOST_HELD_OUT = 1000
LARGEST_HELD_OUT_FRACTION = 0.15
# The most passes, and target tokens in a pass, for which subwords are aligned.
PASSES_OF_ALIGNED, TOKENS_OF_ALIGNED = 20, 3_000_000
# Up to so many tokens of the usual model, a run that begins with the lexicon has these layers of the encoder
# and the decoder, and compares about so many other entries with those of a batch.
LAYERS_OF_ALIGNED = ((500_000, 2, 1), (900_000, 3, 1))
ENTRIES_COMPARED = 1000
# The fewest passes of a run that also learns text as people write it, and the shares of its pairs that are
# changed.
PASSES_OF_CHANGED = 5
CHANGED = {"no_final_punctuation": 0.2, "joined": 0.05, "noise": 0.0005}
CHANGED_OF_SUBWORDS = {"upper": 0.07, "title": 0.05, "typos": 0.05}
# Most passes over the corpus, and dropout: sentences that are seen a few times are not memorised.
DROPOUTS = ((5, 0.0), (8, 0.1), (12, 0.2), (math.inf, 0.3))
# R-Drop makes a step this many times as long. It only pays off if the budget still has room for this many
# passes and target tokens.
R_DROP, R_DROP_COST, R_DROP_PASSES, R_DROP_TOKENS = 3.0, 2.0, 15, 5_000_000
# The weight decay of Muon runs with more passes than this: without it the matrices grow too large.
DECAY, DECAY_PASSES = 0.3, 8
# Most target tokens of a run, and tokens per batch. On a CPU, many small steps learn fastest, as long as they
# are not so small that Muon, which takes the same time in every step, dominates.
BATCHES = ((5_000_000, 1024), (40_000_000, 2048), (200_000_000, 4096), (math.inf, 8192))
# A pass over a small corpus still has at least this many steps, as long as batches have this many tokens.
STEPS_IN_A_PASS, SMALLEST_BATCH = 50, 256
# The batch size that the learning rates of the shapes are for, and by which power of it they grow.
USUAL_BATCH, RATE_BY_BATCH = 1024, 0.25
# A GPU gets batches twice as large as long as each target token then takes this much less time.
LEAST_GAIN = 1.2
# The share of the steps that is warm-up, and its maximum number of steps.
WARMUP_SHARE, MOST_WARMUP = 1 / 12, 4000
# The moving average of the weights covers about this share of the steps.
AVERAGED_SHARE = 0.04
# A model of half the width took half as long.
LEAST_COST = 0.5
# More passes than this over the same sentences do not help.
MOST_PASSES = 1000
# Budgets that are proposed, up to four hours; longer ones are whole hours.
ROUND_MINUTES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240)


@dataclass(frozen=True)
class Shape:
    """A model for runs and corpora of at least ``run_tokens`` and ``corpus_tokens`` target tokens."""

    run_tokens: float
    corpus_tokens: float
    model: ModelConfig
    learning_rate: float
    """The peak for batches of `USUAL_BATCH` tokens; it grows with the fourth root of the batch size."""
    muon: bool = False
    """Whether Muon updates the matrices, whose cost grows with the cube of the width."""
    run_passes: float = 0.0
    """If not 0, the fewest passes over the corpus; these and ``run_tokens`` are then those with R-Drop."""


def _small_model(d_model: int, num_heads: int = 4) -> ModelConfig:
    return ModelConfig(
        d_model=d_model, num_heads=num_heads, d_ff=4 * d_model, norm_first=False, initial_std=0.02
    )


def _deep_model(num_heads: int, d_ff: int) -> ModelConfig:
    return ModelConfig(
        d_model=512, num_heads=num_heads, d_ff=d_ff, num_encoder_layers=6, num_decoder_layers=6
    )


# The model whose speed decides what a budget can afford.
REFERENCE_MODEL = _small_model(256)
# The target tokens per second that it is trained on, roughly, by the kind of device: the settings chosen with
# these are timed, and chosen again, without timing others, if the machine is much faster or slower.
USUAL_RATES = {"cpu": 1500.0, "mps": 10_000.0, "cuda": 50_000.0}
# From small to large: for corpora that are soon memorised and runs of a minute, the usual model, a wider one
# that has to be kept from memorising by R-Drop, the one for IWSLT14, and the paper's base model.
SHAPES = (
    Shape(0, 0, _small_model(128), 2.8e-3, muon=True),
    Shape(200_000, 30_000, REFERENCE_MODEL, 2.4e-3, muon=True),
    Shape(7.5e6, 250_000, _small_model(384, num_heads=6), 2.2e-3, muon=True, run_passes=16),
    Shape(120e6, 2e6, _deep_model(num_heads=4, d_ff=1024), 5e-4),
    Shape(400e6, 20e6, _deep_model(num_heads=8, d_ff=2048), 4e-4),
)


Options = dict[str, dict[str, Any]]
"""Options of a config, by section."""


def has_r_drop(run_tokens: float, corpus_tokens: float, cost: float = 1.0) -> bool:
    """Whether a model of this cost gets R-Drop; a pass has ``corpus_tokens`` target tokens.

    In the time of the run, `REFERENCE_MODEL` can be trained on ``run_tokens`` without R-Drop.
    """
    return run_tokens >= cost * R_DROP_COST * max(R_DROP_TOKENS, R_DROP_PASSES * corpus_tokens)


def prefers_words(run_tokens: float, corpus_tokens: float) -> bool:
    """Whether so short a run learns more from words than from subwords."""
    return run_tokens <= FEW_PASSES * corpus_tokens or not has_r_drop(run_tokens, corpus_tokens)


def aligns_subwords(run_tokens: float, corpus_tokens: float) -> bool:
    """Whether guided alignment pays off: a model learns faster with it, but not better in the end."""
    is_short = run_tokens <= PASSES_OF_ALIGNED * corpus_tokens
    return is_short and not has_r_drop(run_tokens, corpus_tokens) and corpus_tokens <= TOKENS_OF_ALIGNED


def aligned(weight: float) -> Options:
    """The options of a run whose words are aligned: it also learns how to begin, and to keep words."""
    of_training = {"guided_alignment": weight, "lexicon_start": True, "keep_share": KEEP_SHARE}
    return {"training": of_training, "model": {"output_bias": True}}


def words_suffice(num_words: float, unknown_share: float, *, is_short: bool) -> bool:
    """Whether words are ahead of subwords: the text or the run is short, and not too many are unknown."""
    if num_words <= FEW_WORDS and unknown_share <= MOST_UNKNOWN_OF_FEW:
        return True
    return is_short and num_words <= FEW_WORDS_IN_SHORT_RUNS and unknown_share <= MOST_UNKNOWN_IN_SHORT_RUNS


def num_subwords(num_words: float, *, shared: bool, unsegmented: bool = False) -> int:
    """Entries of a BPE vocabulary for training text of ``num_words`` running words on each side."""
    entries = next(entries for most, entries in VOCABULARIES if num_words <= most)
    least = FEWEST_ENTRIES_IF_UNSEGMENTED if unsegmented else FEWEST_ENTRIES
    return max(least, entries if shared else entries // 2)


def choose(
    run_tokens: float, corpus_tokens: float, num_entries: int, longest: int, *, is_aligned: bool = False
) -> Options:
    """The options of a run of so many tokens of `REFERENCE_MODEL`; a sentence has at most ``longest``."""
    run_tokens = min(run_tokens, MOST_PASSES * corpus_tokens)
    # The largest that suits; the last one suits every corpus and run.
    for shape in reversed(SHAPES):
        model = _with_fewer_layers(shape.model, run_tokens) if is_aligned else shape.model
        is_short = model != shape.model
        interval = max(1, num_entries // ENTRIES_COMPARED) if is_short else 1
        cost = relative_cost(model, num_entries // interval)
        seen = run_tokens / (cost * R_DROP_COST if shape.run_passes else cost)
        fewest = max(shape.run_tokens, shape.run_passes * corpus_tokens)
        if seen >= fewest and corpus_tokens >= shape.corpus_tokens:
            break
    with_r_drop = has_r_drop(run_tokens, corpus_tokens, cost)
    tokens = run_tokens / (cost * R_DROP_COST if with_r_drop else cost)
    batch_tokens = batch_size(tokens, corpus_tokens, longest)
    peak = shape.learning_rate * (batch_tokens / USUAL_BATCH) ** RATE_BY_BATCH
    dropout = next(share for most, share in DROPOUTS if tokens <= most * corpus_tokens)
    return {
        "model": model.model_dump(exclude_unset=True) | {"dropout": dropout},
        "schedule": {"learning_rate": float(f"{peak:.2g}")},
        "training": {
            "batch_tokens": batch_tokens,
            "r_drop": R_DROP if with_r_drop else 0.0,
            "muon": shape.muon,
            # In steps of small batches, it would take a third of the time.
            "muon_interval": 2 if shape.muon and batch_tokens <= USUAL_BATCH else 1,
            "softmax_interval": interval,
            "ema_decay": ema_decay(0),  # Until the number of steps is known.
            "weight_decay": DECAY if shape.muon and tokens > DECAY_PASSES * corpus_tokens else 0.0,
        },
    }


def as_written(num_passes: float, *, has_words: bool) -> Options:
    """The shares of pairs that are changed to text as people write it; none where the budget is too short."""
    if num_passes < PASSES_OF_CHANGED:
        return {}
    shares = dict(CHANGED)
    if not has_words:
        shares |= CHANGED_OF_SUBWORDS
    return {"as_written": shares}


def _with_fewer_layers(model: ModelConfig, run_tokens: float) -> ModelConfig:
    """The model for a run that begins with the lexicon: if it is short, many cheap steps teach it more."""
    for most, encoder, decoder in LAYERS_OF_ALIGNED:
        if run_tokens <= most:
            layers = {"num_encoder_layers": encoder, "num_decoder_layers": decoder}
            return model.model_copy(update=layers)
    return model


def batch_size(run_tokens: float, corpus_tokens: float, longest: int) -> int:
    """Tokens of a batch in a run of so many target tokens, on a corpus of so many."""
    usual = next(size for most, size in BATCHES if run_tokens <= most)
    return max(SMALLEST_BATCH, longest, min(usual, largest_batch(corpus_tokens)))


def largest_batch(corpus_tokens: float) -> int:
    """The most tokens in a batch, for a pass of so many target tokens."""
    return int(corpus_tokens / STEPS_IN_A_PASS) // 64 * 64


def twice_the_batch(config: Config) -> Options:
    """The options of a run with batches that are twice as large."""
    rate = 2**RATE_BY_BATCH * config.schedule.learning_rate
    return {
        "training": {"batch_tokens": 2 * config.training.batch_tokens},
        "schedule": {"learning_rate": float(f"{rate:.2g}")},
    }


def relative_cost(model: ModelConfig, num_entries: int) -> float:
    """Roughly how many times as long as `REFERENCE_MODEL` this model takes for a target token."""

    def multiplications(shape: ModelConfig) -> int:
        attention, feed_forward = 4 * shape.d_model**2, 2 * shape.d_model * shape.d_ff
        encoder = shape.num_encoder_layers * (attention + feed_forward)
        decoder = shape.num_decoder_layers * (2 * attention + feed_forward)
        return encoder + decoder + shape.d_model * num_entries

    # Narrow models are slower than that.
    return max(LEAST_COST, multiplications(model) / multiplications(REFERENCE_MODEL))


def warmup_steps(num_steps: int) -> int:
    """Warm-up steps for a run of ``num_steps``: never more than a tenth of them."""
    return min(MOST_WARMUP, int(WARMUP_SHARE * num_steps))


def ema_decay(num_steps: int) -> float:
    """The decay of the moving average of the weights for a run of ``num_steps``."""
    return min(0.9995, round(1 - 1 / max(10, AVERAGED_SHARE * num_steps), 4))


def sensible_minutes(corpus_tokens: float, rate: float) -> float:
    """The time that suits a corpus if `REFERENCE_MODEL` is trained on ``rate`` target tokens per second."""
    # Fewer passes over a large corpus, where each of them teaches more.
    num_passes = min(45.0, max(3.0, 25 * math.sqrt(400_000 / corpus_tokens)))
    needed = num_passes * corpus_tokens / rate / 60
    return next((minutes for minutes in ROUND_MINUTES if minutes >= needed), 60 * math.ceil(needed / 60))
