"""Translates and scores text by torch, and records attention, with the model of a run or an ensemble."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from mt.device import SEARCH_DTYPES, PrecisionName, choose_device, choose_precision, fix_threads_and_malloc
from mt.inference.labels import Labelled, label_read
from mt.inference.loaded_model import ModelOfText, load_ensemble
from mt.inference.torch_engine import TorchEngine
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory, as_run
from mt.search.ensemble import EnsembleModel, Member
from mt.search.strategy import Strategy


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
        fix_threads_and_malloc()
        members = [loaded, *others]
        models = [member.model.eval().to(device) for member in members]
        device = loaded.model.output.weight.device
        chosen = choose_precision(precision, device)
        if chosen != "float32":
            models = [deepcopy(model).to(SEARCH_DTYPES[chosen]) for model in models]
        widths = [model.output.in_features for model in models]
        self.config = loaded.config
        searched: Member = EnsembleModel(models, widths) if others else models[0]
        max_length = min(member.facts.max_length for member in members)
        copies_words = all(member.facts.copies_words for member in members)
        super().__init__(
            TorchEngine(searched, device, loaded.config, chosen),
            replace(loaded.facts, max_length=max_length, copies_words=copies_words),
            loaded.src_tokenizer,
            loaded.tgt_tokenizer,
            dictionary=dictionary,
        )

    @classmethod
    def from_run(  # type: ignore[override]  # It has no other engine.
        cls,
        run: str | Path | RunDirectory,
        *,
        checkpoint: str = "best",
        device: str | torch.device = "auto",
        dictionary: Mapping[str, str] | None = None,
        others: Sequence[str | Path | RunDirectory] = (),
        precision: PrecisionName = "float32",
        tgt: str | None = None,
    ) -> Self:
        """Load a run's model as `Translator.from_run` does, into torch."""
        device = choose_device(device)
        first, *rest = load_ensemble([as_run(member) for member in (run, *others)], checkpoint)
        translator = cls(first, device=device, others=rest, precision=precision, dictionary=dictionary)
        return translator if tgt is None else translator.into(tgt)

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
            # With room for EOS in each, which may be read as more tokens than were written.
            most = self.facts.max_length - 1
            own = self.translate(
                sources, strategy=strategy, max_length=most, join_lines=True, first_line=first_line
            )
            read = self._read([(source, "") for source in sources], first_line)
            written = (label_read(self._tgt_reader, text, most) for text in own)
            pairs = [(src, tgt) for (src, _), tgt in zip(read, written, strict=True)]
        else:
            pairs = self._read([*zip(sources, targets, strict=True)], first_line)
        return [self._record(line, src, tgt) for line, (src, tgt) in enumerate(pairs, first_line)]

    def _record(self, line: int, src: Labelled, tgt: Labelled) -> SentenceAttention:
        encoder_self, decoder_self, cross = self.engine.record(src.ids, tgt.ids)
        hidden = src.num_hidden
        src = replace(src, ids=src.ids[hidden:], tokens=src.tokens[hidden:])
        encoder_self = encoder_self[..., hidden:, hidden:]
        cross = cross[..., hidden:]
        return SentenceAttention(line, src, tgt, encoder_self, decoder_self, cross)
