"""How fast training steps are, how much that varies, and whether other work slows them down."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Training steps are compared a quarter at a time: single steps differ by their sentences alone.
NUM_PARTS = 4
STEADY = 1.2


@dataclass(frozen=True)
class Speed:
    """Some training steps on ordinary batches, timed."""

    step_target_tokens: Sequence[int]
    """Of each step, padding not counted."""
    step_seconds: Sequence[float]
    """Of each step."""
    processor_seconds: float | None
    """How long of that time the training thread had a processor; None where it waits for a GPU."""

    @property
    def num_steps(self) -> int:
        """How many were timed."""
        return len(self.step_seconds)

    @property
    def seconds(self) -> float:
        """Of all of them together."""
        return sum(self.step_seconds)

    @property
    def tokens_per_second(self) -> float:
        """Target tokens, padding not counted."""
        return sum(self.step_target_tokens) / self.seconds

    @property
    def range(self) -> tuple[float, float]:
        """Tokens a second in the slowest and in the fastest quarter of the steps, which follow each other."""
        tokens, seconds = (
            [float(part.sum()) for part in np.array_split(each, min(NUM_PARTS, self.num_steps))]
            for each in (np.array(self.step_target_tokens), np.array(self.step_seconds))
        )
        speeds = [part / time for part, time in zip(tokens, seconds, strict=True)]
        return min(speeds), max(speeds)

    @property
    def is_steady(self) -> bool:
        """Whether no quarter of the steps is much slower than another."""
        slowest, fastest = self.range
        return self.num_steps >= NUM_PARTS and fastest <= STEADY * slowest

    @property
    def processor_share(self) -> float:
        """The share of the time, above 0 and at most 1, in which the training thread had a processor."""
        return min(1.0, self.processor_seconds / self.seconds) if self.processor_seconds else 1.0
