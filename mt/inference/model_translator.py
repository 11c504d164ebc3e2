"""Translates and scores text by torch, with the model of a run or an ensemble of several."""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Self

import torch

from mt.config.config import Config
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.device import (
    OVERFLOW_REMEDY,
    SEARCH_DTYPES,
    PrecisionName,
    SearchPrecision,
    choose_device,
    choose_precision,
    settle_threads_and_memory,
)
from mt.errors import LinesError, OverflowedLinesError
from mt.inference.loaded_model import LoadedModel, load_ensemble
from mt.inference.score import ScoredPair
from mt.inference.source_reader import SourceReader
from mt.inference.torch_engine import TorchEngine
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory, as_run
from mt.search.ensemble import EnsembleModel, Member
from mt.special_tokens import EOS_ID, UNK_ID
from mt.transformer.transformer import Transformer


class ModelTranslator(Translator):
    """A trained model in torch, the reference, which can be looked at; or an ensemble of several."""

    engine: TorchEngine

    def __init__(
        self,
        config: Config,
        model: Transformer,
        src_tokenizer: Tokenizer,
        tgt_tokenizer: Tokenizer,
        dictionary: Mapping[str, str] | None = None,
        others: Sequence[LoadedModel] = (),
        target_ratio: float = 1.0,
        precision: SearchPrecision = "float32",
        why: str = "",
    ) -> None:
        """Combine a model in evaluation mode with its tokenizers.

        Its weights must not change while this translator is in use. ``others`` are the other models of an
        ensemble, which can only do what all of them can.
        """
        self.config = config
        self.src, self.tgt = config.data.src, config.data.tgt
        configs = [config, *(other.config for other in others)]
        models = [model, *(other.model for other in others)]
        # For attention, which is recorded in evaluation mode.
        self.plain_model = model if precision == "float32" and not others else None
        if precision != "float32":
            models = [deepcopy(each).to(SEARCH_DTYPES[precision]) for each in models]
        widths = [each.output.in_features for each in models]
        self.model: Member = EnsembleModel(models, widths) if others else models[0]
        super().__init__(
            TorchEngine(
                self.model,
                model.output.weight.device,
                batch_sentences=config.validation.batch_sentences,
                precision=precision,
                why=why,
            ),
            src_tokenizer,
            tgt_tokenizer,
            max_length=min(each.data.max_length for each in configs),
            target_ratio=target_ratio,
            copies_words=all(each.copies_words for each in configs),
            dictionary=dictionary,
        )
        # For translations to score: read like sources, so that a copied word is one UNK on both sides.
        self.tgt_reader = SourceReader(tgt_tokenizer, {}, copies=self.copies_words)

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
        return cls.from_loaded(first, device=device, others=rest, **options)

    @classmethod
    def from_loaded(
        cls,
        loaded: LoadedModel,
        *,
        device: torch.device,
        others: Sequence[LoadedModel] = (),
        precision: PrecisionName = "float32",
        **options: Any,
    ) -> Self:
        """Translate with a loaded model, and with ``others`` that have the same vocabularies."""
        options |= {"precision": choose_precision(precision, device), "target_ratio": loaded.target_ratio}
        settle_threads_and_memory()
        for each in (loaded, *others):
            each.model.eval().to(device)
        tokenizers = loaded.src_tokenizer, loaded.tgt_tokenizer
        translator = cls(loaded.config, loaded.model, *tokenizers, others=others, **options)
        translator.checkpoint = loaded.checkpoint.name
        return translator

    @property
    def attending_model(self) -> Transformer:
        """The model whose attention is recorded."""
        if self.plain_model is None:
            raise TypeError("attention is recorded for a single model in float32, not for an ensemble")
        return self.plain_model

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.engine.torch_device

    def score(self, pairs: Sequence[tuple[str, str]], *, first_line: int = 1) -> list[ScoredPair]:
        """Compute how probable the model finds given translations, as in `Translator`."""
        sources, targets = (
            [[token.id for token in tokens] for tokens in reader.read_batch([pair[side] for pair in pairs])]
            for side, reader in enumerate((self.reader, self.tgt_reader))
        )
        for line, (source, target) in enumerate(zip(sources, targets, strict=True), first_line):
            self.refuse_long(line, "source", len(source) + 1)
            self.refuse_long(line, "translation", len(target) + 1)
        batch_tokens = self.config.training.batch_tokens
        log_probs = self.engine.score(sources, targets, batch_tokens=batch_tokens, first_line=first_line)
        for line, scores in enumerate(log_probs, first_line):
            if not all(map(math.isfinite, scores)):
                reason = (
                    f"line {line}: the model's log-probabilities in {self.precision} are NaN or infinite. "
                    f"{OVERFLOW_REMEDY}"
                )
                raise OverflowedLinesError({line: reason})
        return [
            ScoredPair(self.tgt_tokenizer.tokens([*ids, EOS_ID]), scores, ids.count(UNK_ID))
            for ids, scores in zip(targets, log_probs, strict=True)
        ]

    def refuse_long(self, line: int, side: str, num_tokens: int) -> None:
        """Check that a source or translation has no more tokens, with EOS, than the model reads."""
        if num_tokens > self.max_length:
            reason = (
                f"line {line}: the {side} has {num_tokens} tokens, including EOS, but this model reads at "
                f"most {self.max_length} (data.max_length when it was trained). Leave it out."
            )
            raise LinesError({line: reason})
