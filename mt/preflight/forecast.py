"""How long a run will be, given its limits and its pace, and what may not go as intended."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from unicodedata import is_normalized

from mt.config.config import Config
from mt.data.corpus import EVALUATION_SPLITS, Corpus
from mt.display import counted, size
from mt.preflight.rule import words_suffice
from mt.preflight.text import Text, Unknown, bleu_is_always_0
from mt.training.schedule import learning_rate

FEWEST_PAIRS = 100
MOST_UNKNOWN = 0.1
MOST_DROPPED = 0.05
MOST_VALIDATING = 1 / 3
# The share of the peak learning rate below which a cosine counts as finished.
HARDLY_ANY = 0.01


@dataclass(frozen=True)
class Pace:
    """What was measured or counted before the run."""

    steps_per_epoch: float
    target_tokens_per_epoch: float
    step_seconds: float
    """The time of an average step, including its share of the work that is done once an epoch."""
    validation_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    start_seconds: float = 0.0
    """The time from the start of the program to the first step, and from the last step to the end."""
    num_parameters: int = 0

    @property
    def pause_seconds(self) -> float:
        """The time of a validation with a checkpoint."""
        return self.validation_seconds + self.checkpoint_seconds


@dataclass(frozen=True)
class Forecast:
    """The length of a run, computed from its limits and its pace."""

    num_steps: int
    ended_by: str
    """The config option that ends it."""
    is_certain: bool
    """False if only patience ends it; then this is the earliest end."""
    num_validations: int
    num_checkpoints: int
    """The checkpoints saved at intervals; each new best is saved as well."""
    seconds: float
    validating_seconds: float

    @property
    def slack(self) -> float:
        """The factor by which the number of steps may be wrong."""
        factors = {"training.max_steps": 1.0, "validation.patience": 1.0, "training.max_minutes": 2.0}
        return factors.get(self.ended_by, 1.05)


def forecast(config: Config, pace: Pace) -> Forecast:
    """Work out which limit is reached first, and what happens until then."""
    validation = config.validation
    every = (validation.every_epochs or 0) * pace.steps_per_epoch or validation.every_steps
    seconds_per_step = pace.step_seconds + pace.validation_seconds / every
    steps_of = {"max_steps": 1.0, "max_epochs": pace.steps_per_epoch, "max_minutes": 60 / seconds_per_step}
    steps = {f"training.{name}": limit * steps_of[name] for name, limit in config.training.limits.items()}
    is_certain = bool(steps)
    if not steps:
        # The first validation always counts as an improvement.
        assert validation.patience is not None
        steps = {"validation.patience": (1 + validation.patience) * every}
    ended_by = min(steps, key=lambda name: steps[name])
    num_steps = max(1, math.ceil(steps[ended_by]))
    # At intervals, and at the last step.
    num_validations = math.ceil(num_steps / every)
    num_checkpoints = math.ceil(num_steps / config.checkpoint.every_steps)
    if config.checkpoint.every_epochs is not None:
        num_checkpoints += int(num_steps / pace.steps_per_epoch / config.checkpoint.every_epochs)
    pauses = num_validations * pace.validation_seconds + num_checkpoints * pace.checkpoint_seconds
    return Forecast(
        num_steps,
        ended_by,
        is_certain,
        num_validations,
        num_checkpoints,
        pace.start_seconds + num_steps * pace.step_seconds + pauses,
        num_validations * pace.validation_seconds,
    )


def warn_of_held_out_pairs(config: Config, corpus: Corpus) -> Iterator[str]:
    """Splits that say little, that `mt evaluate` refuses for a missing target, or that training has seen."""
    for name in EVALUATION_SPLITS:
        pairs, split = corpus.by_name()[name], corpus.report.splits[name]
        if len(pairs) < FEWEST_PAIRS:
            more = ", or raise data.held_out_fraction" if split.origin == "carved" else ""
            yield (
                f"the {name} split has {counted(len(pairs), 'pair')}: below {FEWEST_PAIRS}, scores are "
                f"mostly chance. Add pairs{more}."
            )
        empty = [line for line, text in enumerate(pairs["tgt"], start=1) if not text.strip()]
        if empty:
            yield (
                f"the {name} split cannot be scored, because it has {counted(len(empty), 'empty target')}, "
                f"the first in pair {empty[0]}. Add a translation, or remove the pair."
            )
        decomposed = sum(not is_normalized("NFC", text) for text in pairs["tgt"])
        if decomposed and config.cleaning.unicode_form != "none":
            yield (
                f"{counted(decomposed, 'reference')} of the {name} split are not in Unicode's form NFC, as "
                "translations are (cleaning.unicode_form): equal words count as different. Write them in NFC."
            )
    if corpus.report.has_leaked:
        yield corpus.report.leak_sentence


def warn_of_vocabulary(config: Config, unknown: Mapping[str, Unknown], num_words: float) -> Iterator[str]:
    """Words that cannot be read or written."""
    where = max(unknown, key=lambda name: unknown[name].share)
    share = unknown[where].share
    # Where words suffice, `mt init` would choose them as well.
    if share > MOST_UNKNOWN and not words_suffice(num_words, share, is_short=config.copies_words):
        yield (
            f"{share:.1%} of the words in the {where} are unknown. Use subwords (tokenizer.kind: bpe), lower "
            "tokenizer.min_frequency, or raise tokenizer.max_size."
        )


def warn_of_text(config: Config, text: Text, dropped: float, longest: int) -> Iterator[str]:
    """A metric or a maximum length that does not suit the text; ``dropped`` is from 0 to 1."""
    if config.validation.metric == "bleu" and bleu_is_always_0(text.evaluation["validation"]):
        yield (
            "BLEU is 0 for any translation of the validation split, because no target has four words. Set "
            "validation.metric=chrf, so that the best checkpoint can be found."
        )
    if dropped > MOST_DROPPED:
        yield (
            f"data.max_length ({config.data.max_length}) drops {dropped:.1%} of the training pairs; the "
            f"longest sentence has {counted(longest, 'token')}. Raise it."
        )


def warn_of_schedule(config: Config, run: Forecast) -> Iterator[str]:
    """A learning rate that never reaches its peak, or reaches its end too late or too early."""
    schedule = config.schedule
    if run.is_certain and schedule.warmup_steps > run.num_steps * run.slack:
        yield (
            f"the warm-up (schedule.warmup_steps {schedule.warmup_steps:,}) is not over when the run ends at "
            f"step {run.num_steps:,}. Lower it, or raise {run.ended_by}."
        )
    if schedule.kind != "cosine" or schedule.total_steps is None:
        return
    total, end = schedule.total_steps, run.num_steps
    left = learning_rate(end, schedule, d_model=config.model.d_model) / schedule.learning_rate
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
    """Validations that are too few to be useful, or take too much time."""
    every, share = config.validation.every_steps, run.validating_seconds / run.seconds
    if every > run.num_steps and config.validation.every_epochs is None:
        yield (
            f"validation.every_steps ({every:,}) is more than the run's {counted(run.num_steps, 'step')}: "
            "the only validation is at the end. Lower it."
        )
    elif run.num_validations > 1 and share > MOST_VALIDATING:
        yield (
            f"{share:.0%} of the run's time goes into {counted(run.num_validations, 'validation')}. Raise "
            "validation.every_steps, or validate on fewer pairs."
        )


def warn_of_disk(needed: int, free: int, path: str) -> Iterator[str]:
    """Checkpoints that will not fit on the disk."""
    if needed > free:
        yield (
            f"the checkpoints to come take up to {size(needed)}, but only {size(free)} are free where {path} "
            "will be. Free some space, or lower checkpoint.keep."
        )
