"""Text in, text out: tokenizers, model and search together."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from tqdm import tqdm

from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.config.load import load_config
from mt.data.batch import pad
from mt.data.tokenizer import Tokenizer
from mt.device import is_out_of_memory, keep_freed_memory
from mt.errors import CheckpointError, ConfigError, DataError
from mt.masks import padding_mask
from mt.pipeline.carried_words import SourceReader, SourceToken
from mt.pipeline.long_lines import pieces_of
from mt.pipeline.tokenizer_checksums import refuse_other_tokenizers
from mt.run_directory import RunDirectory
from mt.search.beam import beam_search
from mt.search.greedy import greedy_search
from mt.search.hypothesis import Hypothesis, length_limit
from mt.search.sampling import sample
from mt.special_tokens import EOS_ID, UNK_ID
from mt.transformer.build import build_transformer
from mt.transformer.transformer import Transformer

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sampling:
    """Draw translations instead of searching the likeliest."""

    temperature: float
    seed: int


@dataclass(frozen=True)
class Beam:
    """Keep several beginnings of each translation."""

    size: int
    length_penalty: float


def build_model(config: Config, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer) -> Transformer:
    """The model of this config for these vocabularies, with first weights."""
    return build_transformer(
        config.model,
        src_vocab_size=src_tokenizer.size,
        tgt_vocab_size=tgt_tokenizer.size,
        max_length=config.data.max_length,
    )


@dataclass(frozen=True)
class Trained:
    """What a run has learnt by one of its checkpoints."""

    config: Config
    model: Transformer
    src_tokenizer: Tokenizer
    tgt_tokenizer: Tokenizer
    checkpoint: str
    """The name of the checkpoint."""


def load_trained(run: RunDirectory, checkpoint: str) -> Trained:
    """Load a run's model, on the CPU, from the named checkpoint and from no other.

    Raises:
        RunError: If there is no such run.
        CheckpointError: If that checkpoint is missing or damaged.
    """
    run.require()
    config = load_config(run.config_file)
    tokenizers = Tokenizer.load(run.src_tokenizer_file), Tokenizer.load(run.tgt_tokenizer_file)
    store = CheckpointStore(run.checkpoints_dir)
    found = store.require(checkpoint)
    refuse_other_tokenizers(run, found)
    model = build_model(config, *tokenizers)
    try:
        model.load_weights(store.load_model(found))
    except ValueError as error:
        raise CheckpointError(f"{found.folder} does not fit {run.config_file}: {error}.") from error
    return Trained(config, model, *tokenizers, found.name)


class Translator:
    """A model with its tokenizers."""

    def __init__(
        self,
        config: Config,
        model: Transformer,
        src_tokenizer: Tokenizer,
        tgt_tokenizer: Tokenizer,
        dictionary: Mapping[str, str] | None = None,
    ) -> None:
        """Put them together.

        Raises:
            ConfigError: If there is a dictionary, and the model has not learnt to carry words over.
        """
        self.config = config
        self._model = model
        self._tgt_tokenizer = tgt_tokenizer
        self._carries_over = config.carries_words_over
        self._reader = SourceReader(src_tokenizer, dictionary or {}, carries_over=self._carries_over)
        if dictionary and not self._carries_over:
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
    ) -> Self:
        """Load a run's model from the named checkpoint, and from no other.

        Args:
            run: The run.
            checkpoint: best, latest, or a checkpoint's name.
            device: Where to compute.
            dictionary: Source words and what they are to be translated by.

        Raises:
            RunError: If there is no such run.
            CheckpointError: If that checkpoint is missing or damaged.
            ConfigError: If there is a dictionary, and the model has not learnt to carry words over.
        """
        keep_freed_memory()
        trained = load_trained(run, checkpoint)
        model = trained.model.to(device).eval()
        return cls(trained.config, model, trained.src_tokenizer, trained.tgt_tokenizer, dictionary)

    @torch.inference_mode()
    def translate(
        self,
        texts: Sequence[str],
        *,
        way: Sampling | Beam | None = None,
        keep_unk: bool = False,
        refuse_long: bool = False,
        first_line: int = 1,
        show_progress: bool = False,
        before_each_batch: Callable[[], None] = lambda: None,
    ) -> list[str]:
        """Translate lines: one out for one in, in order, an empty one for an empty one.

        Args:
            texts: The lines.
            way: Draw, or search with a beam; None searches greedily.
            keep_unk: Let the unknown-word token stand in the output.
            refuse_long: Whether a sentence longer than the model reads is an error, or cut and translated
                in parts. A long *line* is split at its sentence ends in any case.
            first_line: The number of the first line, for messages and for the draws of sampling.
            show_progress: Draw a progress bar on stderr, if that is a terminal.
            before_each_batch: Called ahead of each batch of sentences; may raise to give up.

        Raises:
            DataError: If a sentence is too long and ``refuse_long``, or does not fit into memory.
        """
        max_length = self.config.data.max_length
        pieces = pieces_of(
            texts,
            self._reader.read_batch,
            max_length=max_length,
            first_line=first_line,
            refuse_long=refuse_long,
        )
        # Long ones first: what does not fit into memory fails at once, not at the end.
        order = sorted(range(len(pieces)), key=lambda place: -len(pieces[place][1]))
        width = self.config.validation.batch_sentences
        # Which line a piece stands in, and as which of its sentences.
        first_places = {index: place for place, (index, _) in reversed(list(enumerate(pieces)))}
        origins = [
            (first_line + index, place - first_places[index]) for place, (index, _) in enumerate(pieces)
        ]
        found: dict[int, str] = {}
        with tqdm(
            total=len(pieces), unit=" sentences", disable=None if show_progress else True, leave=None
        ) as bar:
            for start in range(0, len(order), width):
                before_each_batch()
                places = order[start : start + width]
                hypotheses = self._search_what_fits(
                    [pieces[place][1] for place in places],
                    [origins[place] for place in places],
                    way,
                    keep_unk,
                )
                for place, hypothesis in zip(places, hypotheses, strict=True):
                    copies = [pieces[place][1][position].copy or "" for position in hypothesis.copied]
                    found[place] = self._tgt_tokenizer.decode(hypothesis.ids, copies)
                bar.update(len(places))
        lines: list[list[str]] = [[] for _ in texts]
        for place, (index, _) in enumerate(pieces):
            lines[index].append(found[place])
        return [" ".join(parts) for parts in lines]

    def _search_what_fits(
        self,
        sentences: Sequence[Sequence[SourceToken]],
        origins: list[tuple[int, int]],
        way: Sampling | Beam | None,
        keep_unk: bool,
    ) -> list[Hypothesis]:
        """Search; in two halves where it does not fit into memory, which gives the same translations."""
        try:
            return self._search(sentences, origins, way, keep_unk)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if len(sentences) == 1:
                raise DataError(
                    f"line {origins[0][0]} has a sentence of {len(sentences[0])} tokens that does not fit "
                    "into memory. Split it, or take --device cpu."
                ) from error
        # Out of the handler, where the error still holds on to memory.
        LOG.warning(
            "out of memory: a batch of %d sentences was split in two. Lower validation.batch_sentences.",
            len(sentences),
        )
        middle = len(sentences) // 2
        return [
            hypothesis
            for half in (slice(None, middle), slice(middle, None))
            for hypothesis in self._search_what_fits(sentences[half], origins[half], way, keep_unk)
        ]

    def _search(
        self,
        sentences: Sequence[Sequence[SourceToken]],
        origins: list[tuple[int, int]],
        way: Sampling | Beam | None,
        keep_unk: bool,
    ) -> list[Hypothesis]:
        device = self._model.output.weight.device
        max_length = self.config.data.max_length
        src_ids = pad([[token.id for token in tokens] for tokens in sentences], last=EOS_ID).to(device)
        limits = [length_limit(len(tokens) + 1, max_length) for tokens in sentences]
        arguments = (self._model, src_ids, padding_mask(src_ids), limits)
        copyable = src_ids == UNK_ID if self._carries_over else None
        match way:
            case None:
                return greedy_search(*arguments, keep_unk=keep_unk, copyable=copyable)
            case Beam(size, length_penalty):
                found = beam_search(
                    *arguments,
                    beam_size=size,
                    length_penalty=length_penalty,
                    keep_unk=keep_unk,
                    copyable=copyable,
                )
                return [hypotheses[0] for hypotheses in found]
            case Sampling(temperature, seed):
                # Neither neighbouring lines, nor sentences of one line, draw what a neighbouring --seed does.
                seeds = [
                    (seed * 1_000_003 + line + number * 1_000_000_007) % 2**63 for line, number in origins
                ]
                return sample(
                    *arguments, temperature=temperature, seeds=seeds, keep_unk=keep_unk, copyable=copyable
                )
