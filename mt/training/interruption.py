"""What asks a run to stop: a signal, or the end of its time. The step is finished and saved first."""

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Self

# SIGHUP is the end of the terminal; SIGUSR1 is what SLURM sends ahead of the end of a job's time.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
MORE_TO_DO = 75
"""The exit code of a run whose time is up: EX_TEMPFAIL, at which a job script may queue the run again."""
STDERR = 2


class Interrupted(BaseException):
    """The run is to stop, and what was under way is given up; no Exception, for libraries swallow these."""


class Interruption:
    """While entered, remembers the first such signal; asking it is calling it.

    A signal that is ignored when it is entered stays ignored: SIGINT in a script's background jobs, SIGHUP
    under nohup. A second Ctrl-C ends the process at once, which harms nothing: files appear whole or not at
    all.
    """

    def __init__(self, max_seconds: float | None = None) -> None:
        self.signal: signal.Signals | None = None
        self._max_seconds = max_seconds
        self._is_at_once = False

    def __call__(self) -> bool:
        """Whether the run has been asked to stop."""
        return self.signal is not None

    def check(self) -> None:
        """For work that can be given up and done again: raise `Interrupted` if the run is to stop."""
        if self():
            raise Interrupted

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """For work that has nothing to save: a signal raises `Interrupted` wherever it strikes."""
        self._is_at_once = True
        try:
            self.check()
            yield
        finally:
            self._is_at_once = False

    @property
    def exit_code(self) -> int:
        """What shells expect of a process that stopped for a signal, 128 and its number; 75 if time is up."""
        if self.signal is None:
            return 0
        return MORE_TO_DO if self.signal == signal.SIGALRM else 128 + self.signal

    @property
    def reason(self) -> str:
        """What asked, for people."""
        if self.signal is None:
            return "nothing"
        return "the time is up" if self.signal == signal.SIGALRM else self.signal.name

    def __enter__(self) -> Self:
        answered = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        if self._max_seconds is not None:
            answered.append(signal.SIGALRM)
        self._before = {number: signal.signal(number, self._answer) for number in answered}
        if self._max_seconds is not None:
            signal.setitimer(signal.ITIMER_REAL, self._max_seconds)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._max_seconds is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _answer(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        self.signal = signal.Signals(number)
        if self._is_at_once:
            raise Interrupted
        # Not through logging: the signal may have struck in the middle of writing a log line.
        with contextlib.suppress(OSError):
            text = f"\n{self.reason}: finishing this step and saving; Ctrl-C once more stops at once\n"
            os.write(STDERR, text.encode())
