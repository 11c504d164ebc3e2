"""Requests to stop a run, by a signal or a time limit. The current step is finished and saved first."""

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Self

from mt import distributed, processes
from mt.errors import Interrupted

# SIGHUP is sent when the terminal is closed; SLURM can send SIGUSR1 before the time limit of a job.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
MORE_TO_DO = 75
"""The exit code at a time limit: EX_TEMPFAIL, upon which a job script may queue the run again."""
STDERR = 2


class Interruption:
    """Remembers, as a context manager, the first signal that asks the run to stop.

    A signal that was ignored before stays ignored: SIGINT in background jobs of a script, SIGHUP under nohup.
    After any signal, or the time limit, Ctrl-C ends the process at once, which is safe, because files are
    written atomically.
    """

    def __init__(self, max_seconds: float | None = None) -> None:
        self.signal: signal.Signals | None = None
        self._is_agreed = False
        self._max_seconds = max_seconds
        self._is_at_once = False

    @property
    def is_due(self) -> bool:
        """Whether the run must stop and all processes know it; between two steps."""
        return self._is_agreed or (self.signal is not None and not processes.are_several())

    def check_share(self) -> None:
        """Raise `Interrupted` if any process was asked to stop; for work within `distributed.barrier_after`.

        It can be abandoned and repeated, and is abandoned by all of them.
        """
        if distributed.is_stop_requested(self.signal is not None):
            raise Interrupted

    def agree(self, *, stop: bool) -> None:
        """Remember whether any process was asked to stop, which is never revoked."""
        self._is_agreed = self._is_agreed or stop

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Let a signal raise `Interrupted` immediately; for work that has nothing to save.

        With several processes, only in the first one: when it ends, the others do too.
        """
        self._is_at_once = processes.is_first()
        try:
            if self.signal is not None and self._is_at_once:
                raise Interrupted
            yield
        finally:
            self._is_at_once = False

    @property
    def exit_code(self) -> int:
        """128 plus the number of the signal, as shells expect; 75 at the time limit."""
        if self.signal is None:
            return MORE_TO_DO if self._is_agreed else 0
        return MORE_TO_DO if self.signal == signal.SIGALRM else 128 + self.signal

    @property
    def reason(self) -> str:
        """The name of the signal, or the time limit, in words."""
        if self.signal is None:
            return "another process was asked to stop" if self._is_agreed else "nothing"
        return "the time is up" if self.signal == signal.SIGALRM else self.signal.name

    def __enter__(self) -> Self:
        answered = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        if self._max_seconds is not None:
            answered.append(signal.SIGALRM)
        self._before = {number: signal.signal(number, self._answer) for number in answered}
        if self._max_seconds is not None:
            # Zero would disarm the timer.
            signal.setitimer(signal.ITIMER_REAL, max(self._max_seconds, 1e-6))
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
        if not processes.is_first():
            return
        # Not through logging: the signal may have arrived while a log line was being written.
        with contextlib.suppress(OSError):
            again = " again" if number == signal.SIGINT else ""
            text = f"\n{self.reason}: finishing this step and saving; press Ctrl-C{again} to stop at once\n"
            os.write(STDERR, text.encode())
