"""Translates and scores text with a trained model: the Python API, without torch where the engine is."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from inspect import Signature, signature
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, Self, get_args, overload

from mt.data.tokenizers.tokenizer import Tokenizer
from mt.errors import ConfigError, EngineError, LinesError
from mt.inference.engines import Attention, Engine, Rules, Sentence, in_halves
from mt.inference.exported_folder import ModelFacts
from mt.inference.kept import DEFAULT, KeptParts
from mt.inference.known_forms import KnownForms
from mt.inference.labels import (
    Labelled,
    WordAttention,
    Words,
    aligned_words,
    in_proportion,
    label_read,
    words_of_tokens,
)
from mt.inference.markup.documents import Documents
from mt.inference.markup.pieces import Format
from mt.inference.segments import Lines, Part, Segment, Translation, join_parts, put_back, read_segments
from mt.inference.source_reader import SourceReader
from mt.run_directory import RunDirectory, as_run
from mt.search.hypothesis import Hypothesis, cut_off, length_limit
from mt.search.strategy import NO_CONSTRAINTS, Constraints, Sampling, Strategy
from mt.sides import Sides
from mt.special_tokens import EOS_ID, UNK_ID

if TYPE_CHECKING:
    import torch

    from mt.device import PrecisionName
    from mt.inference.model_translator import ModelTranslator

EngineChoice = Literal["auto", "torch", "ctranslate2"]


@dataclass(frozen=True)
class ScoredPair:
    """A translation with the log-probabilities of its tokens."""

    tokens: Sequence[str]
    """The tokens of the vocabulary, including EOS."""
    log_probs: Sequence[float]
    """The natural log-probability of each token, given the source and the preceding tokens."""
    num_unknown: int
    """Tokens that are not in the vocabulary; they are scored as UNK."""

    @property
    def log_prob(self) -> float:
        """The sum of ``log_probs``; search gives a little more, without the tokens that it may not write."""
        return math.fsum(self.log_probs)


class Translator:
    """A trained model, or an ensemble of several, with its tokenizers.

    translator = Translator.from_run("runs/quickstart")
    translator.translate(["The dog sees a house."], strategy=Beam(5))
    """

    why = "it is the fastest and was verified"
    """Why its engine was chosen."""

    def __init__(
        self,
        engine: Engine,
        facts: ModelFacts,
        src_tokenizer: Tokenizer,
        tgt_tokenizer: Tokenizer,
        *,
        dictionary: Mapping[str, str] | None = None,
        load_model: "Callable[[], ModelTranslator] | None" = None,
    ) -> None:
        """Combine an engine with its model's tokenizers; ``load_model`` is for what the engine cannot do."""
        if dictionary and not facts.copies_words:
            raise ConfigError(
                "a dictionary needs a model that keeps words. Train one with training.guided_alignment and "
                "training.keep_share, as in the configs of mt init."
            )
        self.engine = engine
        self.facts = facts
        self.src_tokenizer = src_tokenizer
        self.tgt_tokenizer = tgt_tokenizer
        self._dictionary = dictionary or {}
        self._reads_forms = False
        self._keep: Sequence[str] = ()
        # What stays of a text that a model reads which has not learnt to keep words.
        self._apart = KeptParts((), {})
        # Of several languages to translate into, `into` chooses one.
        self._reader = None if facts.languages else self._source_reader()
        # Translations are read as sources are, and unknown words of a prefix are always copied.
        self._tgt_reader = SourceReader(tgt_tokenizer, {}, copies=facts.copies_words)
        self._prefix_reader = SourceReader(tgt_tokenizer, {}, copies=True)
        self._load_model = load_model
        self._loading = Lock()

    @classmethod
    def from_run(
        cls,
        run: str | Path | RunDirectory,
        *,
        checkpoint: str = "best",
        device: "str | torch.device" = "auto",
        dictionary: Mapping[str, str] | None = None,
        others: Sequence[str | Path | RunDirectory] = (),
        precision: "PrecisionName" = "auto",
        engine: EngineChoice = "auto",
        tgt: str | None = None,
        as_is: bool = False,
        keep: Sequence[str] = DEFAULT,
    ) -> "Translator":
        """Load a run's model from the named checkpoint, never from another one.

        Args:
            run: The run directory, such as ``runs/quickstart``, or ``hub:org/name`` (see `mt.hub`).
            checkpoint: ``best``, ``latest``, or a checkpoint's name.
            device: Where to compute: a device, or ``auto``, ``cpu``, ``cuda`` or ``mps``.
            dictionary: Source words, with the translations to use for them.
            others: Runs with the same languages and vocabularies, to translate as an ensemble.
            precision: What to compute in; ``auto`` is what is fast and was found good enough.
            engine: ``torch``, ``ctranslate2``, for which the checkpoint is converted at its first use, or
                ``auto`` for CTranslate2 where it can do what is asked.
            tgt: The language to translate into, of a model that translates into several.
            as_is: Whether to copy each unknown word, also where a known one stands for it (`KnownForms`).
            keep: Regular expressions of what stays as it is. If the model has not learnt to keep words, what
                stands before and behind it is translated apart where there is punctuation.

        Raises:
            MtError: If a run, the checkpoint or the device cannot be used, or cannot do what is asked.
        """
        options: dict[str, Any] = {"device": device, "precision": precision, "dictionary": dictionary}
        translator = cls._open(as_run(run), checkpoint, others, engine, options)
        translator.read_as_written(as_is=as_is, keep=keep)
        return translator if tgt is None else translator.into(tgt)

    @classmethod
    def _open(
        cls,
        run: RunDirectory,
        checkpoint: str,
        others: Sequence[str | Path | RunDirectory],
        engine: EngineChoice,
        options: dict[str, Any],
    ) -> "Translator":
        """Load a model into the engine that was asked for, or into the fastest that can do it."""

        @cache
        def load_model() -> "ModelTranslator":
            # The one import of torch in the modules that translate.
            from mt.inference.model_translator import ModelTranslator

            return ModelTranslator.from_run(run, checkpoint=checkpoint, others=others, **options)

        if engine not in get_args(EngineChoice):
            raise ValueError(f"engine must be {', '.join(get_args(EngineChoice))}, not {engine!r}")
        if engine == "torch":
            return load_model()
        if others:
            why = "CTranslate2 does not support ensembles"
        elif engine == "auto" and os.environ.get("MT_ENGINE") == "torch":
            why = "MT_ENGINE is torch"
        else:
            try:
                from mt.inference.engine.load import load_converted

                fallback = load_model if engine == "auto" else None
                return load_converted(run, checkpoint, load_model=fallback, **options)
            except (ImportError, OSError, EngineError) as error:
                why = str(error).removesuffix(".")
        if engine == "ctranslate2":
            raise ConfigError(f"CTranslate2 cannot translate with {run.path}: {why}. Use --engine auto.")
        translator = load_model()
        translator.why = why
        return translator

    def _source_reader(self) -> SourceReader:
        return SourceReader(
            self.src_tokenizer,
            self._dictionary,
            copies=self.facts.copies_words,
            tgt=self.facts.tgt,
            known_forms=KnownForms(self.src_tokenizer, self.facts.src) if self._reads_forms else None,
            keep=self._keep,
        )

    def read_as_written(self, *, as_is: bool = False, keep: Sequence[str] = DEFAULT) -> None:
        """From now on read text in this way; the arguments are those of `from_run`."""
        if self.facts.copies_words:
            self._keep = keep
            self._reads_forms = self.src_tokenizer.has_words and not as_is
            self._prefix_reader = SourceReader(self.tgt_tokenizer, {}, copies=True, keep=keep)
            if self._reader:
                self._reader = self._source_reader()
        else:
            self._apart = KeptParts(keep, {})

    @property
    def directions(self) -> list[Sides[str]]:
        """The pairs of languages that it was trained for."""
        if not self.facts.directions:
            return [Sides(self.facts.src, self.facts.tgt)]
        return [Sides(*direction) for direction in self.facts.directions]

    def into(self, tgt: str | None, src: str | None = None) -> Self:
        """The same model for one of its directions: the first one into ``tgt``, or that from ``src`` into it.

        Raises:
            ConfigError: If it was not trained for it, or there are several languages and none is given.
        """
        if tgt is None and self.reader:
            return self
        for direction in self.directions:
            if direction.tgt == tgt and src in (None, direction.src):
                other = copy(self)
                other.facts = replace(self.facts, src=direction.src, tgt=direction.tgt)
                other._reader = other._source_reader()
                return other
        what = f"from {src} into {tgt}" if src else f"into {tgt}"
        raise ConfigError(f"this model does not translate {what}, only {self.facts.known}.")

    @property
    def reader(self) -> SourceReader:
        """What reads the sources."""
        if self._reader is None:
            raise ConfigError(
                f"this model translates {self.facts.known}: say into which language, as by --to."
            )
        return self._reader

    def __repr__(self) -> str:
        return f"<Translator {self.facts.src} to {self.facts.tgt}: {self.facts.checkpoint}, {self.described}>"

    @property
    def described(self) -> str:
        """Which engine translates, in what, and why."""
        engine = self.engine
        return f"engine: {engine.name}, {engine.precision} on {engine.device}, because {self.why}"

    @overload
    def translate(self, texts: str, *, format: Format = "text", **options: Any) -> str: ...

    @overload
    def translate(self, texts: Sequence[str], *, format: Format = "text", **options: Any) -> list[str]: ...

    def translate(
        self, texts: str | Sequence[str], *, format: Format = "text", **options: Any
    ) -> str | list[str]:
        """The best translation of each text, or of a single string; the options are those of `n_best`.

        Of a ``format`` other than ``text``, each text is a page in ``html`` or ``markdown``.
        """
        if isinstance(texts, str):
            return self.translate([texts], format=format, **options)[0]
        if format == "text":
            return [best.text for best, *_ in self.n_best(texts, with_scores=False, **options)]
        documents = Documents(self, texts, format)
        options |= {"with_scores": False, "with_attention": True, "join_lines": True}
        best = self.n_best(documents.texts, **options)
        return documents.translated([first for first, *_ in best])

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
        join_lines: bool = False,
        with_scores: bool = True,
        with_attention: bool = False,
        first_line: int = 1,
        advance: Callable[[int], object] = lambda num_lines: None,
        before_each_step: Callable[[], None] = lambda: None,
    ) -> list[list[Translation]]:
        """Translate texts and return for each, in order, its best translations, the best first.

        Args:
            texts: The texts. Each of their lines is translated by itself, and comes back as a line. If one is
                longer than the model reads, its sentences are, and longer sentences in parts. One of numbers
                alone is copied if the training text has none.
            num_best: The maximum number of translations per text; more than 1 need a beam. If its lines or
                sentences are translated by themselves, the nth has the nth best translation of each.
            strategy: The decoding strategy: `Beam`, `Sampling`, or None for greedy search.
            constraints: Constraints on the translation of each sentence.
            max_length: The most tokens in each sentence's translation, without EOS; a longer one is cut. It
                does not raise the limit of every translation (`length_limit`).
            prefixes: For each text the text that its translation starts with; an empty sequence for none.
            keep_unk: Whether the translation may contain the unknown-word token.
            join_lines: Whether each text is one line, with line breaks as spaces.
            with_scores: Whether greedy search and sampling compute scores, which are NaN otherwise.
            with_attention: Whether hypotheses have their attention, if the engine gives it at no cost.
            first_line: The number of the first text, for messages and for the seed of sampling.
            advance: Called with the number of texts begun since the last call.
            before_each_step: Called often, in any thread; may raise to stop.

        Raises:
            LinesError: If a sentence does not fit into memory, or overflows; it names texts as lines.
            ConfigError: If the minimum length is more than the model, or ``max_length``, permits.
        """
        if isinstance(texts, str):
            raise TypeError("texts must be a sequence of lines, not a single string")
        if not isinstance(strategy, Strategy):
            raise TypeError(f"strategy must be Beam(...), Sampling(...) or None, not {strategy!r}")
        most = self.facts.max_length if max_length is None else max_length
        limit = min(self.facts.max_length, most + 1)
        if constraints.min_length >= limit:
            raise ConfigError(
                f"at least {constraints.min_length} tokens and EOS do not fit into {limit}: lower the "
                "minimum length, or raise the maximum up to data.max_length of the model."
            )
        rules = Rules(
            strategy,
            constraints,
            keep_unk,
            tuple(self.tgt_tokenizer.reserved.values()),
            copies_words=self.facts.copies_words,
            with_scores=with_scores,
            with_attention=with_attention,
        )
        lines_by_text = [Lines.of(text, join=join_lines, kept=self._apart) for text in texts]
        given = self._prefix_reader.read_batch(prefixes or [""] * len(texts))
        cut = [prefix[: limit - 1] for prefix in given]
        segments = read_segments([lines.texts for lines in lines_by_text], cut, self.reader, self.facts)
        advance(len(texts) - len({segment.index for segment in segments}))
        hypotheses = self.engine_for(strategy).search(
            [self._sentence(segment, rules, limit, first_line) for segment in segments],
            rules,
            before_each_step,
            lambda indices: advance(sum(segments[index].number == 0 for index in indices)),
        )
        parts_by_text: list[list[list[Part]]] = [[] for _ in texts]
        beam = rules.beam
        for segment, best_first in zip(segments, hypotheses, strict=True):
            scored = [(hypothesis, beam.normalised_score(hypothesis)) for hypothesis in best_first]
            best = cut_off(scored, most)[:num_best]
            parts_by_text[segment.index].append([Part(segment, *hypothesis) for hypothesis in best])
        self._put_back(chain.from_iterable(parts_by_text))
        return list(map(self._join, lines_by_text, parts_by_text))

    def _put_back(self, parts: Iterable[list[Part]]) -> None:
        """Put what must stay, but was not copied, into the translations of segments."""
        lacking: list[tuple[list[Part], int]] = []
        pairs: list[tuple[Sequence[int], Hypothesis]] = []
        for best in parts:
            for index, (segment, hypothesis, _) in enumerate(best):
                if segment.lost_positions(hypothesis):
                    lacking.append((best, index))
                    pairs.append(([token.id for token in segment.tokens], hypothesis))
        for (best, index), attention in zip(lacking, self._attention(pairs), strict=True):
            segment, hypothesis, _ = best[index]
            whole = put_back(segment, hypothesis, attention, self.tgt_tokenizer)
            best[index] = best[index]._replace(hypothesis=whole)

    def _join(self, lines: Lines, parts: Sequence[Sequence[Part]]) -> list[Translation]:
        """The nth best translation of a text has the nth best of each of its segments."""
        all_best = zip(*parts, strict=False) if parts else [()]
        joined = [join_parts(lines, nth_best, self.tgt_tokenizer, self._restored) for nth_best in all_best]
        items = [item.text for line in lines.texts for item in self._apart.find(line)]
        if items:
            joined = [
                replace(best, lost=[item for item in items if item not in best.text]) for best in joined
            ]
        return joined

    def _restored(self, line: str, written: str) -> str:
        """What was written for a line, in capitals or title case if the line was read without."""
        style = self.reader.style_of(line)
        return style(written, self.facts.tgt) if style else written

    def _sentence(self, segment: Segment, rules: Rules, most: int, first_line: int) -> Sentence:
        """What the engine gets of a segment; its translation has at most ``most`` tokens, including EOS."""
        facts = self.facts
        length = len(segment.tokens) + 1
        usual = length_limit(length, facts.max_length, target_ratio=facts.target_ratio)
        # Room for the tokens that must be written, and for EOS after them.
        least = max(rules.constraints.min_length, len(segment.prefix)) + 1
        return Sentence(
            first_line + segment.index,
            [token.id for token in segment.tokens],
            [token.id for token in segment.prefix],
            segment.prefix_copies(),
            min(max(usual, least), most),
            # Segments of one line, and neighbouring lines, get numbers that are far apart.
            first_line + segment.index + segment.number * 1_000_000_007,
        )

    def align(self, source: str, translations: Sequence[Translation]) -> list[list[tuple[int, int]] | None]:
        """Align the words of a text with those of its translations; None for each that has several parts."""
        if any(len(translation.parts) > 1 for translation in translations):
            return [None] * len(translations)
        src = label_read(self.reader, source)
        written = [label_read(self._tgt_reader, translation.text) for translation in translations]
        # What is cut at the model's limit, or read as more tokens than were written, makes room for EOS.
        most = self.facts.max_length - 1
        weights = self.engine.attention([Sentence(1, src.ids, tgt.ids[:most]) for tgt in written])
        pairs = zip(written, weights, strict=True)
        return [aligned_words(src.tokens, tgt.tokens, rows) for tgt, rows in pairs]

    def attention_of_words(
        self, pairs: Sequence[tuple[str, Translation]], split: Callable[[str], list[str]]
    ) -> Iterator[WordAttention]:
        """How much the words of translations, which ``split`` gives, attend to those of their sources."""
        words: list[list[tuple[Words, Words]]] = []
        of_tokens: list[tuple[Sequence[int], Hypothesis]] = []
        for source, translation in pairs:
            lengths = []
            lengths_written = []
            of_parts: list[tuple[Sequence[int], Hypothesis]] = []
            for segment, hypothesis in translation.parts:
                lengths.append(segment.lengths(self.src_tokenizer))
                lengths_written.append(segment.lengths_written(hypothesis, self.tgt_tokenizer))
                of_parts.append(([token.id for token in segment.tokens], hypothesis))
            src, is_read = words_of_tokens(lengths, split(source))
            tgt, is_written = words_of_tokens(lengths_written, split(translation.text))
            if len(translation.parts) == 1 and not (is_read and is_written):
                # A character of several tokens, for example.
                read = label_read(self.reader, source, split=split)
                written = label_read(self._tgt_reader, translation.text, split=split)
                src = [[token.word for token in read.tokens]]
                tgt = [[token.word for token in written.tokens]]
                of_parts = [(read.ids, Hypothesis(written.ids, math.nan, finished=True))]
            words.append([*zip(src, tgt, strict=True)])
            of_tokens += of_parts
        attention = iter(self._attention(of_tokens))
        for (source, translation), parts in zip(pairs, words, strict=True):
            found = [(src_words, tgt_words, next(attention)) for src_words, tgt_words in parts]
            yield found or in_proportion(len(split(source)), len(split(translation.text)))

    def _attention(self, pairs: Sequence[tuple[Sequence[int], Hypothesis]]) -> list[Attention]:
        """How much each token of a translation attends to each of the source, if need be by reading both."""
        most = self.facts.max_length - 1
        unread = [Sentence(1, ids, written.ids[:most]) for ids, written in pairs if not written.attention]
        read = iter(self.engine.attention(unread) if unread else ())
        return [written.attention or next(read) for _, written in pairs]

    def score(self, pairs: Sequence[tuple[str, str]], *, first_line: int = 1) -> list[ScoredPair]:
        """Compute, in the precision of the engine, how probable the model finds translations of sources.

        Raises:
            LinesError: If a side is too long, a pair does not fit into memory, or overflows.
        """
        read = self._read(pairs, first_line)
        sentences = [Sentence(line, src.ids, tgt.ids) for line, (src, tgt) in enumerate(read, first_line)]
        scores = in_halves(self.engine.score, sentences)
        scored = []
        for sentence, log_probs in zip(sentences, scores, strict=True):
            tokens = self.tgt_tokenizer.tokens([*sentence.prefix, EOS_ID])
            scored.append(ScoredPair(tokens, log_probs, sentence.prefix.count(UNK_ID)))
        return scored

    def _read(self, pairs: Sequence[tuple[str, str]], first_line: int) -> list[tuple[Labelled, Labelled]]:
        """Read sources and translations, and check that none has more tokens than the model reads."""
        most = self.facts.max_length
        read = []
        for line, (source, target) in enumerate(pairs, first_line):
            read.append((label_read(self.reader, source), label_read(self._tgt_reader, target)))
            for name, side in zip(("source", "translation"), read[-1], strict=True):
                if (length := len(side.ids) + 1) > most:
                    problem = f"the {name} has {length} tokens, but this model reads at most {most}"
                    raise LinesError({line: f"line {line}: {problem} (data.max_length). Leave it out."})
        return read

    def engine_for(self, strategy: Strategy) -> Engine:
        """The engine; for sampling, that of the model in torch."""
        if self.engine.name == "torch" or not isinstance(strategy, Sampling):
            return self.engine
        if self._load_model is None:
            problem = "ctranslate2 cannot do this: it does not sample by lines and seeds"
            raise ConfigError(f"{problem}. Give the run, with any engine.")
        # Of several threads, one loads it.
        with self._loading:
            return self._load_model().engine


# What help() and editors show of `translate`.
_options = [*signature(Translator.n_best).parameters.values()]
_options = [option for option in _options if option.name not in ("num_best", "with_scores", "with_attention")]
_options.append(signature(Translator.translate).parameters["format"])
vars(Translator)["translate"].__signature__ = Signature(_options, return_annotation=str | list[str])
