"""Batches across requests: whatever waits when the translator is free is translated together.

Which sentences share a batch does not change their translations, except for ties (`mt.search`).
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from mt.errors import LinesError
from mt.inference.segments import Translation
from mt.inference.translator import Translator
from mt.search.strategy import Beam
from mt.serving.api import Result, TranslationAnswer

Align = Callable[[str, Sequence[Translation]], Sequence[Sequence[tuple[int, int]] | None]]
"""Aligns a text with each of its translations; None for a text that was translated in parts."""


class QueueFullError(Exception):
    """More texts are waiting than the queue holds."""


class _AbandonedError(Exception):
    """Nobody is waiting for the batch any more."""


@dataclass(frozen=True, eq=False)
class _Job:
    """The texts of one request, which are answered together."""

    texts: Sequence[str]
    beam: int
    num_best: int
    aligned: bool
    results: asyncio.Future[list[Result]]


class BatchedTranslator:
    """Translates the requests of an event loop in a thread of its own, one batch after the other."""

    def __init__(self, translator: Translator, name: str, *, max_waiting: int, align: Align | None) -> None:
        """Wrap a translator, which must not be used elsewhere; an empty queue accepts any request."""
        self.name = name
        self.src, self.tgt = translator.src, translator.tgt
        self.align = align
        self._translator = translator
        self._max_waiting = max_waiting
        self._jobs: list[_Job] = []
        # The same thread for all batches, because each thread that uses torch gets its own OpenMP threads.
        self._thread = ThreadPoolExecutor(1)
        self._worker: asyncio.Task[None] | None = None

    def health(self) -> dict[str, str | int]:
        """What translates, and how many texts are waiting for it."""
        engine = self._translator.engine
        return {
            "run": self.name,
            "src": self.src,
            "tgt": self.tgt,
            "checkpoint": self._translator.checkpoint,
            "engine": engine.name,
            "precision": engine.precision,
            "device": engine.device,
            "why": engine.why,
            "alignment": self.align is not None,
            "waiting": self._num_waiting(),
        }

    async def translate(
        self, texts: Sequence[str], *, beam: int = 1, num_best: int = 1, aligned: bool = False
    ) -> list[Result]:
        """Wait for the translations of the texts of a request; cancelling removes them from the queue."""
        num_waiting = self._num_waiting()
        if num_waiting and num_waiting + len(texts) > self._max_waiting:
            raise QueueFullError
        job = _Job(texts, beam, num_best, aligned, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await job.results

    def _num_waiting(self) -> int:
        return sum(len(job.texts) for job in self._jobs if not job.results.done())

    async def _work(self) -> None:
        """Answer the oldest job, with others of the same settings while there is room, until none waits."""
        while waiting := [job for job in self._jobs if not job.results.done()]:
            first, room = waiting[0], self._translator.engine.batch_sentences
            batch: list[_Job] = []
            for job in waiting:
                is_alike = (job.beam, job.num_best) == (first.beam, first.num_best)
                if job is first or (is_alike and len(job.texts) <= room):
                    batch.append(job)
                    room -= len(job.texts)
            self._jobs = [job for job in waiting if job not in batch]
            await self._answer(batch)

    async def _answer(self, jobs: Sequence[_Job]) -> None:
        try:
            loop = asyncio.get_running_loop()
            results = await loop.run_in_executor(self._thread, self._translate, jobs)
        except Exception as error:
            for job in jobs:
                if isinstance(error, LinesError) and len(jobs) > 1:
                    # A bad text fails its own request alone, by its number there.
                    await self._answer([job])
                elif not job.results.done():
                    job.results.set_exception(error)
            return
        for job, answer in zip(jobs, results, strict=True):
            if not job.results.done():
                job.results.set_result(answer)

    def _translate(self, jobs: Sequence[_Job]) -> list[list[Result]]:
        def stop_if_abandoned() -> None:
            if all(job.results.done() for job in jobs):
                raise _AbandonedError

        beam = jobs[0].beam
        translations = self._translator.n_best(
            [text for job in jobs for text in job.texts],
            num_best=jobs[0].num_best,
            strategy=Beam(beam) if beam > 1 else None,
            refuse_long=True,
            before_each_step=stop_if_abandoned,
        )
        rest = iter(translations)
        return [[self._result(text, next(rest), job) for text in job.texts] for job in jobs]

    def _result(self, text: str, best_first: Sequence[Translation], job: _Job) -> Result:
        answers = [
            TranslationAnswer(text=each.text, score=each.score, log_prob=each.log_prob) for each in best_first
        ]
        if job.aligned and self.align is not None and not job.results.done():
            for answer, alignment in zip(answers, self.align(text, best_first), strict=True):
                answer.alignment = None if alignment is None else list(alignment)
        [source] = self._translator.src_tokenizer.form.rewrite([text])
        return Result(source=source, translations=answers)
