"""Text in, text out: lines become token ids, an engine searches, and hypotheses become lines."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, TypedDict, Unpack

from mt.data.tokenizers.tokenizer import Tokenizer
from mt.display import counted
from mt.errors import ConfigError
from mt.inference.engines import Engine, Rules, Sentence
from mt.inference.segments import (
    Segment,
    Translation,
    as_translation,
    check_not_split,
    check_one_line,
    count_finished_lines,
    joined,
    joined_lines,
    lines_of,
    named_by_text,
    read_segments,
)
from mt.inference.source_reader import SourceReader
from mt.search.hypothesis import Hypothesis, cut_all, length_limit, normalised_score
from mt.search.strategy import NO_CONSTRAINTS, Beam, Constraints, Strategy

if TYPE_CHECKING:
    from mt.device import SearchPrecision


LOG = logging.getLogger(__name__)


class SearchOptions(TypedDict, total=False):
    """The options of `TextSearch.n_best`, which documents them and has their defaults."""

    strategy: Strategy
    constraints: Constraints
    max_length: int | None
    prefixes: Sequence[str]
    keep_unk: bool
    refuse_long: bool
    join_lines: bool
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
        target_ratio: float = 1.0,
        copies_words: bool = False,
        dictionary: Mapping[str, str] | None = None,
        load_torch: Callable[[], Engine] | None = None,
    ) -> None:
        """Combine an engine with the tokenizers of its model.

        ``target_ratio`` is target tokens per source token in the training data, for `length_limit`;
        ``copies_words`` whether the model has learnt to copy unknown words; ``load_torch`` loads the engine
        for what ``engine`` cannot do.
        """
        self.engine = engine
        self.max_length = max_length
        self.copies_words = copies_words
        self.src_tokenizer = src_tokenizer
        self.tgt_tokenizer = tgt_tokenizer
        self.reader = SourceReader(src_tokenizer, dictionary or {}, copies=copies_words)
        self._prefix_reader = SourceReader(tgt_tokenizer, {}, copies=True)
        self._target_ratio = target_ratio
        self._load_torch = load_torch
        self._torch: Engine | None = None
        self._torch_lock = threading.Lock()
        """Several threads may search with the fast engine at once, but not by torch."""
        if dictionary and not copies_words:
            raise ConfigError(
                "a dictionary needs a model that copies unknown words: one with tokenizer.kind: word that "
                "was trained with training.guided_alignment above 0."
            )

    @property
    def precision(self) -> "SearchPrecision":
        """What the engine computes in."""
        return self.engine.precision

    @property
    def described(self) -> str:
        """Which engine translates, in what, and why."""
        engine = self.engine
        return f"engine: {engine.name}, {engine.precision} on {engine.device}, because {engine.why}"

    def translate(self, texts: Sequence[str], **options: Unpack[SearchOptions]) -> list[str]:
        """Translate texts and return the best translation of each, in order; that of an empty line is empty.

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
        join_lines: bool = False,
        with_scores: bool = True,
        first_line: int = 1,
        advance: Callable[[int], object] = lambda num_lines: None,
        before_each_step: Callable[[], None] = lambda: None,
    ) -> list[list[Translation]]:
        """Translate texts and return for each, in order, its best translations, the best first.

        Args:
            texts: The texts. Each of their lines is translated by itself, and comes back as a line.
            num_best: The maximum number of translations per text; more than 1 need a beam.
            strategy: The decoding strategy: `Beam`, `Sampling`, or None for greedy search.
            constraints: Constraints on the translation of each sentence.
            max_length: The most tokens in each sentence's translation, without EOS; a longer one is cut. It
                does not raise the limit of every translation (`length_limit`).
            prefixes: For each text the text that its translation starts with; an empty sequence for none.
            keep_unk: Whether the translation may contain the unknown-word token.
            refuse_long: Whether a sentence that is longer than the model can read is an error; if not, it is
                cut and translated in parts. A long *line* is split into sentences in either case.
            join_lines: Whether each text is one line, where line breaks count as spaces, as in wrapped text;
                messages then name lines, not texts.
            with_scores: Whether greedy search and sampling compute scores, which are NaN otherwise.
            first_line: The number of the first text, for messages and for the seed of sampling.
            advance: Called with the number of lines finished since the last call.
            before_each_step: Called before each batch of sentences and, if torch searches, before each step
                of its search, in any thread; may raise to stop.

        Raises:
            LinesError: If a sentence is too long and ``refuse_long``, or does not fit into memory; if its
                logits are NaN or infinite; if a prefix is too long; if a text has several lines, or one that
                must be split, and ``num_best`` is more than 1.
            ConfigError: If the minimum length is more than the model, or ``max_length``, permits.
            TypeError: If ``texts`` is a single string, whose letters would be taken for texts.
            ValueError: If ``num_best`` is below 1 or ``max_length`` below 0, if the numbers of prefixes and
                texts differ, or if ``constraints`` have prefixes.
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
        by_text = [[text] if join_lines else lines_of(text) for text in texts]
        lines = list(chain.from_iterable(by_text))
        if prefixes:
            prefixes = list(
                chain.from_iterable(
                    [prefix, *[""] * (len(of_text) - 1)]
                    for of_text, prefix in zip(by_text, prefixes, strict=True)
                )
            )
        if num_best > 1 and not join_lines:
            check_one_line(by_text, first_line)
        with nullcontext() if join_lines else named_by_text(by_text, first_line):
            segments = self.read(lines, prefixes, most=most, first_line=first_line, refuse_long=refuse_long)
            if num_best > 1:
                check_not_split(segments)
            found = self.search(
                segments,
                strategy,
                keep_unk=keep_unk,
                constraints=constraints,
                most=most,
                with_scores=with_scores,
                before_each_step=before_each_step,
                after_each_batch=count_finished_lines(len(lines), segments, advance),
            )
        translated = iter(
            self.as_lines(len(lines), segments, found, strategy, num_best=num_best, max_length=max_length)
        )
        return [joined_lines(list(islice(translated, len(of_text)))) for of_text in by_text]

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

        ``most`` is the most tokens in a translation, including EOS; the other arguments and the errors are
        those of `n_best`.
        """
        if constraints.prefixes:
            # They would be those of the sentences of a batch, not of the lines.
            raise ValueError("the prefixes of lines are text, in the argument prefixes, not in constraints")
        rules = Rules(strategy, constraints, keep_unk, self.copies_words, with_scores)
        sentences = [
            self._sentence(segment, constraints, self.max_length if most is None else most)
            for segment in segments
        ]
        found: dict[int, list[Hypothesis]] = {}
        for engine, indices in self._shares(sentences, rules):
            share = [segments[index] for index in indices]
            with nullcontext() if engine is self.engine else self._torch_lock:
                hypotheses = engine.search(
                    [sentences[index] for index in indices],
                    rules,
                    check=before_each_step,
                    after=partial(_call_with, after_each_batch, share),
                )
            found |= zip(indices, hypotheses, strict=True)
        return [found[index] for index in range(len(segments))]

    def _shares(self, sentences: Sequence[Sentence], rules: Rules) -> list[tuple[Engine, list[int]]]:
        """The engines that translate these sentences, each with the indices of its own."""
        reasons = [self.engine.why_not(rules, sentence) for sentence in sentences]
        own = [index for index, reason in enumerate(reasons) if reason is None]
        others = [index for index, reason in enumerate(reasons) if reason is not None]
        shares = [(self.engine, own)] if own else []
        if others:
            if self._load_torch is None:
                raise ConfigError(f"{self.engine.name} cannot do this: {reasons[others[0]]}.")
            with self._torch_lock:
                if self._torch is None:
                    LOG.debug("torch is loaded: %s", reasons[others[0]])
                    self._torch = self._load_torch()
            shares.append((self._torch, others))
        return shares

    def _sentence(self, segment: Segment, constraints: Constraints, most: int) -> Sentence:
        """What the engine gets of a segment; its translation has at most ``most`` tokens, including EOS."""
        limit = length_limit(len(segment.tokens) + 1, self.max_length, target_ratio=self._target_ratio)
        # Room for the tokens that must be written, and for EOS after them.
        least = max(constraints.min_length, len(segment.prefix))
        limit = min(max(limit, least + 1) if least else limit, most)
        return Sentence(
            segment.line,
            # Segments of one line, and neighbouring lines, get numbers that are far apart.
            segment.line + segment.number * 1_000_000_007,
            [token.id for token in segment.tokens],
            limit,
            [token.id for token in segment.prefix],
            segment.prefix_copies() if segment.prefix else (),
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


def _call_with(
    after: Callable[[Sequence[Segment]], None], segments: Sequence[Segment], indices: Sequence[int]
) -> None:
    after([segments[index] for index in indices])


def _ranking_score(hypothesis: Hypothesis, strategy: Strategy) -> float:
    if not isinstance(strategy, Beam):
        return hypothesis.score
    return normalised_score(hypothesis, strategy.length_penalty, strategy.length_normalization)
