"""Text in, text out: tokenizers, model and search together."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Self

import torch

from mt.config.config import Config
from mt.data.batches.batch import pad
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.device import is_out_of_memory, keep_freed_memory
from mt.errors import ConfigError, LinesError, RunError
from mt.inference.loaded_model import Trained, load_trained, refuse_overflow
from mt.inference.segments import (
    Piece,
    Translation,
    count_lines_done,
    joined,
    read_pieces,
    refuse_several_pieces,
    write_piece,
)
from mt.inference.source_reader import SourceReader
from mt.run_directory import RunDirectory
from mt.search.beam import beam_search
from mt.search.ensemble import EnsembleModel, Member
from mt.search.greedy import greedy_search
from mt.search.hypothesis import Hypothesis, length_limit, normalised_score
from mt.search.request import NO_CONSTRAINTS, Constraints, SearchRequest
from mt.search.sampling import sample
from mt.search.strategy import Beam, Sampling, Strategy
from mt.special_tokens import EOS_ID, UNK_ID
from mt.transformer.transformer import Transformer
from mt.wording import counted

LOG = logging.getLogger(__name__)


class Translator:
    """A model, or an ensemble of several, with its tokenizers."""

    def __init__(
        self,
        config: Config,
        model: Transformer,
        src_tokenizer: Tokenizer,
        tgt_tokenizer: Tokenizer,
        dictionary: Mapping[str, str] | None = None,
        others: Sequence[Trained] = (),
        target_ratio: float = 1.0,
    ) -> None:
        """Put them together; ``others`` are the rest of an ensemble, with the same tokenizers.

        ``target_ratio``, target tokens by source tokens in training, is for `length_limit`.

        Raises:
            ConfigError: If there is a dictionary, and the model has not learnt to carry words over.
        """
        self.config = config
        configs = [config, *(other.config for other in others)]
        # What one of them cannot do, they cannot do together.
        self.max_length = min(each.data.max_length for each in configs)
        self.carries_over = all(each.copies_words for each in configs)
        self._first_model = model
        self._target_ratio = target_ratio
        models = [model, *(other.model for other in others)]
        widths = [each.output.in_features for each in models]
        self.model: Member = EnsembleModel(models, widths) if others else model
        self.tgt_tokenizer = tgt_tokenizer
        self.reader = SourceReader(src_tokenizer, dictionary or {}, carries_over=self.carries_over)
        self._prefix_reader = SourceReader(tgt_tokenizer, {}, carries_over=True)
        if dictionary and not self.carries_over:
            raise ConfigError(
                "a dictionary needs a model that carries words over: one of tokenizer.kind: word that was "
                "trained with training.guided_alignment above 0."
            )

    @classmethod
    def from_run(
        cls,
        run: RunDirectory,
        *,
        checkpoint: str = "best",
        device: torch.device,
        dictionary: Mapping[str, str] | None = None,
        others: Sequence[RunDirectory] = (),
    ) -> Self:
        """Load a run's model from the named checkpoint, and from no other.

        Args:
            run: The run.
            checkpoint: best, latest, or a checkpoint's name.
            device: Where to compute.
            dictionary: Source words and what they are to be translated by.
            others: Runs with the same vocabularies, to translate as an ensemble (`mt.search.ensemble`).

        Raises:
            RunError: If there is no such run, or another has other vocabularies.
            CheckpointError: If that checkpoint is missing or damaged.
            ConfigError: If there is a dictionary, and the model has not learnt to carry words over.
        """
        keep_freed_memory()
        first, *rest = (load_trained(each, checkpoint) for each in (run, *others))
        for other, trained in zip(others, rest, strict=True):
            _refuse_other_vocabularies(run, first, other, trained)
        return cls.from_trained(first, device=device, dictionary=dictionary, others=rest)

    @classmethod
    def from_trained(
        cls,
        trained: Trained,
        *,
        device: torch.device,
        dictionary: Mapping[str, str] | None = None,
        others: Sequence[Trained] = (),
    ) -> Self:
        """Translate with a model that is loaded, and with ``others`` of the same vocabularies.

        Raises:
            CheckpointError: If what a model computes is not finite.
            ConfigError: If there is a dictionary, and the model has not learnt to carry words over.
        """
        keep_freed_memory()
        for each in (trained, *others):
            each.model.eval()
            refuse_overflow(each)
            each.model.to(device)
        tokenizers = trained.src_tokenizer, trained.tgt_tokenizer
        return cls(trained.config, trained.model, *tokenizers, dictionary, others, trained.target_ratio)

    @property
    def device(self) -> torch.device:
        """Where the model is now; while it is trained it may move."""
        return self._first_model.output.weight.device

    def translate(
        self,
        texts: Sequence[str],
        *,
        strategy: Strategy = None,
        keep_unk: bool = False,
        refuse_long: bool = False,
        first_line: int = 1,
        advance: Callable[[int], object] = lambda num_lines: None,
        before_each_batch: Callable[[], None] = lambda: None,
    ) -> list[str]:
        """Translate lines: one out for one in, in order, an empty one for an empty one.

        Arguments and errors are those of `n_best`.
        """
        found = self.n_best(
            texts,
            strategy=strategy,
            keep_unk=keep_unk,
            refuse_long=refuse_long,
            first_line=first_line,
            advance=advance,
            before_each_batch=before_each_batch,
        )
        return [best.text for best, *_ in found]

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
        first_line: int = 1,
        advance: Callable[[int], object] = lambda num_lines: None,
        before_each_batch: Callable[[], None] = lambda: None,
    ) -> list[list[Translation]]:
        """Translate lines: for each in order its translations, the best first; an empty one for an empty one.

        Args:
            texts: The lines.
            num_best: For each line at most so many, and at least one; more than one are those of a beam.
            strategy: The decoding strategy: a beam, sampling, or, None, greedy search.
            constraints: What is asked of the translation of each sentence.
            max_length: The most tokens of each sentence's translation, which is cut there; None leaves the
                limit that every translation has (`length_limit`).
            prefixes: For each line how its translation begins; empty lets all begin as they will.
            keep_unk: Let the unknown-word token stand in the output.
            refuse_long: Whether a sentence longer than the model reads is an error, or cut and translated
                in parts. A long *line* is split at its sentence ends in any case.
            first_line: The number of the first line, for messages and for the draws of sampling.
            advance: Called with the number of lines that are done since the call before it.
            before_each_batch: Called ahead of each batch of sentences; may raise to give up.

        Raises:
            LinesError: If sentences are too long and ``refuse_long``, or one does not fit into memory; if
                beginnings are too long; if lines have to be split and more than one translation is wanted.
            ConfigError: If the least length is more than the model, or the greatest length, permits.
        """
        most = self._most_tokens(constraints.min_length, max_length)
        pieces = read_pieces(
            texts,
            prefixes,
            self.reader,
            self._prefix_reader,
            max_length=self.max_length,
            most_written=most,
            first_line=first_line,
            refuse_long=refuse_long,
        )
        if num_best > 1:
            refuse_several_pieces(pieces)
        search = partial(
            self._search_what_fits,
            strategy=strategy,
            keep_unk=keep_unk,
            constraints=constraints,
            most=most,
        )
        found = self._in_batches(
            pieces, search, before_each_batch, count_lines_done(len(texts), pieces, advance)
        )
        lines: list[list[list[Translation]]] = [[] for _ in texts]
        for piece, hypotheses in zip(pieces, found, strict=True):
            lines[piece.place].append(
                [
                    write_piece(piece, each, self._score(each, strategy), self.tgt_tokenizer)
                    for each in hypotheses[:num_best]
                ]
            )
        return [parts[0] if len(parts) == 1 else [joined([part[0] for part in parts])] for parts in lines]

    def _most_tokens(self, min_length: int, max_length: int | None) -> int:
        """The most tokens of a translation: what the model writes, or less where less is asked for."""
        if max_length is not None and min_length > max_length:
            raise ConfigError(
                f"translations of at least {counted(min_length, 'token')} cannot have at most {max_length}. "
                "Lower the one or raise the other."
            )
        if min_length >= self.max_length:
            raise ConfigError(
                f"translations of at least {counted(min_length, 'token')} and an end mark are longer than "
                f"the {self.max_length} that this model writes (data.max_length when it was trained)."
            )
        return self.max_length if max_length is None else min(self.max_length, max_length)

    def _in_batches(
        self,
        pieces: Sequence[Piece],
        search: Callable[[list[Piece]], list[list[Hypothesis]]],
        before_each_batch: Callable[[], None],
        after_each_batch: Callable[[list[Piece]], None],
    ) -> list[list[Hypothesis]]:
        """What search finds for each piece, in order."""
        # Long ones first: what does not fit into memory fails at once, not at the end.
        order = sorted(range(len(pieces)), key=lambda place: -len(pieces[place].tokens))
        width = self.config.validation.batch_sentences
        found: dict[int, list[Hypothesis]] = {}
        for start in range(0, len(order), width):
            before_each_batch()
            places = order[start : start + width]
            batch = [pieces[place] for place in places]
            found |= zip(places, search(batch), strict=True)
            after_each_batch(batch)
        return [found[place] for place in range(len(pieces))]

    def _score(self, hypothesis: Hypothesis, strategy: Strategy) -> float:
        if not isinstance(strategy, Beam):
            return hypothesis.score
        return normalised_score(hypothesis, strategy.length_penalty, strategy.length_normalization)

    def _search_what_fits(
        self,
        pieces: list[Piece],
        strategy: Strategy,
        keep_unk: bool,
        constraints: Constraints,
        most: int,
    ) -> list[list[Hypothesis]]:
        """Search; in two halves where it does not fit into memory, which gives the same translations."""
        try:
            return self._search(pieces, strategy, keep_unk, constraints, most)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if len(pieces) == 1:
                line = pieces[0].line
                reason = (
                    f"line {line} has a sentence of {counted(len(pieces[0].tokens), 'token')} that does not "
                    "fit into memory. Split it, or take --device cpu."
                )
                raise LinesError({line: reason}) from error
        # Out of the handler, where the error still holds on to memory.
        LOG.warning(
            "out of memory: a batch of %d sentences was split in two. Lower validation.batch_sentences.",
            len(pieces),
        )
        middle = len(pieces) // 2
        return [
            hypotheses
            for half in (pieces[:middle], pieces[middle:])
            for hypotheses in self._search_what_fits(half, strategy, keep_unk, constraints, most)
        ]

    def _search(
        self,
        pieces: list[Piece],
        strategy: Strategy,
        keep_unk: bool,
        constraints: Constraints,
        most: int,
    ) -> list[list[Hypothesis]]:
        """Search; a translation has at most ``most`` tokens, EOS included where there is room for it."""
        src_ids = pad([[token.id for token in piece.tokens] for piece in pieces], last=EOS_ID).to(self.device)
        limits = [
            length_limit(len(piece.tokens) + 1, self.max_length, target_ratio=self._target_ratio)
            for piece in pieces
        ]
        if any(piece.prefix for piece in pieces):
            prefixes = [[token.id for token in piece.prefix] for piece in pieces]
            constraints = replace(constraints, prefixes=prefixes)
        if constraints != NO_CONSTRAINTS:
            # What has to be written fits in, and EOS after it.
            least = [max(constraints.min_length, len(piece.prefix)) + 1 for piece in pieces]
            limits = [*map(max, limits, least)]
        limits = [min(limit, most) for limit in limits]
        copyable = src_ids == UNK_ID if self.carries_over else None
        request = SearchRequest(src_ids, limits, keep_unk, copyable, constraints)
        match strategy:
            case None:
                return [[found] for found in greedy_search(self.model, request)]
            case Beam():
                return beam_search(self.model, request, strategy)
            case Sampling():
                # Sentences of one line, and neighbouring lines, are numbered far apart.
                numbers = [piece.line + piece.number * 1_000_000_007 for piece in pieces]
                return [[found] for found in sample(self.model, request, strategy, numbers)]


def _refuse_other_vocabularies(
    run: RunDirectory, trained: Trained, other_run: RunDirectory, other: Trained
) -> None:
    for side, one, another in (
        ("src", trained.src_tokenizer, other.src_tokenizer),
        ("tgt", trained.tgt_tokenizer, other.tgt_tokenizer),
    ):
        if one.to_json() != another.to_json():
            raise RunError(
                f"{other_run.path} has another {side} vocabulary than {run.path}, and an ensemble needs the "
                "same: train it on the same corpus with the same tokenizer options."
            )
