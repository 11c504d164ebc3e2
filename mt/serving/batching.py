"""Dynamic batching: requests that wait at the same time are translated together.

One thread owns a `TextSearch`. While it translates one batch, further requests queue up and become the next
batch. A request that arrives alone never waits for others.
Which sentences share a batch does not change their translations, except for ties (`mt.search`).
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from mt.errors import LinesError
from mt.inference.engines import Engine
from mt.inference.segments import Translation
from mt.inference.text_search import TextSearch
from mt.search.strategy import Strategy

LOG = logging.getLogger(__name__)

Alignment = Sequence[tuple[int, int]]
"""Pairs of a source and a target word, counted from 0; words are separated by spaces."""
Align = Callable[[str, Sequence[Translation]], Sequence[Alignment | None]]
"""Aligns a text with each of its translations; None for a text that was translated in parts."""

_MOST_RETRY_SECONDS = 60
_SHARE_OF_WAITING, _MOST_SECONDS_OF_WAITING = 0.1, 0.05
"""How long a batch may wait for clients that send another request, as a share of the last batch's time."""


class QueueFullError(Exception):
    """More texts are waiting than the queue holds.

    Attributes:
        retry_after_seconds: When to try again, estimated from the speed of the last batch.
    """

    def __init__(self, retry_after_seconds: int) -> None:
        super().__init__(f"the queue is full; try again in {retry_after_seconds} s")
        self.retry_after_seconds = retry_after_seconds


class StoppingError(Exception):
    """The service is stopping and accepts no more requests."""


class _GivenUpError(Exception):
    """Nobody is waiting for the batch any more."""


@dataclass(frozen=True)
class SearchSettings:
    """The settings that requests must share to be translated together."""

    strategy: Strategy = None
    num_best: int = 1


@dataclass(frozen=True)
class Answer:
    """The translations of one text."""

    translations: Sequence[Translation]
    """The best first."""
    alignments: Sequence[Alignment | None] | None
    """One for each translation, if requested."""


@dataclass(frozen=True, eq=False)
class _Job:
    """The texts of one request, which are answered together."""

    texts: Sequence[str]
    settings: SearchSettings
    aligned: bool
    answer: "Future[list[Answer]]" = field(default_factory=Future)


class BatchedTranslator:
    """Translates what several threads submit. A context manager: leaving it answers the pending requests.

    with BatchedTranslator(translator, max_waiting=1000) as batched:
        [answer] = batched.submit(["the dog sees a house."], SearchSettings(Beam(5))).result()
    """

    def __init__(self, translator: TextSearch, *, max_waiting: int, align: Align | None = None) -> None:
        """Wrap a translator, which must not be used elsewhere from now on.

        Args:
            translator: A `Translator`, or the result of `load_exported`.
            max_waiting: The most texts that wait; an empty queue accepts a request of any size.
            align: Aligns words, in the thread that owns the translator; None if that is not possible.
        """
        self.can_align = align is not None
        self._translator = translator
        self._align = align
        self._max_waiting = max_waiting
        self._width = translator.engine.batch_sentences
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._seconds_per_text = 0.0
        self._thread = threading.Thread(target=self._work, name="translator", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    @property
    def engine(self) -> Engine:
        """What searches."""
        return self._translator.engine

    @property
    def num_waiting(self) -> int:
        """The number of waiting texts, not counting those that are being translated."""
        with self._changed:
            return self._num_waiting()

    def submit(
        self, texts: Sequence[str], settings: SearchSettings, *, aligned: bool = False
    ) -> "Future[list[Answer]]":
        """Queue the texts of a request. Cancelling the future removes them again.

        Args:
            texts: The texts.
            settings: How to search.
            aligned: Whether to align the words of each translation; needs `can_align`.

        Returns:
            An answer for each text. Its errors are those of `TextSearch.n_best`, whose lines are the texts.
        """
        job = _Job(texts, settings, aligned)
        with self._changed:
            if self._is_closed:
                raise StoppingError
            num_waiting = self._num_waiting()
            if num_waiting and num_waiting + len(texts) > self._max_waiting:
                raise QueueFullError(self._retry_after_seconds(num_waiting))
            self._jobs.append(job)
            self._changed.notify()
        return job.answer

    def _num_waiting(self) -> int:
        return sum(len(job.texts) for job in self._jobs if not job.answer.cancelled())

    def _retry_after_seconds(self, num_waiting: int) -> int:
        return max(1, min(_MOST_RETRY_SECONDS, math.ceil(num_waiting * self._seconds_per_text)))

    def _work(self) -> None:
        while jobs := self._next_batch():
            started = time.monotonic()
            self._answer(jobs)
            seconds = time.monotonic() - started
            self._seconds_per_text = seconds / sum(len(job.texts) for job in jobs)
            self._wait_for_the_answered(len(jobs), _SHARE_OF_WAITING * seconds)

    def _wait_for_the_answered(self, number: int, seconds: float) -> None:
        """Wait until as many requests have arrived as were answered, unless there is only one client.

        Clients often send the next request immediately. If the next batch began without those that were just
        answered, they would alternate with the others in batches of half the size, which take longer for each
        sentence.
        """
        with self._changed:
            if number > 1 or self._jobs:
                enough = number + len(self._jobs)
                self._changed.wait_for(
                    lambda: self._is_closed or len(self._jobs) >= enough,
                    min(seconds, _MOST_SECONDS_OF_WAITING),
                )

    def _next_batch(self) -> list[_Job]:
        """Wait for a batch: the oldest job, and others with the same settings while there is room for them.

        Returns:
            An empty list once the service is stopping and everything is answered.
        """
        with self._changed:
            while True:
                self._jobs = deque(job for job in self._jobs if not job.answer.cancelled())
                if self._jobs:
                    return self._take()
                if self._is_closed:
                    return []
                self._changed.wait()

    def _take(self) -> list[_Job]:
        first = self._jobs.popleft()
        taken, left = [first], deque[_Job]()
        room = self._width - len(first.texts)
        for job in self._jobs:
            if job.settings == first.settings and len(job.texts) <= room:
                taken.append(job)
                room -= len(job.texts)
            else:
                left.append(job)
        self._jobs = left
        return taken

    def _answer(self, jobs: Sequence[_Job]) -> None:
        try:
            self._translate(jobs)
        except _GivenUpError:
            return
        except LinesError as error:
            if len(jobs) == 1:
                _fail(jobs[0], error)
                return
            # Repeat each bad request alone, so that the message counts the texts of that request.
            bad = _jobs_of_lines(jobs, set(error.reasons))
            for job in bad:
                self._answer([job])
            if good := [job for job in jobs if job not in bad]:
                self._answer(good)
        except Exception as error:
            # The thread must not end; the code that waits for the answer reports the error.
            for job in jobs:
                _fail(job, error)

    def _translate(self, jobs: Sequence[_Job]) -> None:
        texts = [text for job in jobs for text in job.texts]

        def stop_if_given_up() -> None:
            if all(job.answer.cancelled() for job in jobs):
                raise _GivenUpError

        settings = jobs[0].settings
        found = iter(
            self._translator.n_best(
                texts,
                num_best=settings.num_best,
                strategy=settings.strategy,
                refuse_long=True,
                before_each_step=stop_if_given_up,
            )
        )
        translated = [(job, [next(found) for _ in job.texts]) for job in jobs]
        # Aligning may take long, and those that do not need it must not wait for it.
        for job, translations in sorted(translated, key=lambda each: each[0].aligned):
            answers = []
            for text, best_first in zip(job.texts, translations, strict=True):
                if job.answer.cancelled():
                    break
                aligned = self._align(text, best_first) if job.aligned and self._align else None
                answers.append(Answer(best_first, aligned))
            if len(answers) == len(job.texts) and job.answer.set_running_or_notify_cancel():
                job.answer.set_result(answers)


def _fail(job: _Job, error: Exception) -> None:
    if not job.answer.done() and job.answer.set_running_or_notify_cancel():
        job.answer.set_exception(error)


def _jobs_of_lines(jobs: Sequence[_Job], lines: set[int]) -> list[_Job]:
    """The jobs that have at least one of these lines, counted from 1 over the texts of all jobs."""
    found = []
    first = 1
    for job in jobs:
        if lines & set(range(first, first + len(job.texts))):
            found.append(job)
        first += len(job.texts)
    return found
