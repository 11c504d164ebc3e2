"""Signals that ask a run to stop: the step is finished and saved first."""

import logging
import signal
from types import FrameType, TracebackType
from typing import Self

LOG = logging.getLogger(__name__)
# SIGUSR1 is what SLURM sends ahead of the end of a job's time.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class Interruption:
    """While entered, remembers the first such signal; asking it is calling it.

    A second Ctrl-C ends the process at once, which harms nothing: files appear whole or not at all.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def __call__(self) -> bool:
        """Whether the run has been asked to stop."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """What shells expect of a process that stopped for a signal: 128 and its number."""
        return 0 if self.signal is None else 128 + self.signal

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._remember) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        self.signal = signal.Signals(number)
        LOG.warning("%s: finishing this step and saving; Ctrl-C once more stops at once", self.signal.name)
