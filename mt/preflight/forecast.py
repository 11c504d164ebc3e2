"""How long a run will be, given its limits, and warnings about what may not go as intended."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from mt.config.config import Config
from mt.config.training import ScheduleConfig
from mt.display import counted, size
from mt.preflight.rule import FEW_WORDS, MOST_UNKNOWN_OF_FEW
from mt.training.schedule import learning_rate

FEWEST_PAIRS = 100
MOST_UNKNOWN = 0.1
LOWEST_CEILING = 95.0
MOST_DROPPED = 0.05
MOST_VALIDATING = 1 / 3
# The check itself causes a load of one per core.
MOST_LOAD = 2
# On an idle machine, the training thread runs on a processor nearly all the time.
LEAST_PROCESSOR_SHARE = 0.8
LARGER_VOCABULARY = (
    "Use subwords (tokenizer.kind: bpe), lower tokenizer.min_frequency, or raise tokenizer.max_size."
)
# The share of the peak learning rate below which a cosine counts as finished.
HARDLY_ANY = 0.01


@dataclass(frozen=True)
class Pace:
    """What was measured or counted before the run."""

    steps_per_epoch: float
    target_tokens_per_epoch: float
    tokens_per_second: float
    """Target tokens, not counting padding."""
    epoch_seconds: float
    """The time that an epoch takes to begin."""
    validation_seconds: float
    """The time that one validation takes."""

    @property
    def seconds_per_step(self) -> float:
        """The time of an average step, including its share of the work that is done once an epoch."""
        on_batches = self.target_tokens_per_epoch / self.tokens_per_second
        return (on_batches + self.epoch_seconds) / self.steps_per_epoch

    def at(self, tokens_per_second: float) -> Self:
        """This pace at another training speed, with validation faster or slower by the same factor."""
        return replace(
            self,
            tokens_per_second=tokens_per_second,
            validation_seconds=self.validation_seconds * self.tokens_per_second / tokens_per_second,
        )


@dataclass(frozen=True)
class Forecast:
    """The length of a run, computed from its limits and its pace."""

    num_steps: int
    ended_by: str
    """The config option that ends it."""
    is_certain: bool
    """False if only patience ends it; then this is the earliest end."""
    num_epochs: float
    num_validations: int
    num_checkpoints: int
    """The checkpoints saved at intervals; each new best is saved as well."""
    training_seconds: float
    validating_seconds: float

    @property
    def slack(self) -> float:
        """The factor by which the number of steps may be wrong."""
        factors = {"training.max_steps": 1.0, "validation.patience": 1.0, "training.max_minutes": 2.0}
        return factors.get(self.ended_by, 1.05)

    @property
    def seconds(self) -> float:
        """The time of the whole run."""
        return self.training_seconds + self.validating_seconds


def forecast(config: Config, pace: Pace) -> Forecast:
    """Work out which limit is reached first, and what happens until then."""
    training, validation = config.training, config.validation
    limits: list[tuple[float, str]] = []
    if training.max_steps is not None:
        limits.append((training.max_steps, "training.max_steps"))
    if training.max_epochs is not None:
        limits.append((training.max_epochs * pace.steps_per_epoch, "training.max_epochs"))
    if training.max_target_tokens is not None:
        epochs = training.max_target_tokens / pace.target_tokens_per_epoch
        limits.append((epochs * pace.steps_per_epoch, "training.max_target_tokens"))
    if training.max_minutes is not None:
        with_share_of_validation = pace.seconds_per_step + pace.validation_seconds / validation.every_steps
        limits.append((60 * training.max_minutes / with_share_of_validation, "training.max_minutes"))
    is_certain = bool(limits)
    if not limits:
        # The first validation always counts as an improvement.
        assert validation.patience is not None
        limits.append(((1 + validation.patience) * validation.every_steps, "validation.patience"))
    steps, ended_by = min(limits)
    num_steps = max(1, math.ceil(steps))
    num_epochs = num_steps / pace.steps_per_epoch
    num_validations = _times(num_steps, validation.every_steps)
    num_checkpoints = _times(num_steps, config.checkpoint.every_steps)
    if config.checkpoint.every_epochs is not None:
        num_checkpoints += int(num_epochs / config.checkpoint.every_epochs)
    return Forecast(
        num_steps,
        ended_by,
        is_certain,
        num_epochs,
        num_validations,
        num_checkpoints,
        num_steps * pace.seconds_per_step,
        num_validations * pace.validation_seconds,
    )


def warn_of_small_splits(sizes: Mapping[str, int]) -> Iterator[str]:
    """Warn about validation and test splits whose scores would be mostly chance."""
    for split, num_pairs in sizes.items():
        if num_pairs < FEWEST_PAIRS:
            yield (
                f"the {split} split has {counted(num_pairs, 'pair')}: below {FEWEST_PAIRS}, scores are "
                "mostly chance. Add pairs, or raise data.held_out_fraction if the split is held out."
            )


def warn_of_vocabulary(
    unknown: Mapping[str, float], ceilings: Mapping[str, float], num_words: float
) -> Iterator[str]:
    """Warn about words that cannot be read or written, and text that is not the same after decoding.

    Args:
        unknown: The share of unknown words, from 0 to 1, by the name of the text.
        ceilings: The highest BLEU that the vocabulary permits, by the name of the split.
        num_words: Running words per side of the training text; in a small text, more unknown words are
            acceptable.
    """
    where, share = max(unknown.items(), key=lambda item: item[1])
    if num_words <= FEW_WORDS and share <= MOST_UNKNOWN_OF_FEW:
        return
    if share > MOST_UNKNOWN:
        yield f"{share:.1%} of the words in the {where} are unknown. {LARGER_VOCABULARY}"
    where, bleu = min(ceilings.items(), key=lambda item: item[1])
    if bleu < LOWEST_CEILING:
        yield (
            f"with this vocabulary, a model that makes no mistakes scores {bleu:.2f} BLEU on the {where}. "
            f"{LARGER_VOCABULARY}"
        )


def warn_of_lengths(config: Config, num_too_long: int, num_pairs: int, longest: int) -> Iterator[str]:
    """Warn about pairs that are dropped, and batches that are larger than requested."""
    share = num_too_long / num_pairs
    if share > MOST_DROPPED:
        yield (
            f"data.max_length ({config.data.max_length}) drops {share:.1%} of the training pairs; the "
            f"longest sentence has {counted(longest, 'token')}. Raise it."
        )
    if config.training.batch_tokens < config.data.max_length:
        yield (
            f"training.batch_tokens ({config.training.batch_tokens}) is smaller than data.max_length "
            f"({config.data.max_length}): a longer pair becomes a batch that is larger than requested. "
            "Raise batch_tokens or lower max_length."
        )


def warn_of_validation_lengths(config: Config, share: float) -> Iterator[str]:
    """Warn if the validation loss leaves out a large ``share``, from 0 to 1, of the validation pairs."""
    if share > MOST_DROPPED:
        yield (
            f"{share:.1%} of the validation pairs are empty or have more tokens than data.max_length "
            f"({config.data.max_length}), so they do not count in the validation loss. Raise it, or use "
            "shorter pairs with text on both sides."
        )


def warn_of_schedule(config: Config, run: Forecast) -> Iterator[str]:
    """Warn about a learning rate that never reaches its peak, or reaches its end too late or too early."""
    schedule = config.schedule
    if run.is_certain and schedule.warmup_steps > run.num_steps * run.slack:
        yield (
            f"the warm-up (schedule.warmup_steps {schedule.warmup_steps:,}) is not over when the run ends at "
            f"step {run.num_steps:,}, so the learning rate never reaches its peak. Lower it, or raise "
            f"{run.ended_by}."
        )
    if schedule.kind == "cosine":
        yield from _warn_of_cosine(schedule, config.model.d_model, run)


def _warn_of_cosine(schedule: ScheduleConfig, d_model: int, run: Forecast) -> Iterator[str]:
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


def warn_of_validation(config: Config, run: Forecast) -> Iterator[str]:
    """Warn about validations that are too few to be useful, or take too much time."""
    validation = config.validation
    if run.num_validations == 1 and validation.every_steps > run.num_steps:
        yield (
            f"validation.every_steps ({validation.every_steps:,}) is more than the run's "
            f"{counted(run.num_steps, 'step')}: the only validation is at the end, with no best checkpoint "
            "to choose. Lower it."
        )
    elif run.validating_seconds > MOST_VALIDATING * run.seconds:
        yield (
            f"{run.validating_seconds / run.seconds:.0%} of the run's time goes into "
            f"{counted(run.num_validations, 'validation')}. Raise validation.every_steps, or validate on "
            "fewer pairs."
        )
    if run.is_certain and validation.patience is not None and validation.patience >= run.num_validations:
        yield (
            f"validation.patience ({validation.patience}) can never stop this run, which ends after "
            f"{counted(run.num_validations, 'validation')}. Lower it, or lower validation.every_steps."
        )


def warn_of_disk(needed: int, free: int, path: str) -> Iterator[str]:
    """Warn about checkpoints that will not fit on the disk."""
    if needed > free:
        yield (
            f"the checkpoints to come take up to {size(needed)}, but only {size(free)} are free where {path} "
            "will be. Free some space, or lower checkpoint.keep."
        )


def warn_of_other_work(load: float, cores: int, processor_share: float) -> Iterator[str]:
    """Warn about speeds that were measured while other programs were running."""
    if load > MOST_LOAD * cores or processor_share < LEAST_PROCESSOR_SHARE:
        yield (
            f"other programs keep this machine busy (load {load:.1f} on {cores} cores; training had a "
            f"processor for {processor_share:.0%} of the time), which lowers the measured speed. Measure "
            "again when the machine is idle."
        )


def _times(num_steps: int, every: int) -> int:
    """How often something happens that is done every ``every`` steps and at the last one."""
    return -(-num_steps // every)
