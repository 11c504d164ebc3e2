"""Batches across requests: whatever waits when the translator is free is translated together, by turns.

A request of more than one turn is searched beside all others, so that these wait for one turn of it.
Which sentences share a batch does not change their translations, except for ties (`mt.search`).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from typing import Any

from mt.errors import LinesError, MtError
from mt.inference.engines import After, Check, Engine, Rules, Sentence, batches_by_length
from mt.inference.segments import Translation
from mt.inference.translator import Translator
from mt.search.hypothesis import Hypothesis
from mt.search.strategy import Beam
from mt.serving.api import Result, TranslateRequest, TranslationAnswer

LOG = logging.getLogger(__name__)

# Source tokens of a turn, half a second of work on a small CPU; of CTranslate2, which has a worker for each
# core, for each sentence that it translates at once. With a beam, they count once for each hypothesis.
_TURN_TOKENS = {"torch": 1024, "ctranslate2": 16}
_TIMES_ON_CUDA = 16
_CHARACTERS_OF_A_TOKEN = 4
_LARGE_AT_ONCE = 2
"""Requests of more than one turn that are searched at the same time."""


class _AbandonedError(Exception):
    """Nobody is waiting for the batch any more."""


class _InTurns:
    """An engine that computes in the one thread given, and lets others compute there after each turn."""

    def __init__(self, engine: Engine, thread: ThreadPoolExecutor) -> None:
        self._engine, self._thread = engine, thread
        self.turn_tokens = _TURN_TOKENS[engine.name]
        self.turn_tokens *= engine.batch_sentences if engine.name == "ctranslate2" else 1
        self.turn_tokens *= _TIMES_ON_CUDA if engine.device == "cuda" else 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def search(
        self, sentences: Sequence[Sentence], rules: Rules, check: Check, after: After
    ) -> list[list[Hypothesis]]:
        """Search as the engine does, in turns."""
        found: dict[int, list[Hypothesis]] = {}
        for batch in batches_by_length(sentences, self.turn_tokens // rules.beam.size):
            some = [sentences[index] for index in batch]
            turn = self._thread.submit(self._engine.search, some, rules, check, lambda indices: None)
            found |= zip(batch, turn.result(), strict=True)
            after(batch)
        return [found[index] for index in range(len(sentences))]

    def attention(self, *arguments: Any) -> Any:
        """The attention that the engine records."""
        return self._thread.submit(self._engine.attention, *arguments).result()


@dataclass(frozen=True, eq=False)
class _Job:
    """The texts of one request, which are answered together."""

    texts: Sequence[str]
    asked: TranslateRequest
    results: asyncio.Future[list[Result]]
    turns: float
    """How many turns it takes, at most."""


class BatchedTranslator:
    """Translates the requests of an event loop in a thread of its own, one batch after the other."""

    def __init__(self, load: Callable[[], Translator], name: str, *, max_waiting: int) -> None:
        """Load a translator, which must not be used elsewhere; an empty queue accepts any request."""
        self.name = name
        self.count_batch: Callable[[int], object] = lambda num_texts: None
        """Called with the number of texts in each batch."""
        self._load = load
        # The same thread for all turns, because each thread that uses torch gets its own OpenMP threads.
        self._thread = ThreadPoolExecutor(1)
        self._readers = ThreadPoolExecutor(1 + _LARGE_AT_ONCE)
        self._room_for_large = asyncio.Semaphore(_LARGE_AT_ONCE)
        self.translator = self._in_turns(load())
        self.src, self.tgt = self.translator.facts.src, self.translator.facts.tgt
        self._max_waiting = max_waiting
        self._jobs: list[_Job] = []
        self._worker: asyncio.Task[None] | None = None

    def reload(self) -> None:
        """Load the translator again, and use it from the next batch on; keep the old one if that fails."""
        try:
            self.translator = self._in_turns(self._load())
        except Exception as error:  # Nobody reads the result of this thread.
            kind = "" if isinstance(error, MtError) else f"{type(error).__name__}: "
            LOG.error("%s is served as it was loaded before: %s%s", self.name, kind, error)
            return
        LOG.info("%s: serving %s", self.name, self.translator.facts.checkpoint)

    def _in_turns(self, loaded: Translator) -> Translator:
        translator = copy(loaded)
        engine: Any = _InTurns(loaded.engine, self._thread)
        translator.engine = engine
        return translator

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
        engine: Any = self.translator.engine
        turns = asked.beam * sum(map(len, texts)) / _CHARACTERS_OF_A_TOKEN / engine.turn_tokens
        job = _Job(texts, asked, asyncio.get_running_loop().create_future(), turns)
        self._jobs.append(job)
        if turns > 1:
            large = asyncio.create_task(self._work_beside(job))
            job.results.add_done_callback(lambda _: large)  # Otherwise it might be collected.
        elif self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await job.results

    def num_waiting(self) -> int:
        """How many texts wait."""
        return sum(len(job.texts) for job in self._jobs if not job.results.done())

    async def _work(self) -> None:
        """Translate the oldest request, with others of its settings in the same turn, until none waits."""
        while waiting := [job for job in self._jobs if job.turns <= 1 and not job.results.done()]:
            beam, n_best = waiting[0].asked.beam, waiting[0].asked.n_best
            served, turns = [], 0.0
            for job in waiting:
                if (job.asked.beam, job.asked.n_best) == (beam, n_best) and turns + job.turns <= 1:
                    served.append(job)
                    turns += job.turns
            await self._answer(served)

    async def _work_beside(self, job: _Job) -> None:
        """Translate a request of more than one turn, which takes turns with the others."""
        async with self._room_for_large:
            if not job.results.done():
                await self._answer([job])

    async def _answer(self, jobs: Sequence[_Job]) -> None:
        self._jobs = [job for job in self._jobs if job not in jobs and not job.results.done()]
        try:
            loop = asyncio.get_running_loop()
            answers = await loop.run_in_executor(self._readers, self._translate, jobs)
        except Exception as error:
            for job in jobs:
                if isinstance(error, LinesError) and len(jobs) > 1:
                    # A bad text fails its own request alone, by its number there.
                    await self._answer([job])
                elif not job.results.done():
                    job.results.set_exception(error)
            return
        for job, results in zip(jobs, answers, strict=True):
            if not job.results.done():
                job.results.set_result(results)

    def _translate(self, jobs: Sequence[_Job]) -> list[list[Result]]:
        def stop_if_abandoned() -> None:
            if all(job.results.done() for job in jobs):
                raise _AbandonedError

        # Another one may be loaded meanwhile.
        translator, asked = self.translator, jobs[0].asked
        texts = [text for job in jobs for text in job.texts]
        self.count_batch(len(texts))
        translations = translator.n_best(
            texts,
            num_best=asked.n_best,
            strategy=Beam(asked.beam) if asked.beam > 1 else None,
            before_each_step=stop_if_abandoned,
        )
        rest = iter(translations)
        return [[_result(translator, text, next(rest), job) for text in job.texts] for job in jobs]


def _result(translator: Translator, text: str, best_first: Sequence[Translation], job: _Job) -> Result:
    answers = [
        TranslationAnswer(text=each.text, score=each.score, log_prob=each.log_prob) for each in best_first
    ]
    if job.asked.alignment and not job.results.done():
        alignments = translator.align(text, best_first)
        for answer, alignment in zip(answers, alignments, strict=True):
            answer.alignment = None if alignment is None else list(alignment)
    [source] = translator.src_tokenizer.form.rewrite([text])
    return Result(source=source, translations=answers)
