"""How long a run will be, given its limits or its budget, and the pace that was measured."""

import logging
import math
import re
import sys
from bisect import bisect_left
from dataclasses import dataclass, replace

from mt.config.config import Config
from mt.config.training import LEAST_TIMED
from mt.preflight import rule
from mt.training.budget import Pace, length_within
from mt.training.counters import Counters

LOG = logging.getLogger(__name__)

# A run is never proposed with fewer steps, which would learn nothing.
FEWEST_STEPS = 20
# Validations, with a checkpoint each, take at most this share of the time, if there is more than one.
VALIDATION_SHARE, MOST_VALIDATIONS = 0.03, 12
# A run that may take this many times as many steps as planned has no validation just before its last.
FASTER = 1.2


@dataclass(frozen=True)
class Plan:
    """What a run with this config and pace will do until it ends."""

    config: Config
    pace: Pace
    num_steps: int
    ended_by: str
    """The config option that ends it; if it is patience, this is the earliest end."""
    num_validations: int
    num_checkpoints: int
    """The checkpoints saved at intervals; each new best is saved as well."""
    note: str = ""
    """Why it is shorter than its budget, or nothing."""

    @property
    def is_certain(self) -> bool:
        """Whether it does not end later."""
        return self.ended_by != "validation.patience"

    @property
    def num_passes(self) -> float:
        """Passes over the corpus."""
        return self.num_steps / self.pace.steps_per_epoch

    @property
    def validating_seconds(self) -> float:
        """The time of all validations."""
        return self.num_validations * self.pace.validation_seconds

    @property
    def seconds(self) -> float:
        """The time of the whole run."""
        pauses = self.validating_seconds + self.num_checkpoints * self.pace.checkpoint_seconds
        return self.pace.start_seconds + self.num_steps * self.pace.step_seconds + pauses

    @property
    def slack(self) -> float:
        """The factor by which the number of steps may be wrong."""
        factors = {"training.max_steps": 1.0, "validation.patience": 1.0, "training.max_minutes": 2.0}
        return factors.get(self.ended_by, 1.05)


def plan_run(config: Config, pace: Pace) -> Plan:
    """Find the first step at which a run of this pace has reached a limit, and what happens until then."""
    training, validation, checkpoint = config.training, config.validation, config.checkpoint
    every = float(validation.every_steps)
    if validation.every_epochs is not None:
        every = validation.every_epochs * pace.steps_per_epoch
    seconds_per_step = pace.step_seconds + pace.validation_seconds / every

    def reason(step: int) -> str:
        """Why the run is finished after this step, if it is; the option is part of the sentence."""
        counters = Counters(step, int(step / pace.steps_per_epoch), seconds=step * seconds_per_step)
        if not training.limits:
            # The first validation always counts as an improvement.
            counters.num_validations_without_gain = int(step / every) - 1
        return counters.reached_limit(training, validation) or ""

    if config.length_is_open:
        left = 60 * (training.max_minutes or 0.0) - pace.start_seconds
        num_steps, ended_by = length_within(left, config, pace, step=0), "training.max_minutes"
    else:
        num_steps = bisect_left(range(sys.maxsize), True, key=lambda step: reason(step) != "")
        [ended_by] = re.findall(r"(?:training|validation)\.\w+", reason(num_steps))
    num_checkpoints = math.ceil(num_steps / checkpoint.every_steps)
    if checkpoint.every_epochs is not None:
        num_checkpoints += int(num_steps / pace.steps_per_epoch / checkpoint.every_epochs)
    # At intervals, and at the last step.
    num_validations = math.ceil(num_steps / every)
    return Plan(config, pace, num_steps, ended_by, num_validations, num_checkpoints)


def fit(config: Config, minutes: float, pace: Pace) -> Plan:
    """Fix the number of steps of a run with this pace, from its start to its end."""
    num_steps, num_validations = num_steps_within(60 * minutes - pace.start_seconds, pace)
    most_steps, note = math.ceil(rule.MOST_PASSES * pace.steps_per_epoch), ""
    if num_steps < FEWEST_STEPS:
        num_steps, num_validations = FEWEST_STEPS, 1
        least = (pace.start_seconds + pace.pause_seconds + FEWEST_STEPS * pace.step_seconds) / 60
        note = (
            f"{minutes:g} minutes are too few: on this machine, starting, {FEWEST_STEPS} steps and a "
            f"validation take about {math.ceil(10 * least) / 10:g} minutes, and so short a run learns "
            "next to nothing. Give it more --minutes."
        )
        LOG.warning("%s", note)
    elif num_steps > most_steps:
        num_steps = most_steps
        note = (
            f"The run ends after {rule.MOST_PASSES:,} passes over the corpus, before the budget is used up: "
            "more passes over the same sentences would not help. Add more sentences."
        )
    warmup_steps, every = rule.warmup_steps(num_steps), math.ceil(num_steps / num_validations)
    limit: dict[str, float] = {"max_steps": num_steps}
    total_steps: int | str = num_steps
    if not note and warmup_steps >= LEAST_TIMED:
        limit, total_steps = {"max_minutes": float(minutes)}, "auto"
        every = min(num_steps, math.ceil(FASTER * every))
    config = config.with_options(
        schedule={"kind": "cosine", "total_steps": total_steps, "warmup_steps": warmup_steps},
        training={"max_steps": None, "ema_decay": rule.ema_decay(num_steps)} | limit,
        validation={"every_steps": every},
        checkpoint={"every_steps": every},
    )
    return replace(plan_run(config, pace), note=note)


def num_steps_within(seconds: float, pace: Pace) -> tuple[int, int]:
    """The steps of training, and the validations, that fit into ``seconds``; at least one of each."""
    num_pauses = VALIDATION_SHARE * seconds / max(pace.pause_seconds, 1e-9)
    num_validations = int(min(MOST_VALIDATIONS, max(1.0, num_pauses)))
    left = seconds - num_validations * pace.pause_seconds
    return max(1, math.floor(left / pace.step_seconds)), num_validations
