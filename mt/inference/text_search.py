"""Text in, text out: lines become token ids, an engine searches, and hypotheses become lines."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TypedDict, Unpack

import torch

from mt import distributed, processes
from mt.data.batches.batch import pad
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.device import SearchPrecision, overflow_remedy, split_on_out_of_memory
from mt.display import counted
from mt.errors import ConfigError, LinesError, OverflowedLinesError, Remedy
from mt.inference.engines import Engine
from mt.inference.grouping import group_by_length
from mt.inference.segments import (
    Segment,
    Translation,
    as_translation,
    count_finished_lines,
    joined,
    read_segments,
    refuse_split_lines,
)
from mt.inference.source_reader import SourceReader
from mt.search.hypothesis import Hypothesis, NotFiniteError, cut_all, length_limit, normalised_score
from mt.search.request import NO_CONSTRAINTS, Constraints, SearchRequest
from mt.search.strategy import Beam, Strategy
from mt.special_tokens import EOS_ID, UNK_ID
from mt.threads import Check, map_at_once
from mt.transformer.packed_transformer import LENGTHENED_TO

LOG = logging.getLogger(__name__)

_BATCH_TOKENS, _BEAM_TOKENS = 8192, 16_384
"""Source positions in a batch, including padding, so that long sentences need no more memory; with a beam,
those of a sentence count once for each of its hypotheses. A batch has more of them if a single sentence has,
and up to an eighth more if lengths are padded (`group_by_length`)."""
_TIMES_ON_CUDA = 4
"""How many times as many they are on CUDA, where more sentences hardly lengthen a step."""


class SearchOptions(TypedDict, total=False):
    """The options of `TextSearch.n_best`, which documents them and has their defaults."""

    strategy: Strategy
    constraints: Constraints
    max_length: int | None
    prefixes: Sequence[str]
    keep_unk: bool
    refuse_long: bool
    first_line: int
    advance: Callable[[int], object]
    before_each_step: Callable[[], None]


class TextSearch:
    """Translates lines of text with any engine; the length rules are the same for all engines."""

    def __init__(
        self,
        engine: Engine,
        src_tokenizer: Tokenizer,
        tgt_tokenizer: Tokenizer,
        *,
        max_length: int,
        batch_sentences: int,
        target_ratio: float = 1.0,
        copies_words: bool = False,
        dictionary: Mapping[str, str] | None = None,
        precision: SearchPrecision = "float32",
    ) -> None:
        """Combine an engine with the tokenizers of its model.

        Args:
            engine: The engine that searches.
            src_tokenizer: The tokenizer of the source language.
            tgt_tokenizer: The tokenizer of the target language.
            max_length: The most tokens that the model reads or writes, including EOS.
            batch_sentences: The maximum number of sentences to translate at once.
            target_ratio: Target tokens per source token in the training data, for `length_limit`.
            copies_words: Whether model and engine can copy unknown words.
            dictionary: Source words, with the translations to use for them, if words can be copied.
            precision: What the engine computes in.
        """
        self.engine = engine
        self.max_length = max_length
        self.copies_words = copies_words
        self.precision = precision
        self._pads_lengths = precision != "float32" and engine.device.type == "cpu"
        self.src_tokenizer = src_tokenizer
        self.tgt_tokenizer = tgt_tokenizer
        self.reader = SourceReader(src_tokenizer, dictionary or {}, copies=copies_words)
        self._prefix_reader = SourceReader(tgt_tokenizer, {}, copies=True)
        self.batch_sentences = batch_sentences
        self._target_ratio = target_ratio

    def translate(self, texts: Sequence[str], **options: Unpack[SearchOptions]) -> list[str]:
        """Translate lines and return the best translation of each, in order; that of an empty line is empty.

        The options and the errors are those of `n_best`.
        """
        return [best.text for best, *_ in self.n_best(texts, with_scores=False, **options)]

    def n_best(
        self,
        texts: Sequence[str],
        *,
        num_best: int = 1,
        strategy: Strategy = None,
        constraints: Constraints = NO_CONSTRAINTS,
        max_length: int | None = None,
        prefixes: Sequence[str] = (),
        keep_unk: bool = False,
        refuse_long: bool = False,
        with_scores: bool = True,
        first_line: int = 1,
        advance: Callable[[int], object] = lambda num_lines: None,
        before_each_step: Callable[[], None] = lambda: None,
    ) -> list[list[Translation]]:
        """Translate lines and return for each, in order, its best translations, the best first.

        Args:
            texts: The lines.
            num_best: The maximum number of translations per line; more than 1 need a beam.
            strategy: The decoding strategy: `Beam`, `Sampling`, or None for greedy search.
            constraints: Constraints on the translation of each sentence.
            max_length: The most tokens in each sentence's translation, without EOS; a longer one is cut. It
                does not raise the limit of every translation (`length_limit`).
            prefixes: For each line the text that its translation starts with; an empty sequence for none.
            keep_unk: Whether the translation may contain the unknown-word token.
            refuse_long: Whether a sentence that is longer than the model can read is an error; if not, it is
                cut and translated in parts. A long *line* is split into sentences in either case.
            with_scores: Whether greedy search and sampling compute scores, which are NaN otherwise.
            first_line: The number of the first line, for messages and for the seed of sampling.
            advance: Called with the number of lines finished since the last call.
            before_each_step: Called before each batch of sentences and, unless CTranslate2 searches, before
                each step of its search, in any thread; may raise to stop.

        Raises:
            LinesError: If a sentence is too long and ``refuse_long``, or does not fit into memory; if its
                logits are NaN or infinite; if a prefix is too long; if a line must be split and ``num_best``
                is more than 1.
            ConfigError: If the minimum length is more than the model, or ``max_length``, permits.
            TypeError: If ``texts`` is a single string, whose letters would be taken for lines.
            ValueError: If ``num_best`` is below 1 or ``max_length`` below 0, if the numbers of prefixes and
                lines differ, or if ``constraints`` have prefixes.
        """
        if isinstance(texts, str):
            raise TypeError("texts must be a sequence of lines, not a single string")
        if num_best < 1 or (max_length or 0) < 0:
            raise ValueError(
                f"num_best must be at least 1 and max_length at least 0, not {num_best} and {max_length}"
            )
        if len(prefixes) not in (0, len(texts)):
            raise ValueError(
                f"there must be a prefix for each of the {len(texts)} lines, not {len(prefixes)}"
            )
        most = self._max_output_length(constraints.min_length, max_length)
        segments = self.read(texts, prefixes, most=most, first_line=first_line, refuse_long=refuse_long)
        if num_best > 1:
            refuse_split_lines(segments)
        found = self.search(
            segments,
            strategy,
            keep_unk=keep_unk,
            constraints=constraints,
            most=most,
            with_scores=with_scores,
            before_each_step=before_each_step,
            after_each_batch=count_finished_lines(len(texts), segments, advance),
        )
        return self.as_lines(len(texts), segments, found, strategy, num_best=num_best, max_length=max_length)

    def read(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] = (),
        *,
        most: int | None = None,
        first_line: int = 1,
        refuse_long: bool = False,
    ) -> list[Segment]:
        """Read lines as segments; a prefix may have at most ``most`` tokens, including EOS.

        The other arguments and the errors are those of `n_best`.
        """
        return read_segments(
            texts,
            prefixes,
            self.reader,
            self._prefix_reader,
            max_length=self.max_length,
            max_output_length=self.max_length if most is None else most,
            first_line=first_line,
            refuse_long=refuse_long,
        )

    def search(
        self,
        segments: Sequence[Segment],
        strategy: Strategy = None,
        *,
        keep_unk: bool = False,
        constraints: Constraints = NO_CONSTRAINTS,
        most: int | None = None,
        with_scores: bool = True,
        before_each_step: Callable[[], None] = lambda: None,
        after_each_batch: Callable[[Sequence[Segment]], None] = lambda batch: None,
    ) -> list[list[Hypothesis]]:
        """Find the hypotheses of each segment, in order, the best first.

        Segments of similar length are searched together; several processes share the batches, and each
        searches some of them at once. ``most`` is the most tokens in a translation, including EOS; the other
        arguments and the errors are those of `n_best`.
        """
        if constraints.prefixes:
            # They would be those of the places in a batch, not of the lines.
            raise ValueError("the prefixes of lines are text, in the argument prefixes, not in constraints")
        # Several processes make the same batches, whatever their number of threads.
        num_at_once = 1 if processes.are_several() else self.engine.num_at_once
        batches = self._batches(segments, strategy.size if isinstance(strategy, Beam) else 1, num_at_once)
        found: dict[int, list[Hypothesis]] = {}

        @torch.inference_mode()
        def search_batch(batch: list[Segment], check: Check) -> list[list[Hypothesis]]:
            request = self._request(batch, keep_unk, constraints, self.max_length if most is None else most)
            request = replace(request, with_scores=with_scores, before_each_step=check)
            # Segments of one line, and neighbouring lines, get numbers that are far apart.
            numbers = [segment.line + segment.number * 1_000_000_007 for segment in batch]
            try:
                return self.engine.search(request, strategy, numbers)
            except NotFiniteError as error:
                raise self._overflow([batch[place] for place in error.sentences]) from error

        def search_places(places: list[int], check: Check) -> list[list[Hypothesis]]:
            batch = [segments[place] for place in places]
            search = partial(search_batch, check=check)
            return list(chain.from_iterable(split_on_out_of_memory(search, batch, _halves)))

        def count(places: list[int]) -> None:
            # By then, the other processes have about finished their batches of about the same lengths.
            size = processes.size()
            first = batches.index(places) // size * size
            after_each_batch([segments[place] for batch in batches[first : first + size] for place in batch])

        def search_share(share: Sequence[list[int]]) -> list[list[list[Hypothesis]]]:
            return map_at_once(search_places, share, num_at_once, check=before_each_step, after=count)

        for places, hypotheses in zip(batches, distributed.deal(batches, search_share), strict=True):
            found |= zip(places, hypotheses, strict=True)
        return [found[place] for place in range(len(segments))]

    def _batches(self, segments: Sequence[Segment], beam_size: int, num_at_once: int) -> list[list[int]]:
        """The indices of the segments of each batch, as in `group_by_length`."""
        on_cuda = self.engine.device.type == "cuda"
        most_positions = min(_BATCH_TOKENS, _BEAM_TOKENS // beam_size)
        return group_by_length(
            [len(segment.tokens) + 1 for segment in segments],
            most_sentences=self.batch_sentences,
            most_positions=most_positions * _TIMES_ON_CUDA if on_cuda else most_positions,
            # The positions that the model adds only count on a CPU.
            multiple_of=LENGTHENED_TO if self._pads_lengths else 1,
            beam_size=beam_size,
            num_at_once=num_at_once,
        )

    def as_lines(
        self,
        num_lines: int,
        segments: Sequence[Segment],
        found: Sequence[Sequence[Hypothesis]],
        strategy: Strategy = None,
        *,
        num_best: int = 1,
        max_length: int | None = None,
    ) -> list[list[Translation]]:
        """Turn the hypotheses that ``strategy`` found for each segment into translations of each line.

        The other arguments are those of `n_best`.
        """
        lines: list[list[list[Translation]]] = [[] for _ in range(num_lines)]
        for segment, hypotheses in zip(segments, found, strict=True):
            scored = [(each, _ranking_score(each, strategy)) for each in hypotheses]
            if max_length is not None:
                scored = cut_all(scored, max_length)
            lines[segment.place].append(
                [
                    as_translation(segment, each, score, self.tgt_tokenizer)
                    for each, score in scored[:num_best]
                ]
            )
        return [parts[0] if len(parts) == 1 else [joined([part[0] for part in parts])] for parts in lines]

    def _max_output_length(self, min_length: int, max_length: int | None) -> int:
        """The most tokens that search writes, including EOS: the model's limit, or ``max_length`` + 1.

        A translation of ``max_length`` tokens is complete only if EOS follows them.
        """
        if max_length is not None and min_length > max_length:
            raise ConfigError(
                f"translations of at least {counted(min_length, 'token')} cannot have at most {max_length}. "
                "Lower the one or raise the other."
            )
        if min_length >= self.max_length:
            raise ConfigError(
                f"translations of at least {counted(min_length, 'token')} and EOS are longer than the "
                f"{self.max_length} tokens that this model writes (data.max_length when it was trained)."
            )
        return self.max_length if max_length is None else min(self.max_length, max_length + 1)

    def _overflow(self, segments: Sequence[Segment]) -> OverflowedLinesError:
        reasons = {
            segment.line: f"line {segment.line} has a sentence for which the model's logits in "
            f"{self.precision} are NaN or infinite."
            for segment in segments
        }
        return OverflowedLinesError(reasons, overflow_remedy(self.precision))

    def _request(
        self, segments: Sequence[Segment], keep_unk: bool, constraints: Constraints, most: int
    ) -> SearchRequest:
        """The search request; a translation has at most ``most`` tokens, including EOS."""
        src_ids = pad([[token.id for token in segment.tokens] for segment in segments], last=EOS_ID)
        limits = [
            length_limit(len(segment.tokens) + 1, self.max_length, target_ratio=self._target_ratio)
            for segment in segments
        ]
        if any(segment.prefix for segment in segments):
            prefixes = [[token.id for token in segment.prefix] for segment in segments]
            constraints = replace(constraints, prefixes=prefixes)
        if constraints != NO_CONSTRAINTS:
            # Room for the tokens that must be written, and for EOS after them.
            least = [max(constraints.min_length, len(segment.prefix)) + 1 for segment in segments]
            limits = [*map(max, limits, least)]
        limits = [min(limit, most) for limit in limits]
        src_ids = src_ids.to(self.engine.device)
        copyable = src_ids == UNK_ID if self.copies_words else None
        prefix_copies = [segment.prefix_copies() for segment in segments]
        return SearchRequest(src_ids, limits, keep_unk, copyable, prefix_copies, constraints)


def _ranking_score(hypothesis: Hypothesis, strategy: Strategy) -> float:
    if not isinstance(strategy, Beam):
        return hypothesis.score
    return normalised_score(hypothesis, strategy.length_penalty, strategy.length_normalization)


def _halves(segments: list[Segment]) -> tuple[list[Segment], list[Segment]]:
    """Split a batch that does not fit into memory, which does not change the translations."""
    if len(segments) == 1:
        [segment] = segments
        reason = (
            f"line {segment.line} has a sentence of {counted(len(segment.tokens), 'token')} that does not "
            "fit into memory. Shorter sentences may fit."
        )
        raise LinesError({segment.line: reason}, Remedy.COMPUTE_ON_CPU)
    LOG.warning(
        "out of memory: a batch of %d sentences was split in two. Lower validation.batch_sentences.",
        len(segments),
    )
    middle = len(segments) // 2
    return segments[:middle], segments[middle:]
