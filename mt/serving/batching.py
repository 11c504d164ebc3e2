"""Batches across requests: whatever waits when the translator is free is translated together.

After half a second, a batch makes way for one of at most half its size, so that nobody waits for a much
larger request. Which texts share a batch does not change their translations, except for ties (`mt.search`).
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from mt.errors import DataError, MtError
from mt.inference.engines import CheckStop, Engine, NBest, OnDone, Rules, Sentences, in_batches
from mt.inference.markup.documents import Documents
from mt.inference.segments import Translation
from mt.inference.translator import Translator
from mt.search.strategy import Beam
from mt.serving.api import Result, TranslateRequest, TranslationAnswer
from mt.serving.log import BATCH_TEXTS, WAITING_TEXTS

LOG = logging.getLogger(__name__)

_TURN_SECONDS = 0.5
# Of a sentence: a batch has as many as the engine likes, and CTranslate2 searches as many before it stops.
_CHARACTERS = 64
_TOKENS = 16


def _search_in_turns(
    engine: Engine, sentences: Sentences, rules: Rules, check_stop: CheckStop, on_done: OnDone
) -> NBest:
    """Search as the engine does, which does not stop before it is done, with some sentences at a time."""

    def search(some: Sentences) -> NBest:
        return engine.search(some, rules, check_stop, lambda indices: None)

    return in_batches(search, sentences, _TOKENS * engine.batch_sentences // rules.beam.size, on_done)


@dataclass(frozen=True, eq=False)
class _Job:
    """The texts of one request, which are answered together."""

    texts: Sequence[str]
    request: TranslateRequest
    results: Future[list[Result]] = field(default_factory=Future)

    @property
    def settings(self) -> tuple[object, ...]:
        """What is the same for all texts of a batch."""
        return self.request.beam, self.request.n_best, self.request.src, self.request.tgt

    @property
    def size(self) -> int:
        """Its characters, which count once for each hypothesis."""
        return self.request.beam * sum(map(len, self.texts))


class BatchedTranslator:
    """Translates the requests of an event loop in a thread of its own, one batch after the other."""

    def __init__(self, load: Callable[[], Translator], name: str, *, max_waiting: int) -> None:
        """Load a translator, which must not be used elsewhere; an empty queue accepts any request."""
        self.name = name
        self._load = load
        self.translator = self._loaded()
        self._max_waiting = max_waiting
        self._jobs: list[_Job] = []
        WAITING_TEXTS.labels(name).set_function(self.num_waiting)
        # The same thread for all batches, because each thread that uses torch gets its own OpenMP threads.
        self._thread = ThreadPoolExecutor(1)

    def reload(self) -> None:
        """Load the translator again, and use it from the next batch on; keep the old one if that fails."""
        try:
            self.translator = self._loaded()
        except Exception as error:  # Nobody reads the result of this thread.
            kind = "" if isinstance(error, MtError) else f"{type(error).__name__}: "
            LOG.error("%s is served as it was loaded before: %s%s", self.name, kind, error)
            return
        LOG.info("%s: serving %s", self.name, self.translator.facts.checkpoint)

    def _loaded(self) -> Translator:
        translator = self._load()
        if translator.engine.name == "ctranslate2":
            engine: Any = copy(translator.engine)
            engine.search = partial(_search_in_turns, translator.engine)
            translator.engine = engine
        return translator

    def health(self) -> dict[str, object]:
        """What translates, and how many texts are waiting for it."""
        engine = self.translator.engine
        facts = self.translator.facts
        return {
            "run": self.name,
            "src": facts.src,
            "tgt": facts.tgt,
            "directions": [direction._asdict() for direction in self.translator.directions],
            "example": facts.example,
            "checkpoint": facts.checkpoint,
            "engine": engine.name,
            "precision": engine.precision,
            "device": engine.device,
            "why": self.translator.why,
            "waiting": self.num_waiting(),
        }

    async def translate(self, texts: Sequence[str], request: TranslateRequest) -> list[Result]:
        """Wait for the translations of a request, if there is room for it; cancelling takes it back."""
        num_waiting = self.num_waiting()
        if num_waiting and num_waiting + len(texts) > self._max_waiting:
            raise asyncio.QueueFull
        job = _Job(texts, request)
        self._jobs.append(job)
        self._thread.submit(self._work)
        return await asyncio.wrap_future(job.results)

    def num_waiting(self) -> int:
        """How many texts wait."""
        waiting = [job for job in [*self._jobs] if not job.results.done()]
        return sum(len(job.texts) for job in waiting)

    def _work(self, most: float = math.inf) -> None:
        """Answer the oldest request of at most this size, with others of its settings."""
        served: list[_Job] = []
        room = min(most, _CHARACTERS * self.translator.engine.batch_sentences)
        for job in [*self._jobs]:
            is_alike = not served or job.settings == served[0].settings
            if job.results.done():
                self._jobs.remove(job)
            elif is_alike and job.size <= (room if served else most):
                self._jobs.remove(job)
                served.append(job)
                room -= job.size
        if served:
            self._answer(served)

    def _answer(self, jobs: Sequence[_Job]) -> None:
        try:
            for job, results in self._translate(jobs):
                with suppress(InvalidStateError):
                    job.results.set_result(results)
        except Exception as error:
            for job in jobs:
                if isinstance(error, DataError) and len(jobs) > 1:
                    # A bad text fails its own request alone, by its number there.
                    self._answer([job])
                else:
                    with suppress(InvalidStateError):
                        job.results.set_exception(error)

    def _translate(self, jobs: Sequence[_Job]) -> Iterator[tuple[_Job, list[Result]]]:
        turn_began = time.monotonic()

        def check() -> None:
            nonlocal turn_began
            if all(job.results.done() for job in jobs):
                raise CancelledError
            if time.monotonic() - turn_began > _TURN_SECONDS:
                self._work(sum(job.size for job in jobs) / 2)
                turn_began = time.monotonic()

        request = jobs[0].request
        # Another one may be loaded meanwhile.
        translator = self.translator.into(request.tgt, request.src)
        pages: list[Documents | None] = []
        texts: list[str] = []
        for job in jobs:
            for text in job.texts:
                format = job.request.format
                page = None if format == "text" else Documents(translator, [text], format)
                pages.append(page)
                texts += [text] if page is None else page.texts
        BATCH_TEXTS.labels(self.name).observe(len(texts))
        strategy = Beam(request.beam) if request.beam > 1 else None
        options: dict[str, Any] = {"num_best": request.n_best, "strategy": strategy}
        options["with_attention"] = any(pages)
        translations = iter(translator.n_best(texts, before_each_step=check, **options))
        page_of_text = iter(pages)
        for job in jobs:
            results = []
            for text in job.texts:
                check()
                page = next(page_of_text)
                if page is None:
                    results.append(_result(translator, text, next(translations), job.request))
                    continue
                best = [first for first, *_ in islice(translations, len(page.texts))]
                answer = TranslationAnswer(
                    text=page.translated(best)[0],
                    score=math.fsum(first.score for first in best),
                    log_prob=math.fsum(first.log_prob for first in best),
                    unknown=[word for first in best for word in first.unknown],
                    copied=[word for first in best for word in first.copied],
                )
                results.append(Result(source=text, translations=[answer]))
            yield job, results


def _result(
    translator: Translator, text: str, best_first: Sequence[Translation], request: TranslateRequest
) -> Result:
    answers = [TranslationAnswer.model_validate(best, from_attributes=True) for best in best_first]
    if request.alignment:
        alignments = translator.align(text, best_first)
        for answer, alignment in zip(answers, alignments, strict=True):
            answer.alignment = None if alignment is None else list(alignment)
    [source] = translator.src_tokenizer.form.rewrite([text])
    return Result(source=source, translations=answers)
