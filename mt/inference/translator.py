"""Translating and scoring text with a trained model: tokenizers, model and search together."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Self, TypedDict, Unpack

import torch

from mt.config.config import Config
from mt.data.batches.batch import pad
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.device import (
    PrecisionName,
    SearchPrecision,
    choose_device,
    choose_search_precision,
    keep_freed_memory,
    split_on_out_of_memory,
)
from mt.display import counted
from mt.errors import ConfigError, DataError, LinesError, Remedy
from mt.inference.loaded_model import LoadedModel, load_model, refuse_other_vocabularies, refuse_overflow
from mt.inference.score import ScoredPair, score_targets
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
from mt.run_directory import RunDirectory, as_run
from mt.search.beam import beam_search
from mt.search.ensemble import EnsembleModel, Member
from mt.search.greedy import greedy_search
from mt.search.hypothesis import Hypothesis, length_limit, normalised_score
from mt.search.request import NO_CONSTRAINTS, Constraints, SearchRequest
from mt.search.sampling import sample
from mt.search.strategy import Beam, Sampling, Strategy
from mt.special_tokens import EOS_ID, UNK_ID
from mt.transformer.packed_transformer import PackedTransformer
from mt.transformer.transformer import Transformer

LOG = logging.getLogger(__name__)


class SearchOptions(TypedDict, total=False):
    """The options of `Translator.n_best`, which explains them and has their defaults."""

    strategy: Strategy
    constraints: Constraints
    max_length: int | None
    prefixes: Sequence[str]
    keep_unk: bool
    refuse_long: bool
    first_line: int
    advance: Callable[[int], object]
    before_each_batch: Callable[[], None]


class Translator:
    """A trained model, or an ensemble of several, with its tokenizers.

    translator = Translator.from_run("runs/quickstart")
    translator.translate(["the dog sees a house."], strategy=Beam(5))
    """

    def __init__(
        self,
        config: Config,
        model: Transformer,
        src_tokenizer: Tokenizer,
        tgt_tokenizer: Tokenizer,
        dictionary: Mapping[str, str] | None = None,
        others: Sequence[LoadedModel] = (),
        target_ratio: float = 1.0,
        precision: SearchPrecision | None = None,
    ) -> None:
        """Combine a model, which is in evaluation mode when it is used, with its tokenizers.

        Args:
            config: The config that the model was built from.
            model: The model.
            src_tokenizer: The tokenizer of the source language.
            tgt_tokenizer: The tokenizer of the target language.
            dictionary: Source words, with the translations to use for them.
            others: The other models of an ensemble, with the same vocabularies.
            target_ratio: Target tokens per source token in the training data, for `length_limit`.
            precision: Pack the weights in this precision, as they are now, which is faster; None computes
                with the model itself, whose weights may change between two translations.

        Raises:
            ConfigError: If there is a dictionary, and a model has not learnt to copy words.
        """
        self.config = config
        configs = [config, *(other.config for other in others)]
        # An ensemble can do only what all of its models can.
        self.max_length = min(each.data.max_length for each in configs)
        self.copies_words = all(each.copies_words for each in configs)
        self.device = model.output.weight.device
        self.precision = precision or "float32"
        self._target_ratio = target_ratio
        self.plain_model = model if self.precision == "float32" and not others else None  # For attention.
        plain = [model, *(other.model for other in others)]
        widths = [each.output.in_features for each in plain]
        models = plain if precision is None else [PackedTransformer(each, precision) for each in plain]
        self.model: Member = EnsembleModel(models, widths) if others else models[0]
        self.tgt_tokenizer = tgt_tokenizer
        self.reader = SourceReader(src_tokenizer, dictionary or {}, copies=self.copies_words)
        self._prefix_reader = SourceReader(tgt_tokenizer, {}, copies=True)
        # For translations to score: read like sources, so that a copied word is one UNK on both sides.
        self._tgt_reader = SourceReader(tgt_tokenizer, {}, copies=self.copies_words)
        if dictionary and not self.copies_words:
            raise ConfigError(
                "a dictionary needs a model that copies unknown words: one with tokenizer.kind: word that "
                "was trained with training.guided_alignment above 0."
            )

    @classmethod
    def from_run(
        cls,
        run: str | Path | RunDirectory,
        *,
        checkpoint: str = "best",
        device: str | torch.device = "auto",
        dictionary: Mapping[str, str] | None = None,
        others: Sequence[str | Path | RunDirectory] = (),
        precision: PrecisionName = "float32",
    ) -> Self:
        """Load a run's model from the named checkpoint, never from another one.

        Args:
            run: The run directory, such as ``runs/quickstart``.
            checkpoint: ``best``, ``latest``, or a checkpoint's name.
            device: Where to compute: a device, or ``auto``, ``cpu``, ``cuda`` or ``mps``.
            dictionary: Source words, with the translations to use for them.
            others: Runs with the same vocabularies, to translate as an ensemble (`mt.search.ensemble`).
            precision: What to compute in; ``auto`` takes bf16 where that is faster than float32.

        Raises:
            RunError: If there is no such run, or another run has different vocabularies.
            CheckpointError: If that checkpoint is missing or damaged.
            DeviceError: If this machine has no such device, or the device does not have that precision.
            ConfigError: If there is a dictionary, and a model has not learnt to copy words.
        """
        device = choose_device(device)
        keep_freed_memory()
        runs = [as_run(each) for each in (run, *others)]
        first, *rest = (load_model(each, checkpoint) for each in runs)
        for other_run, other in zip(runs[1:], rest, strict=True):
            refuse_other_vocabularies(runs[0], first, other_run, other)
        return cls.from_loaded(first, device=device, dictionary=dictionary, others=rest, precision=precision)

    @classmethod
    def from_loaded(
        cls,
        loaded: LoadedModel,
        *,
        device: torch.device,
        dictionary: Mapping[str, str] | None = None,
        others: Sequence[LoadedModel] = (),
        precision: PrecisionName = "float32",
    ) -> Self:
        """Translate with a loaded model, and with ``others`` that have the same vocabularies.

        Raises:
            CheckpointError: If the logits of a model are not finite.
            ConfigError: If there is a dictionary, and a model has not learnt to copy words.
            DeviceError: If the device does not have that precision.
        """
        chosen = choose_search_precision(precision, device)
        keep_freed_memory()
        for each in (loaded, *others):
            each.model.eval()
            refuse_overflow(each)
            each.model.to(device)
        tokenizers = loaded.src_tokenizer, loaded.tgt_tokenizer
        return cls(loaded.config, loaded.model, *tokenizers, dictionary, others, loaded.target_ratio, chosen)

    def translate(self, texts: Sequence[str], **options: Unpack[SearchOptions]) -> list[str]:
        """Translate lines and return the best translation of each, in order; that of an empty line is empty.

        The options and the errors are those of `n_best`.
        """
        return [best.text for best, *_ in self.n_best(texts, with_scores=False, **options)]

    @torch.inference_mode()
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
        before_each_batch: Callable[[], None] = lambda: None,
    ) -> list[list[Translation]]:
        """Translate lines and return for each, in order, its best translations, the best first.

        Args:
            texts: The lines.
            num_best: The most translations of a line; more than 1 need a beam.
            strategy: The decoding strategy: `Beam`, `Sampling`, or None for greedy search.
            constraints: Constraints on the translation of each sentence.
            max_length: The most tokens of each sentence's translation, which is cut there; None for the
                limit that every translation has (`length_limit`).
            prefixes: For each line the text that its translation starts with; an empty sequence for none.
            keep_unk: Whether the translation may contain the unknown-word token.
            refuse_long: Whether a sentence that is longer than the model can read is an error; if not, it is
                cut and translated in parts. A long *line* is split into sentences in either case.
            with_scores: Whether greedy search and sampling compute scores, which are NaN otherwise.
            first_line: The number of the first line, for messages and for the seed of sampling.
            advance: Called with the number of lines that were finished since the last call.
            before_each_batch: Called before each batch of sentences; may raise to stop.

        Raises:
            LinesError: If a sentence is too long and ``refuse_long``, or does not fit into memory; if a
                prefix is too long; if a line has to be split and ``num_best`` is more than 1.
            ConfigError: If the minimum length is more than the model, or ``max_length``, permits.
            TypeError: If ``texts`` is a single string.
        """
        if isinstance(texts, str):
            raise TypeError("texts must be a sequence of lines, not a single string")
        most = self._max_output_length(constraints.min_length, max_length)
        segments = read_segments(
            texts,
            prefixes,
            self.reader,
            self._prefix_reader,
            max_length=self.max_length,
            max_output_length=most,
            first_line=first_line,
            refuse_long=refuse_long,
        )
        if num_best > 1:
            refuse_split_lines(segments)

        def search(batch: list[Segment]) -> list[list[Hypothesis]]:
            request = self._request(batch, keep_unk, constraints, most)
            return self._search(batch, replace(request, with_scores=with_scores), strategy)

        found = self._in_batches(
            segments, search, before_each_batch, count_finished_lines(len(texts), segments, advance)
        )
        lines: list[list[list[Translation]]] = [[] for _ in texts]
        for segment, hypotheses in zip(segments, found, strict=True):
            lines[segment.place].append(self._translations(segment, hypotheses[:num_best], strategy))
        return [parts[0] if len(parts) == 1 else [joined([part[0] for part in parts])] for parts in lines]

    def _translations(
        self, segment: Segment, hypotheses: Sequence[Hypothesis], strategy: Strategy
    ) -> list[Translation]:
        return [
            as_translation(segment, each, _ranking_score(each, strategy), self.tgt_tokenizer)
            for each in hypotheses
        ]

    @torch.inference_mode()
    def score(self, pairs: Sequence[tuple[str, str]], *, first_line: int = 1) -> list[ScoredPair]:
        """Compute how probable the model finds given translations.

        Args:
            pairs: Sources, each with its translation.
            first_line: The number of the first pair, for messages.

        Raises:
            DataError: If a side is too long for the model, or a pair does not fit into memory.
        """
        sources, targets = (
            [[token.id for token in tokens] for tokens in reader.read_batch(texts)]
            for reader, texts in (
                (self.reader, [source for source, _ in pairs]),
                (self._tgt_reader, [target for _, target in pairs]),
            )
        )
        for line, (source, target) in enumerate(zip(sources, targets, strict=True), first_line):
            self._refuse_long(line, "source", source)
            self._refuse_long(line, "translation", target)
        log_probs = score_targets(
            self.model,
            sources,
            targets,
            device=self.device,
            batch_tokens=self.config.training.batch_tokens,
            vocab_size=self.tgt_tokenizer.size,
        )
        return [
            ScoredPair(self.tgt_tokenizer.tokens([*ids, EOS_ID]), scores, ids.count(UNK_ID))
            for ids, scores in zip(targets, log_probs, strict=True)
        ]

    def _refuse_long(self, line: int, side: str, ids: Sequence[int]) -> None:
        if len(ids) >= self.max_length:
            raise DataError(
                f"line {line}: the {side} has {len(ids) + 1} tokens, EOS included, and this model reads at "
                f"most {self.max_length} (data.max_length when it was trained). Leave it out."
            )

    def _max_output_length(self, min_length: int, max_length: int | None) -> int:
        """The most tokens of a translation, EOS included: the model's limit, or ``max_length`` if lower."""
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
        return self.max_length if max_length is None else min(self.max_length, max_length)

    def _in_batches(
        self,
        segments: Sequence[Segment],
        search: Callable[[list[Segment]], list[list[Hypothesis]]],
        before_each_batch: Callable[[], None],
        after_each_batch: Callable[[Sequence[Segment]], None],
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each segment, in order; segments of similar length are searched together."""
        # The longest first: what does not fit into memory fails at once, not at the end.
        order = sorted(range(len(segments)), key=lambda place: -len(segments[place].tokens))
        width = self.config.validation.batch_sentences
        found: dict[int, list[Hypothesis]] = {}
        for start in range(0, len(order), width):
            before_each_batch()
            places = order[start : start + width]
            batch = [segments[place] for place in places]
            parts = split_on_out_of_memory(search, batch, _halves)
            found |= zip(places, chain.from_iterable(parts), strict=True)
            after_each_batch(batch)
        return [found[place] for place in range(len(segments))]

    def _request(
        self, segments: Sequence[Segment], keep_unk: bool, constraints: Constraints, most: int
    ) -> SearchRequest:
        """What to search for; a translation has at most ``most`` tokens, EOS included if there is room."""
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
        src_ids = src_ids.to(self.device)
        copyable = src_ids == UNK_ID if self.copies_words else None
        return SearchRequest(src_ids, limits, keep_unk, copyable, constraints)

    def _search(
        self, segments: Sequence[Segment], request: SearchRequest, strategy: Strategy
    ) -> list[list[Hypothesis]]:
        match strategy:
            case None:
                return [[found] for found in greedy_search(self.model, request)]
            case Beam():
                return beam_search(self.model, request, strategy)
            case Sampling():
                # Segments of one line, and neighbouring lines, get numbers that are far apart.
                numbers = [segment.line + segment.number * 1_000_000_007 for segment in segments]
                return [[found] for found in sample(self.model, request, strategy, numbers)]


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
