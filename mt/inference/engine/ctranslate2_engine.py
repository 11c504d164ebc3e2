"""The engine of CTranslate2: it searches with a converted model, by our rules as far as it knows them.

It needs no torch: only ids go in, and hypotheses come out.
"""

import contextlib
import ctypes
import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import ctranslate2

from mt.errors import CheckpointError
from mt.inference.engines import EngineName, Rules, Sentence, too_large
from mt.search.hypothesis import Hypothesis, normalised_score
from mt.search.strategy import Beam, Sampling
from mt.special_tokens import BOS, EOS, EOS_ID, PAD, UNK_ID

if TYPE_CHECKING:
    from mt.device import SearchPrecision

LOG = logging.getLogger(__name__)

# CTranslate2's names of what it computes in; all that are not listed have weights of 8 bits.
_PRECISIONS: "dict[str, SearchPrecision]" = {"float32": "float32", "float16": "fp16", "bfloat16": "bf16"}
_USUAL_LENGTH = 20
"""Tokens in a typical sentence. CTranslate2 has one length penalty for all sentences of a call, and it must
not depend on the sentences."""
_BATCH_TOKENS = {"cpu": 2048, "cuda": 16_384}
"""Source tokens in a batch, with padding; with a beam, those of a sentence count once for each hypothesis."""
_FEWEST_TOKENS = 64
_SERVED_AT_ONCE = 32
"""Sentences for each worker that the service translates at once."""
_BATCH_SECONDS = 0.75
"""Batches that take longer become smaller, so that progress is seen and Ctrl-C obeyed."""

_GREEDY = Beam(1)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@dataclass(frozen=True)
class _Batch:
    indices: Sequence[int]
    """The sentences, by their indices in the search; none if this is only a kind of batch."""
    limit: int
    """The most tokens in each translation; in a kind, 0 is the highest limit of its sentences."""
    with_unk: bool
    """Whether UNK may be written."""
    returns_attention: bool
    returns_all: bool = False
    """Whether to return all hypotheses of a beam that is stopped by its limit."""


class CTranslate2Engine:
    """An `mt.inference.engines.Engine` over a folder that CTranslate2 loads.

    As in our search, PAD and BOS are never written, UNK only as a copy, a translation may be empty, and each
    sentence has its own limit, at which finished hypotheses are preferred.
    """

    name: EngineName = "ctranslate2"

    def __init__(
        self,
        folder: Path,
        src_names: Sequence[str],
        tgt_names: Sequence[str],
        *,
        device: Literal["cpu", "cuda"] = "cpu",
        compute_type: str = "default",
        copies_well: bool = True,
        why: str = "",
    ) -> None:
        """Load the model in ``folder``, whose tokens have these names, by id.

        ``compute_type`` is CTranslate2's word for a precision, by default that of the folder. ``copies_well``
        says whether unknown words may be copied with it, ``why`` why this engine was chosen.
        """
        self._folder = folder
        self.device: str = device
        self.why = why
        self._copies_well = copies_well
        self.num_workers = 1 if device == "cuda" else _num_threads()
        self.batch_sentences = _SERVED_AT_ONCE * self.num_workers
        _keep_freed_memory()
        self._translator = self._load(compute_type)
        self.precision: SearchPrecision = _PRECISIONS.get(self._translator.compute_type, "int8")
        self._src_names = list(src_names)
        self._tgt_names = list(tgt_names)
        self._tgt_ids = {name: number for number, name in enumerate(tgt_names)}
        self._batch_tokens = float(_BATCH_TOKENS[device])

    def _load(self, compute_type: str) -> ctranslate2.Translator:
        try:
            return ctranslate2.Translator(
                # As bytes, because it does not accept text that is not UTF-8.
                os.fsencode(self._folder),
                inter_threads=self.num_workers,
                intra_threads=1,
                device=self.device,
                compute_type=compute_type,
            )
        # These are its only errors for everything that may be wrong with the files.
        except (RuntimeError, ValueError) as error:
            raise CheckpointError(f"CTranslate2 cannot load {self._folder}: {error}.") from error

    def why_not(self, rules: Rules, sentence: Sentence) -> str | None:
        """What it cannot do: sampling with a seed for each line, and copying that was found wanting."""
        if isinstance(rules.strategy, Sampling):
            return "it does not sample with a seed for each line"
        if rules.copies_words and not self._copies_well and UNK_ID in sentence.ids:
            return "it copies too few of this model's unknown words"
        return None

    def search(
        self,
        sentences: Sequence[Sentence],
        rules: Rules,
        *,
        check: Callable[[], None] = lambda: None,
        after: Callable[[Sequence[int]], None] = lambda indices: None,
    ) -> list[list[Hypothesis]]:
        """Search as in `Engine`: batches of like length are translated at once, a worker for each thread."""
        return _Search(self, sentences, rules, check, after).run()

    def submit(self, sentences: Sequence[Sentence], rules: Rules, batch: _Batch) -> list[Any]:
        """Begin to translate some sentences; what is returned waits for their results."""
        beam = rules.strategy if isinstance(rules.strategy, Beam) else _GREEDY
        chosen = [sentences[index] for index in batch.indices]
        prefixes = [[self._tgt_names[token] for token in sentence.prefix] for sentence in chosen]
        # With patience 2, a search continues to its limit, where up to N unfinished hypotheses are added.
        patience = 2 if batch.returns_all and beam.size > 1 else 1
        results: list[Any] = self._translator.translate_batch(
            [[self._src_names[token] for token in sentence.ids] for sentence in chosen],
            target_prefix=prefixes if any(prefixes) else None,
            beam_size=beam.size,
            patience=patience,
            num_hypotheses=beam.size * patience,
            length_penalty=_length_penalty(beam),
            disable_unk=not batch.with_unk,
            suppress_sequences=[[PAD], [BOS]],
            return_end_token=True,
            max_input_length=0,
            max_decoding_length=batch.limit,
            min_decoding_length=rules.constraints.min_length,
            no_repeat_ngram_size=rules.constraints.no_repeat_ngram,
            return_scores=rules.with_scores or beam.size > 1,
            return_attention=batch.returns_attention,
            asynchronous=True,
        )
        return results

    def hypothesis(self, tokens: Sequence[str], score: float, beam: Beam) -> Hypothesis:
        """A hypothesis of CTranslate2, whose score is divided by its length."""
        is_finished = tokens[-1:] == [EOS]
        ids = [self._tgt_ids[token] for token in (tokens[:-1] if is_finished else tokens)]
        return Hypothesis(ids, score * max(1, len(tokens)) ** _length_penalty(beam), is_finished)

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Any]:
        """Begin to score targets; each result waits for the ``log_probs`` of its tokens and of EOS."""
        results: list[Any] = self._translator.score_batch(
            [[self._src_names[token] for token in ids] for ids in sources],
            [[self._tgt_names[token] for token in ids] for ids in targets],
            max_input_length=0,
            max_batch_size=_BATCH_TOKENS[self.device],
            batch_type="tokens",
            asynchronous=True,
        )
        return results

    def attention(
        self, source: Sequence[int], targets: Sequence[Sequence[int]]
    ) -> list[Sequence[Sequence[float]]]:
        """How much each token of each target attends to each token of the source, by the head that aligns."""
        results = self._translator.translate_batch(
            [[self._src_names[token] for token in source]] * len(targets),
            target_prefix=[[self._tgt_names[token] for token in ids] for ids in targets],
            beam_size=1,
            max_input_length=0,
            max_decoding_length=max(map(len, targets)) + 1,
            return_attention=True,
        )
        return [each.attention[0] for each in results]

    def why_unusable(self) -> str | None:
        """Why a model that was loaded cannot compute; None if it can.

        The libraries of CUDA 12, which are not those of torch, are loaded by the first product.
        """
        try:
            self._translator.translate_batch([[EOS]], beam_size=1, max_decoding_length=1)
        except RuntimeError as error:
            return str(error)
        return None

    def batches(
        self, sentences: Sequence[Sentence], indices: Sequence[int], beam_size: int
    ) -> Iterator[list[int]]:
        """Divide sentences into batches of like length, the longest first, as large as they are fast."""
        order = sorted(indices, key=lambda index: -len(sentences[index].ids))
        lengths = [len(sentences[index].ids) + 1 for index in order]
        # Few sentences are divided among the workers, unless these have other batches.
        left = sum(lengths)
        share = left / (1 if self.num_active >= self.num_workers else self.num_workers)
        start = 0
        while start < len(order):
            most = max(_FEWEST_TOKENS, self._batch_tokens / beam_size)
            wanted = left / math.ceil(left / max(_FEWEST_TOKENS, min(share, most)))
            end, taken = start, 0
            while taken < wanted and (end == start or (end + 1 - start) * lengths[start] <= most):
                taken += lengths[end]
                end += 1
            yield order[start:end]
            start, left = end, left - taken

    def adapt(self, seconds: float, num_active: int) -> None:
        """Make further batches smaller or larger, after the last of ``num_active`` took this long."""
        seconds *= min(1, self.num_workers / max(1, num_active))
        most = _BATCH_TOKENS[self.device]
        self._batch_tokens = max(_FEWEST_TOKENS, min(most, self._batch_tokens * _BATCH_SECONDS / seconds))

    @property
    def num_active(self) -> int:
        """How many batches CTranslate2 has been given, by all searches, and has not finished."""
        num_active: int = self._translator.num_active_batches
        return num_active


class _Search:
    """One search, whose batches are submitted while earlier ones are translated."""

    def __init__(
        self,
        engine: CTranslate2Engine,
        sentences: Sequence[Sentence],
        rules: Rules,
        check: Callable[[], None],
        after: Callable[[Sequence[int]], None],
    ) -> None:
        self._engine, self._sentences, self._rules = engine, list(sentences), rules
        self._check, self._after = check, after
        self._beam = rules.strategy if isinstance(rules.strategy, Beam) else _GREEDY
        self._copies = rules.copies_words and not rules.keep_unk
        self._found: dict[int, list[Hypothesis]] = {}
        self._again: dict[_Batch, list[int]] = {}
        self._prefix_scores: dict[int, Any] = {}

    def run(self) -> list[list[Hypothesis]]:
        """Find the translations of all sentences."""
        self._score_prefixes([index for index, each in enumerate(self._sentences) if each.prefix])
        self._translate(self._first_batches())
        while self._again:
            again, self._again = self._again, {}
            self._score_prefixes(
                [index for indices in again.values() for index in indices if self._sentences[index].prefix]
            )
            self._translate(
                replace(kind, indices=indices, limit=kind.limit or self._longest(indices))
                for kind, all_indices in again.items()
                for indices in self._engine.batches(self._sentences, all_indices, self._beam.size)
            )
        return [self._found[index] for index in range(len(self._sentences))]

    def _longest(self, indices: Sequence[int]) -> int:
        """The highest limit of these sentences, for a call that has one for all of them."""
        return max(self._sentences[index].limit for index in indices)

    def _score_prefixes(self, given: Sequence[int]) -> None:
        """Score the prefixes of these sentences, which a search counts as certain."""
        if given and (self._rules.with_scores or self._beam.size > 1):
            sentences = [self._sentences[index] for index in given]
            scored = self._engine.score([each.ids for each in sentences], [each.prefix for each in sentences])
            self._prefix_scores |= zip(given, scored, strict=True)

    def _prefix_score(self, index: int) -> float:
        scored = self._prefix_scores.get(index)
        return sum(scored.result().log_probs[: len(self._sentences[index].prefix)]) if scored else 0.0

    def _first_batches(self) -> Iterator[_Batch]:
        """All sentences; those with words to copy have batches of their own, and those with a prefix."""
        groups: dict[tuple[bool, bool], list[int]] = {}
        for index, sentence in enumerate(self._sentences):
            copies = self._copies and UNK_ID in sentence.ids
            groups.setdefault((copies, bool(sentence.prefix)), []).append(index)
        for (copies, _), indices in groups.items():
            for batch in self._engine.batches(self._sentences, indices, self._beam.size):
                yield _Batch(batch, self._longest(batch), copies or self._rules.keep_unk, copies)

    def _translate(self, batches: Iterator[_Batch]) -> None:
        in_flight: deque[tuple[_Batch, list[Any], float, int]] = deque()
        for batch in batches:
            self._check()
            in_flight.append(self._submit(batch))
            while in_flight and self._engine.num_active >= 2 * self._engine.num_workers:
                self._take(*in_flight.popleft())
        while in_flight:
            self._take(*in_flight.popleft())

    def _submit(self, batch: _Batch) -> tuple[_Batch, list[Any], float, int]:
        results = self._engine.submit(self._sentences, self._rules, batch)
        return batch, results, time.monotonic(), self._engine.num_active

    def _take(self, batch: _Batch, results: Sequence[Any], started: float, num_active: int) -> None:
        is_waited_for = not results[0].done()
        try:
            done = [each.result() for each in results]
        except RuntimeError as error:
            # The one on CUDA and the one on the CPU.
            if not any(text in str(error) for text in ("out of memory", "failed to allocate memory")):
                raise CheckpointError(f"CTranslate2 cannot translate: {error}.") from error
            self._take_halves(batch)
            return
        if is_waited_for:
            self._engine.adapt(time.monotonic() - started, num_active)
        final = [
            index for index, each in zip(batch.indices, done, strict=True) if self._keep(batch, index, each)
        ]
        self._after(final)

    def _take_halves(self, batch: _Batch) -> None:
        """Translate a batch that does not fit into memory in two parts, which changes no translation."""
        indices, middle = batch.indices, len(batch.indices) // 2
        if not middle:
            raise too_large(self._sentences[indices[0]])
        LOG.warning("out of memory: a batch of %d sentences was split in two.", len(indices))
        for part in (indices[:middle], indices[middle:]):
            half = replace(batch, indices=part)
            self._take(*self._submit(half))

    def _keep(self, batch: _Batch, index: int, result: Any) -> bool:
        """Keep what was found for a sentence, or have it searched again; return whether it is kept."""
        sentence = self._sentences[index]
        scores = result.scores or [float("nan")] * len(result.hypotheses)
        found = [
            self._engine.hypothesis(tokens, score, self._beam)
            for tokens, score in zip(result.hypotheses, scores, strict=True)
        ]
        read = list(zip(found, result.attention or repeat(()), strict=False))
        if batch.returns_all:
            read = [each for each in read if each[0].finished] or read
        elif any(not each.finished or len(each.ids) >= sentence.limit for each, _ in read):
            # A call has one limit for all its sentences: this one has exceeded or reached its own.
            if self._beam.size > 1 or (self._rules.with_scores and batch.limit != sentence.limit):
                kind = replace(batch, indices=(), limit=sentence.limit, returns_all=True)
                self._again.setdefault(kind, []).append(index)
                return False
            read = [
                (replace(each, ids=each.ids[: sentence.limit], finished=False), rows) for each, rows in read
            ]
        if self._copies and (batch.returns_attention or sentence.prefix):
            copies = [copies_of(each, sentence, rows) for each, rows in read]
            if copies[0].step is not None:
                return self._search_from(index, copies[0], read[0][0])
            read = [
                (replace(each, copied=its.positions), rows)
                for (each, rows), its in zip(read, copies, strict=True)
                if list(each.ids).count(UNK_ID) == len(its.positions)
            ]
        ranked = [each for each, _ in read]
        if added := self._prefix_score(index):
            ranked = [replace(each, score=each.score + added) for each in ranked]
        if self._beam.size > 1:
            ranked.sort(
                key=lambda each: (
                    -normalised_score(each, self._beam.length_penalty, self._beam.length_normalization)
                )
            )
        self._found[index] = ranked[: self._beam.size]
        return True

    def _search_from(self, index: int, copies: "Copies", hypothesis: Hypothesis) -> bool:
        """Search again from the step at which a word is to be copied, or none; return whether that is all."""
        sentence = self._sentences[index]
        positions = iter(copies.positions)
        prefix = list(hypothesis.ids[: copies.step])
        copied = [next(positions) if token == UNK_ID else -1 for token in prefix]
        if copies.position is not None:
            prefix.append(UNK_ID)
            copied.append(copies.position)
        self._sentences[index] = replace(sentence, prefix=prefix, prefix_copies=copied)
        if len(prefix) >= sentence.limit:
            self._score_prefixes([index])
            written = [position for position in copied if position >= 0]
            score = self._prefix_score(index) if index in self._prefix_scores else float("nan")
            self._found[index] = [Hypothesis(prefix, score, False, written)]
            return True
        # Without UNK, which is now put where it belongs.
        self._again.setdefault(_Batch((), 0, with_unk=False, returns_attention=True), []).append(index)
        return False


@dataclass(frozen=True)
class Copies:
    """What the UNK of a hypothesis copy, up to the first step that breaks the rule of copying."""

    positions: Sequence[int]
    """The source position of each."""
    step: int | None = None
    """The first step at which UNK was written though no word is to be copied, or the other way round."""
    position: int | None = None
    """The word that is to be copied in that step."""


def copies_of(hypothesis: Hypothesis, sentence: Sentence, attention: Sequence[Sequence[float]]) -> Copies:
    """Read from the aligning head which words are copied, by the rule of `mt.search.copying`.

    A word is to be copied where the head attends most to it, unless it has been copied already; elsewhere
    UNK is not to be written. Without ``attention``, only a prefix copies.
    """
    done: set[int] = set()
    positions: list[int] = []
    written = [*hypothesis.ids, EOS_ID] if hypothesis.finished else hypothesis.ids
    for step, token in enumerate(written):
        if step < len(sentence.prefix):
            position = sentence.prefix_copies[step]
            is_copied = token == UNK_ID
        elif attention:
            others = [other for other in range(len(sentence.ids)) if other not in done]
            position = max(others, key=lambda other: attention[step][other], default=-1)
            is_copied = position >= 0 and sentence.ids[position] == UNK_ID
            if is_copied != (token == UNK_ID):
                return Copies(positions, step, position if is_copied else None)
        else:
            break
        if is_copied:
            positions.append(position)
            if position >= 0 and sentence.ids[position] == UNK_ID:
                done.add(position)
    return Copies(positions)


def _length_penalty(beam: Beam) -> float:
    """The length exponent with which CTranslate2 ranks as similarly as possible to ``beam``.

    It decides what is dropped if more than N hypotheses have finished; we rank the others ourselves.
    """
    exponent = beam.length_penalty
    if beam.length_normalization == "gnmt":
        # Around this length, (5 + length) grows as this power of the length.
        exponent *= _USUAL_LENGTH / (5 + _USUAL_LENGTH)
    # With 0, the search would end with its first hypothesis.
    return max(exponent, 1e-6)


def _keep_freed_memory() -> None:
    """Let glibc keep what a batch frees for the next one: new pages took 8 to 20 % of the time."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        c_library = ctypes.CDLL(None)
        c_library.mallopt(_M_TRIM_THRESHOLD, 1 << 28)
        c_library.mallopt(_M_MMAP_THRESHOLD, 1 << 25)


def _num_threads() -> int:
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdigit() and int(given):
        return int(given)
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
