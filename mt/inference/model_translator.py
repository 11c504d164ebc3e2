"""Translates and scores text by torch, and records attention, with the model of a run or an ensemble."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from mt.device import SEARCH_DTYPES, PrecisionName, choose_device, choose_precision, settle_threads_and_memory
from mt.errors import LinesError
from mt.inference.engines import Sentence
from mt.inference.labels import Labelled, label_read
from mt.inference.loaded_model import ModelOfText, load_ensemble
from mt.inference.source_reader import SourceReader
from mt.inference.torch_engine import TorchEngine
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory, as_run
from mt.search.ensemble import EnsembleModel, Member
from mt.search.strategy import Strategy
from mt.special_tokens import EOS_ID, UNK_ID


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


@dataclass(frozen=True)
class SentenceAttention:
    """A sentence, its translation, and the weights of every attention of one teacher-forced pass over both.

    L is the number of layers, S that of source tokens and T that of target tokens, both with EOS. Row t of
    the decoder is the position that *predicts* target token t: its input is the preceding token.
    """

    line: int
    src: Labelled
    """The source as the model reads it: rows and columns of ``encoder_self``, columns of ``cross``."""
    tgt: Labelled
    """The translation: rows of ``decoder_self`` and ``cross``."""
    encoder_self: Tensor
    """``(L, H, S, S)`` float32 on the CPU, like the others."""
    decoder_self: Tensor
    """``(L, H, T, T)``; nothing above the diagonal."""
    cross: Tensor
    """``(L, H, T, S)``."""


class ModelTranslator(Translator):
    """A trained model in torch, the reference, which can be looked at; or an ensemble of several."""

    engine: TorchEngine
    why = "it was asked for"

    def __init__(
        self,
        loaded: ModelOfText,
        *,
        device: torch.device | None = None,
        others: Sequence[ModelOfText] = (),
        precision: PrecisionName = "float32",
        dictionary: Mapping[str, str] | None = None,
    ) -> None:
        """Translate with a model, in evaluation mode and on this device, or where it is.

        With ``others``, which have the same vocabularies, it is an ensemble, which does what all of them can.
        """
        settle_threads_and_memory()
        members = [loaded, *others]
        models = [each.model.eval().to(device) for each in members]
        device = loaded.model.output.weight.device
        chosen = choose_precision(precision, device)
        if chosen != "float32":
            models = [deepcopy(each).to(SEARCH_DTYPES[chosen]) for each in models]
        widths = [each.output.in_features for each in models]
        self.config = loaded.config
        model: Member = EnsembleModel(models, widths) if others else models[0]
        super().__init__(
            TorchEngine(model, device, loaded.config, chosen),
            replace(
                loaded.facts,
                max_length=min(each.facts.max_length for each in members),
                copies_words=all(each.facts.copies_words for each in members),
            ),
            loaded.src_tokenizer,
            loaded.tgt_tokenizer,
            dictionary=dictionary,
        )
        # For pairs that are given: as they are read in training.
        self._pair_reader = SourceReader(loaded.tgt_tokenizer, {}, copies=self.facts.copies_words)

    @classmethod
    def from_run(
        cls,
        run: str | Path | RunDirectory,
        *,
        checkpoint: str = "best",
        device: str | torch.device = "auto",
        others: Sequence[str | Path | RunDirectory] = (),
        **options: Any,
    ) -> Self:
        """Load a run's model as `Translator.from_run` does, into torch."""
        device = choose_device(device)
        first, *rest = load_ensemble([as_run(each) for each in (run, *others)], checkpoint)
        return cls(first, device=device, others=rest, **options)

    def score(self, pairs: Sequence[tuple[str, str]], *, first_line: int = 1) -> list[ScoredPair]:
        """Compute how probable the model finds translations, as in `Translator`."""
        read = self.read_pairs([src for src, _ in pairs], [tgt for _, tgt in pairs], first_line=first_line)
        log_probs = self.engine.score(
            [Sentence(line, src.ids, tgt.ids) for line, (src, tgt) in enumerate(read, first_line)]
        )
        return [
            ScoredPair(self.tgt_tokenizer.tokens([*tgt.ids, EOS_ID]), scores, tgt.ids.count(UNK_ID))
            for (_, tgt), scores in zip(read, log_probs, strict=True)
        ]

    def attention(
        self,
        sources: Sequence[str],
        targets: Sequence[str] | None = None,
        *,
        strategy: Strategy = None,
        first_line: int = 1,
    ) -> list[SentenceAttention]:
        """Record what a model attends to in sentences and translations, which it finds if not given."""
        if targets is None:
            # With room for EOS in each.
            search = {"strategy": strategy, "max_length": self.facts.max_length - 1, "first_line": first_line}
            targets = self.translate(sources, join_lines=True, **search)
        pairs = self.read_pairs(sources, targets, first_line=first_line)
        return [
            SentenceAttention(line, src, tgt, *self.engine.record(src.ids, tgt.ids))
            for line, (src, tgt) in enumerate(pairs, first_line)
        ]

    def read_pairs(
        self, sources: Sequence[str], targets: Sequence[str], *, first_line: int = 1
    ) -> list[tuple[Labelled, Labelled]]:
        """Read sentences and translations, and check that none has more tokens than the model reads."""
        most, pairs = self.facts.max_length, []
        for line, (source, target) in enumerate(zip(sources, targets, strict=True), first_line):
            pairs.append((label_read(self.reader, source), label_read(self._pair_reader, target)))
            for name, side in zip(("source", "translation"), pairs[-1], strict=True):
                if (length := len(side.ids) + 1) > most:
                    reason = (
                        f"the {name} has {length} tokens, including EOS, but this model reads at most {most}"
                    )
                    trained = "(data.max_length when it was trained). Leave it out."
                    raise LinesError({line: f"line {line}: {reason} {trained}"})
        return pairs

    def is_recordable(self, source: str, target: str) -> bool:
        """Whether a sentence and its translation are short enough for `attention`."""
        with suppress(LinesError):
            return bool(self.read_pairs([source], [target]))
        return False
