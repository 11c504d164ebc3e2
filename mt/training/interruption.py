"""Requests to stop a run, by a signal or a time limit. The current step is finished and saved first."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Self

from mt import processes
from mt.errors import Interrupted
from mt.system import STOP_SIGNALS, TIME_LIMIT_SIGNAL, signal_after

MORE_TO_DO = 75
"""The exit code at a time limit: EX_TEMPFAIL, upon which a job script may queue the run again."""


class Interruption(contextlib.ExitStack):
    """Remembers, as a context manager, the first signal that asks the run to stop.

    A signal that was ignored before stays ignored: SIGINT in background jobs of a script, SIGHUP under nohup.
    After any signal, Ctrl-C ends the process at once, which is safe, because files are written atomically.
    In another thread than the main one, which alone receives signals, only the time limit stops the run.

    - ``signal``: set by a signal or the time limit; each step tells all processes whether any has one.
    - ``all_processes_know``: set by the session when they have been told; `is_due`, which ends the loop, is
      then true.
    - `check_share`: raises between the batches of a validation; all processes leave it together.
    - `interrupting_immediately`: for the first process alone, while it prepares and nothing needs saving.
    """

    def __init__(self, max_seconds: float | None = None, began: float = 0.0) -> None:
        super().__init__()
        self.began = began
        """When the session began, by `time.perf_counter`."""
        self.signal: signal.Signals | None = None
        self._max_seconds = max_seconds
        self.all_processes_know = False
        """Whether all processes know that any of them was asked to stop, which is never revoked."""
        self._is_at_once = False

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            if self._max_seconds is not None:
                timer = threading.Timer(self._max_seconds, setattr, (self, "signal", TIME_LIMIT_SIGNAL))
                timer.daemon = True
                timer.start()
                self.callback(timer.cancel)
            return self
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self.callback(signal.signal, number, signal.signal(number, self._remember))
        if self._max_seconds is not None:
            self.callback(signal.signal, TIME_LIMIT_SIGNAL, signal.signal(TIME_LIMIT_SIGNAL, self._remember))
            self.callback(signal_after, 0)
            # Zero would disarm the timer.
            signal_after(max(self._max_seconds, 1e-6))
        return self

    @property
    def is_due(self) -> bool:
        """Whether the run must stop and all processes know it; between two steps."""
        return self.all_processes_know or (self.signal is not None and not processes.ARE_SEVERAL)

    def check_share(self) -> None:
        """Raise `Interrupted`, within `distributed.barrier_after`, if this process was asked to stop."""
        if self.signal is not None:
            raise Interrupted

    @contextlib.contextmanager
    def interrupting_immediately(self) -> Iterator[None]:
        """Let a signal raise `Interrupted` immediately in the first process: nothing needs saving."""
        self._is_at_once = processes.IS_FIRST
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
            return MORE_TO_DO if self.all_processes_know else 0
        return MORE_TO_DO if self.signal == TIME_LIMIT_SIGNAL else 128 + self.signal

    @property
    def reason(self) -> str:
        """The name of the signal, or the time limit, in words."""
        if self.signal is None:
            return "another process was asked to stop" if self.all_processes_know else "nothing"
        return "the time is up" if self.signal == TIME_LIMIT_SIGNAL else self.signal.name

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        self.signal = signal.Signals(number)
        if self._is_at_once:
            raise Interrupted
        if processes.IS_FIRST:
            # Not through logging: the signal may have arrived while a log line was being written.
            text = f"\n{self.reason}: finishing this step and saving; press Ctrl-C again to stop at once\n"
            with contextlib.suppress(OSError):
                os.write(2, text.encode())
