"""Searching with `transformers`' own ``generate``, to verify what was exported for it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, LogitsProcessor, LogitsProcessorList

from mt.data.tokenizers.tokenizer import Tokenizer, normalise_spacing
from mt.errors import ConfigError
from mt.export.transformers_model import SIDES, without_progress_bars
from mt.inference.exported_folder import ExportedFolder
from mt.inference.text_search import TextSearch
from mt.search.hypothesis import Hypothesis
from mt.search.request import NO_CONSTRAINTS, SearchRequest
from mt.search.strategy import Beam, Sampling, Strategy
from mt.special_tokens import EOS_ID, PAD_ID


class TransformersEngine:
    """An `mt.inference.engines.Engine` over a folder that ``AutoModelForSeq2SeqLM`` loads."""

    def __init__(self, folder: Path) -> None:
        """Load the model on the CPU."""
        with without_progress_bars():
            self._model: Any = AutoModelForSeq2SeqLM.from_pretrained(folder)
        self._model.eval()
        self.device = torch.device("cpu")
        self.num_at_once = 1

    def search(
        self, request: SearchRequest, strategy: Strategy, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """Search as in `Engine`, greedily or with a beam that is ranked by mean log-probability."""
        beam = strategy if isinstance(strategy, Beam) else Beam(1, 1.0, "mean")
        if (
            isinstance(strategy, Sampling)
            or request.constraints != NO_CONSTRAINTS
            or (beam.length_penalty, beam.length_normalization) != (1.0, "mean")
        ):
            raise ConfigError("transformers is only verified with greedy search and a beam ranked by mean.")
        found = self._generate(request.src_ids, max(request.limits), beam.size)
        # A call has one limit for all its sentences: those that exceeded or reached their own search again.
        again: dict[int, list[int]] = {}
        for place, (hypothesis, limit) in enumerate(zip(found, request.limits, strict=True)):
            if not hypothesis.finished or len(hypothesis.ids) >= limit:
                again.setdefault(limit, []).append(place)
        for limit, places in again.items():
            cut = self._generate(request.src_ids[places], limit, beam.size, ends_late=True)
            for place, hypothesis in zip(places, cut, strict=True):
                found[place] = hypothesis
        return [[each] for each in found]

    def _generate(
        self, src_ids: Tensor, limit: int, size: int, *, ends_late: bool = False
    ) -> list[Hypothesis]:
        """Call ``generate``; with ``ends_late``, unfinished hypotheses come after all finished ones.

        At the limit, ``generate`` would rank both together, which differs from our rule.
        """
        processors = LogitsProcessorList([_EndAfter(limit)] if ends_late else [])
        sequences: Tensor = self._model.generate(
            input_ids=src_ids,
            attention_mask=(src_ids != PAD_ID).long(),
            max_new_tokens=limit + ends_late,
            num_beams=size,
            **({"early_stopping": True, "length_penalty": 1.0} if size > 1 else {}),
            logits_processor=processors,
        )
        # Without the token that each output begins with.
        return [_hypothesis(row, limit) for row in sequences[:, 1:].tolist()]


def _hypothesis(row: list[int], limit: int) -> Hypothesis:
    ids = row[: row.index(EOS_ID)] if EOS_ID in row else [token for token in row if token != PAD_ID]
    return Hypothesis(ids, float("nan"), EOS_ID in row and len(ids) < limit)


class _EndAfter(LogitsProcessor):  # type: ignore[misc]
    """Lets every hypothesis of ``limit`` tokens end, with a penalty that no finished one has."""

    # Larger than any log-probability, and small enough for float32 to keep four decimals when added to one.
    _PRICE = -1000.0

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if input_ids.size(1) <= self._limit:
            return scores
        ended = torch.full_like(scores, -torch.inf)
        ended[:, EOS_ID] = self._PRICE
        return ended


class _AutoTokenizer(Tokenizer):
    """An ``AutoTokenizer`` with the interface of our tokenizers."""

    def __init__(self, folder: Path) -> None:
        self._auto: Any = AutoTokenizer.from_pretrained(folder)
        # Exactly as loaded: this must not repair what is wrong with it.
        self._tokenizer = self._auto.backend_tokenizer

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, without the EOS that it adds."""
        if not texts:
            return []
        ids: list[list[int]] = self._auto(list(texts), verbose=False).input_ids
        return [row[:-1] for row in ids]

    def decode(self, ids: Sequence[int], copies: Sequence[str] = ()) -> str:
        """The text of ids; nothing can be copied."""
        return normalise_spacing(self._auto.decode(list(ids), skip_special_tokens=True))


def load_transformers(path: Path) -> TextSearch:
    """Load an exported folder to verify it, with its tokenizers for ``AutoTokenizer``."""
    record = ExportedFolder.open(path).record
    sides = [path / side if (path / side).is_dir() else path for side in SIDES]
    return TextSearch(
        TransformersEngine(path),
        *map(_AutoTokenizer, sides),
        max_length=record.max_length,
        batch_sentences=record.batch_sentences,
        target_ratio=record.target_ratio,
    )
