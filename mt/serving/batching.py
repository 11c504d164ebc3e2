"""Batches across requests: whatever waits when the translator is free is translated together, by turns.

Which sentences share a batch does not change their translations, except for ties (`mt.search`).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from mt.errors import LinesError, MtError
from mt.inference.segments import Translation
from mt.inference.translator import Translator
from mt.search.strategy import Beam
from mt.serving.api import Result, TranslateRequest, TranslationAnswer

LOG = logging.getLogger(__name__)


class _AbandonedError(Exception):
    """Nobody is waiting for the batch any more."""


@dataclass(frozen=True, eq=False)
class _Job:
    """The texts of one request, which are answered together."""

    texts: Sequence[str]
    asked: TranslateRequest
    results: asyncio.Future[list[Result]]
    answered: list[Result] = field(default_factory=list)
    """The results of its first texts."""

    @property
    def rest(self) -> Sequence[str]:
        """The texts that are still to be translated."""
        return self.texts[len(self.answered) :]


class BatchedTranslator:
    """Translates the requests of an event loop in a thread of its own, one batch after the other."""

    def __init__(self, load: Callable[[], Translator], name: str, *, max_waiting: int) -> None:
        """Load a translator, which must not be used elsewhere; an empty queue accepts any request."""
        self.name = name
        self.count_batch: Callable[[int], object] = lambda num_texts: None
        """Called with the number of texts in each batch."""
        self._load = load
        self.translator = load()
        self.src, self.tgt = self.translator.facts.src, self.translator.facts.tgt
        self._max_waiting = max_waiting
        self._jobs: list[_Job] = []
        # The same thread for all batches, because each thread that uses torch gets its own OpenMP threads.
        self._thread = ThreadPoolExecutor(1)
        self._worker: asyncio.Task[None] | None = None

    def reload(self) -> None:
        """Load the translator again, and use it from the next batch on; keep the old one if that fails."""
        try:
            translator = self._load()
        except MtError as error:
            LOG.error("%s is served as it was loaded before: %s", self.name, error)
            return
        # Between two batches.
        self._thread.submit(setattr, self, "translator", translator).result()
        LOG.info("%s: serving %s", self.name, translator.facts.checkpoint)

    def health(self) -> dict[str, str | int]:
        """What translates, and how many texts are waiting for it."""
        engine = self.translator.engine
        return {
            "run": self.name,
            "src": self.src,
            "tgt": self.tgt,
            "example": self.translator.facts.example,
            "checkpoint": self.translator.facts.checkpoint,
            "engine": engine.name,
            "precision": engine.precision,
            "device": engine.device,
            "why": self.translator.why,
            "waiting": self.num_waiting(),
        }

    async def translate(self, texts: Sequence[str], asked: TranslateRequest) -> list[Result]:
        """Wait for the translations of a request, if there is room for it; cancelling takes it back."""
        num_waiting = self.num_waiting()
        if num_waiting and num_waiting + len(texts) > self._max_waiting:
            raise asyncio.QueueFull
        job = _Job(texts, asked, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await job.results

    def num_waiting(self) -> int:
        """How many texts wait."""
        return sum(len(job.rest) for job in self._jobs if not job.results.done())

    async def _work(self) -> None:
        """Translate some texts of the oldest job and of those with its settings, until none waits."""
        while waiting := [job for job in self._jobs if not job.results.done()]:
            beam, n_best = waiting[0].asked.beam, waiting[0].asked.n_best
            alike = [job for job in waiting if (job.asked.beam, job.asked.n_best) == (beam, n_best)]
            room = max(1, self.translator.engine.batch_sentences // beam)
            served = alike[:room]
            self._jobs = [job for job in waiting if job not in served]
            await self._answer([(job, job.rest[: room // len(served)]) for job in served])
            # Those that are not finished come last, so that nobody waits for all texts of another.
            self._jobs += served

    async def _answer(self, parts: Sequence[tuple[_Job, Sequence[str]]]) -> None:
        try:
            loop = asyncio.get_running_loop()
            results = await loop.run_in_executor(self._thread, self._translate, parts)
        except Exception as error:
            for part in parts:
                if isinstance(error, LinesError) and len(parts) > 1:
                    # A bad text fails its own request alone, by its number there.
                    await self._answer([part])
                elif not part[0].results.done():
                    part[0].results.set_exception(error)
            return
        for (job, _), answers in zip(parts, results, strict=True):
            job.answered.extend(answers)
            if not job.rest and not job.results.done():
                job.results.set_result(job.answered)

    def _translate(self, parts: Sequence[tuple[_Job, Sequence[str]]]) -> list[list[Result]]:
        def stop_if_abandoned() -> None:
            if all(job.results.done() for job, _ in parts):
                raise _AbandonedError

        job = parts[0][0]
        all_texts = [text for _, texts in parts for text in texts]
        self.count_batch(len(all_texts))
        translations = self.translator.n_best(
            all_texts,
            num_best=job.asked.n_best,
            strategy=Beam(job.asked.beam) if job.asked.beam > 1 else None,
            # What a message names, if the texts are all of one request.
            first_line=1 + len(job.answered),
            before_each_step=stop_if_abandoned,
        )
        rest = iter(translations)
        return [[self._result(text, next(rest), job) for text in texts] for job, texts in parts]

    def _result(self, text: str, best_first: Sequence[Translation], job: _Job) -> Result:
        answers = [
            TranslationAnswer(text=each.text, score=each.score, log_prob=each.log_prob) for each in best_first
        ]
        if job.asked.alignment and not job.results.done():
            alignments = self.translator.align(text, best_first)
            for answer, alignment in zip(answers, alignments, strict=True):
                answer.alignment = None if alignment is None else list(alignment)
        [source] = self.translator.src_tokenizer.form.rewrite([text])
        return Result(source=source, translations=answers)
