"""What is certain to go otherwise than meant, each with a remedy."""

from collections.abc import Iterator, Mapping

from mt.config.config import Config
from mt.config.training import ScheduleConfig
from mt.preflight.forecast import Forecast
from mt.preflight.text_figures import Ceiling, Unknown
from mt.training.schedule import learning_rate
from mt.wording import counted

FEWEST_PAIRS = 100
MOST_UNKNOWN = 0.1
LOWEST_CEILING = 95.0
MOST_DROPPED = 0.05
MOST_VALIDATING = 1 / 3
# A check itself makes a load of one for each core.
MOST_LOAD = 2
# On an idle machine the thread that trains has a processor nearly always.
LEAST_PROCESSOR_SHARE = 0.8
LARGER_VOCABULARY = (
    "Take parts of words (tokenizer.kind: bpe), lower tokenizer.min_frequency, or raise tokenizer.max_size."
)
# What is left of the learning rate where a cosine counts as having come to its end.
HARDLY_ANY = 0.01


def warn_of_small_splits(sizes: Mapping[str, int]) -> Iterator[str]:
    """Scores on a few sentences are mostly chance."""
    for split, size in sizes.items():
        if split != "train" and size < FEWEST_PAIRS:
            yield (
                f"the {split} split has {counted(size, 'pair')}: below {FEWEST_PAIRS} a score is mostly "
                "chance. Bring more pairs, or raise data.held_out_fraction where the split is carved out."
            )


def warn_of_vocabulary(unknown: Mapping[str, Unknown], ceilings: Mapping[str, Ceiling]) -> Iterator[str]:
    """Words that cannot be read or written, and text that does not come back."""
    where, counts = max(unknown.items(), key=lambda item: item[1].share)
    if counts.share > MOST_UNKNOWN:
        yield f"{counts.share:.1%} of the words of the {where} are unknown. {LARGER_VOCABULARY}"
    where, ceiling = min(ceilings.items(), key=lambda item: item[1].bleu.value)
    if ceiling.bleu.value < LOWEST_CEILING and ceiling.num_changed:
        yield (
            f"with this vocabulary a model without a mistake scores {ceiling.bleu.value:.2f} BLEU on the "
            f"{where}. {LARGER_VOCABULARY}"
        )


def warn_of_lengths(config: Config, num_too_long: int, num_pairs: int, longest: int) -> Iterator[str]:
    """Pairs that are lost, and batches that are larger than was asked for."""
    share = num_too_long / num_pairs
    if share > MOST_DROPPED:
        yield (
            f"data.max_length ({config.data.max_length}) drops {share:.1%} of the training pairs; the "
            f"longest sentence has {counted(longest, 'token')}. Raise it."
        )
    if config.training.batch_tokens < config.data.max_length:
        yield (
            f"training.batch_tokens ({config.training.batch_tokens}) is smaller than data.max_length "
            f"({config.data.max_length}): a pair that is longer makes a batch of its own, larger than "
            "asked for. Raise the one or lower the other."
        )


def warn_of_schedule(config: Config, run: Forecast) -> Iterator[str]:
    """A learning rate that never comes to its peak, or not to its end, or there too early."""
    if not run.is_certain:
        return
    schedule = config.schedule
    if schedule.warmup_steps > run.num_steps * run.slack:
        yield (
            f"schedule.warmup_steps ({schedule.warmup_steps:,}) is not over when the run ends at step "
            f"{run.num_steps:,}, so that the learning rate never comes to its peak. Lower it, or raise "
            f"{run.ended_by}."
        )
    if schedule.kind == "cosine":
        yield from _warn_of_cosine(schedule, config.model.d_model, run)


def _warn_of_cosine(schedule: ScheduleConfig, d_model: int, run: Forecast) -> Iterator[str]:
    assert schedule.total_steps is not None
    total, end = schedule.total_steps, run.num_steps
    left = learning_rate(end, schedule, d_model=d_model) / schedule.learning_rate
    if end > total * run.slack:
        yield (
            f"the cosine is down at zero at schedule.total_steps ({total:,}), and the run goes on to about "
            f"step {end:,} ({run.ended_by}), learning nothing more. Raise the one or lower the other."
        )
    elif total > end * run.slack and left > HARDLY_ANY:
        yield (
            f"the run ends at about step {end:,} ({run.ended_by}), before the cosine does at "
            f"schedule.total_steps ({total:,}): the learning rate is still at {left:.0%} of its peak. Lower "
            "the one or raise the other."
        )


def warn_of_validation(config: Config, run: Forecast) -> Iterator[str]:
    """Validations that are too few to be of use, or take the time of training."""
    validation = config.validation
    if run.num_validations == 1 and validation.every_steps > run.num_steps:
        yield (
            f"validation.every_steps ({validation.every_steps:,}) is more than the run's {run.num_steps:,} "
            "steps: the one validation is at the end, and there is no best to choose. Lower it."
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
    """Checkpoints that will not find room."""
    if needed > free:
        yield (
            f"the checkpoints take up to {needed / 1e9:.2f} GB, and {free / 1e9:.2f} GB are free where "
            f"{path} will be. Free some space, or lower checkpoint.keep."
        )


def warn_of_other_work(load: float, cores: int, processor_share: float) -> Iterator[str]:
    """Speeds that were measured beside something else."""
    if load > MOST_LOAD * cores or processor_share < LEAST_PROCESSOR_SHARE:
        yield (
            f"other work keeps this machine busy (load {load:.1f} on {cores} cores; training had a processor "
            f"for {processor_share:.0%} of the time): speed and time were measured beside it. Check again "
            "without it."
        )
