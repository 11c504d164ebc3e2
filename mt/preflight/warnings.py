"""What may not go as intended in a run, each with a remedy: functions that yield sentences."""

from collections.abc import Iterator

from mt.config.config import Config
from mt.config.training import ScheduleConfig
from mt.data.corpus import Corpus
from mt.display import counted, size
from mt.preflight.forecast import Forecast
from mt.preflight.rule import LARGEST_HELD_OUT_FRACTION, words_suffice
from mt.preflight.text import Lengths, Vocabulary
from mt.training.schedule import learning_rate

FEWEST_PAIRS = 100
MOST_UNKNOWN = 0.1
LOWEST_CEILING = 95.0
MOST_DROPPED = 0.05
MOST_VALIDATING = 1 / 3
LARGER_VOCABULARY = (
    "Use subwords (tokenizer.kind: bpe), lower tokenizer.min_frequency, or raise tokenizer.max_size."
)
# The share of the peak learning rate below which a cosine counts as finished.
HARDLY_ANY = 0.01


def of_held_out_pairs(config: Config, corpus: Corpus) -> Iterator[str]:
    """Splits whose scores would be mostly chance, or that `mt evaluate` refuses for a missing target."""
    splits = corpus.report.splits
    for name, pairs, split in (
        ("validation", corpus.validation, splits.validation),
        ("test", corpus.test, splits.test),
    ):
        if len(pairs) < FEWEST_PAIRS:
            is_largest = config.data.held_out_fraction >= LARGEST_HELD_OUT_FRACTION
            can_grow = split.origin == "carved" and not is_largest
            more = "Add pairs, or raise data.held_out_fraction." if can_grow else "Add pairs."
            yield (
                f"the {name} split has {counted(len(pairs), 'pair')}: below {FEWEST_PAIRS}, scores are "
                f"mostly chance. {more}"
            )
        empty = [line for line, text in enumerate(pairs["tgt"], start=1) if not text.strip()]
        if empty:
            first = " is the first" if len(empty) > 1 else ""
            yield (
                f"the {name} split cannot be scored, because {counted(len(empty), 'target')} of it "
                f"{'are' if first else 'is'} empty: pair {empty[0]}{first}. Add a translation, or remove the "
                "pair."
            )


def of_vocabulary(config: Config, vocabulary: Vocabulary, *, bleu_is_always_0: bool) -> Iterator[str]:
    """Words that cannot be read or written, and text that is not the same after decoding.

    If words can be copied, those that the rule of `mt init` prefers to subwords are not warned of.
    """
    share, where = vocabulary.most_unknown
    if not words_suffice(vocabulary.num_words, share, is_short=config.copies_words):
        if share > MOST_UNKNOWN:
            yield f"{share:.1%} of the words in the {where} are unknown. {LARGER_VOCABULARY}"
        bleu, split = vocabulary.lowest_ceiling
        if bleu < LOWEST_CEILING:
            yield (
                f"with this vocabulary, a model that makes no mistakes scores {bleu:.2f} BLEU on the {split} "
                f"split. {LARGER_VOCABULARY}"
            )
    if config.validation.metric == "bleu" and bleu_is_always_0:
        yield (
            "BLEU is 0 for any translation of the validation split, because it counts sequences of four "
            "words and no target is that long. Set validation.metric=chrf, so that the best checkpoint can "
            "be found."
        )


def of_lengths(config: Config, lengths: Lengths) -> Iterator[str]:
    """Pairs that are dropped, and batches that are larger than requested."""
    max_length, batch_tokens = config.data.max_length, config.training.batch_tokens
    dropped = lengths.dropped["too long"] / lengths.num_pairs
    if dropped > MOST_DROPPED:
        yield (
            f"data.max_length ({max_length}) drops {dropped:.1%} of the training pairs; the longest sentence "
            f"has {counted(lengths.longest, 'token')}. Raise it."
        )
    if batch_tokens < max_length:
        yield (
            f"training.batch_tokens ({batch_tokens}) is smaller than data.max_length ({max_length}): a "
            "longer pair becomes a batch that is larger than requested. Raise batch_tokens or lower "
            "max_length."
        )


def of_validation_lengths(config: Config, left_out: float) -> Iterator[str]:
    """A large share, from 0 to 1, of the validation pairs without a validation loss."""
    if left_out > MOST_DROPPED:
        yield (
            f"{left_out:.1%} of the validation pairs are empty or have more tokens than data.max_length "
            f"({config.data.max_length}), so they do not count in the validation loss. Raise it, or use "
            "shorter pairs with text on both sides."
        )


def of_schedule(config: Config, run: Forecast) -> Iterator[str]:
    """A learning rate that never reaches its peak, or reaches its end too late or too early."""
    schedule = config.schedule
    if run.is_certain and schedule.warmup_steps > run.num_steps * run.slack:
        yield (
            f"the warm-up (schedule.warmup_steps {schedule.warmup_steps:,}) is not over when the run ends at "
            f"step {run.num_steps:,}, so the learning rate never reaches its peak. Lower it, or raise "
            f"{run.ended_by}."
        )
    if schedule.kind == "cosine":
        yield from _of_cosine(schedule, config.model.d_model, run)


def _of_cosine(schedule: ScheduleConfig, d_model: int, run: Forecast) -> Iterator[str]:
    assert schedule.total_steps is not None
    total, end = schedule.total_steps, run.num_steps
    left = learning_rate(end, schedule, d_model=d_model) / schedule.learning_rate
    if end > total * run.slack:
        about = "about" if run.is_certain else "at least"
        yield (
            f"the cosine schedule reaches zero at schedule.total_steps ({total:,}), but the run continues to "
            f"{about} step {end:,} ({run.ended_by}) without learning more. Raise the one or lower the other."
        )
    elif run.is_certain and total > end * run.slack and left > HARDLY_ANY:
        yield (
            f"the run ends at about step {end:,} ({run.ended_by}), before the cosine schedule reaches zero "
            f"at schedule.total_steps ({total:,}): the learning rate is still at {left:.0%} of its peak. "
            "Raise the one or lower the other."
        )


def of_validation(config: Config, run: Forecast) -> Iterator[str]:
    """Validations that are too few to be useful, or take too much time."""
    every, patience = config.validation.every_steps, config.validation.patience
    validations = counted(run.num_validations, "validation")
    if every > run.num_steps:
        yield (
            f"validation.every_steps ({every:,}) is more than the run's {counted(run.num_steps, 'step')}: "
            "the only validation is at the end, with no best checkpoint to choose. Lower it."
        )
    elif run.num_validations > 1 and run.validating_seconds > MOST_VALIDATING * run.seconds:
        yield (
            f"{run.validating_seconds / run.seconds:.0%} of the run's time goes into {validations}. Raise "
            "validation.every_steps, or validate on fewer pairs."
        )
    if run.is_certain and patience is not None and patience >= run.num_validations:
        yield (
            f"validation.patience ({patience}) can never stop this run, which ends after {validations}. "
            "Lower it, or lower validation.every_steps."
        )


def of_disk(needed: int, free: int, path: str) -> Iterator[str]:
    """Checkpoints that will not fit on the disk."""
    if needed > free:
        yield (
            f"the checkpoints to come take up to {size(needed)}, but only {size(free)} are free where {path} "
            "will be. Free some space, or lower checkpoint.keep."
        )
