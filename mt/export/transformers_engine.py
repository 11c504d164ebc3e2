"""Searching with `transformers`' own ``generate``, to verify what was exported for it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    LogitNormalization,
    LogitsProcessor,
    LogitsProcessorList,
)

from mt.data.batches.batch import pad
from mt.data.tokenizers.tokenizer import Tokenizer, normalise_spacing
from mt.device import SearchPrecision
from mt.export.transformers_model import SIDES, without_progress_bars
from mt.inference.engines import EngineName, Rules, Sentence
from mt.inference.exported_folder import ExportedFolder
from mt.inference.text_search import TextSearch
from mt.search.hypothesis import Hypothesis
from mt.search.strategy import NO_CONSTRAINTS, Beam
from mt.special_tokens import EOS_ID, PAD_ID


class TransformersEngine:
    """An `mt.inference.engines.Engine` over a folder that ``AutoModelForSeq2SeqLM`` loads."""

    # It is no choice of users, and only verifies exports.
    name: EngineName = "torch"
    precision: SearchPrecision = "float32"
    device = "cpu"
    batch_sentences = 64
    why = "it verifies an export"

    def __init__(self, folder: Path) -> None:
        """Load the model on the CPU."""
        with without_progress_bars():
            self._model: Any = AutoModelForSeq2SeqLM.from_pretrained(folder)
        self._model.eval()

    def why_not(self, rules: Rules, sentence: Sentence) -> str | None:
        """It is only verified with greedy search and a beam ranked by mean log-probability."""
        beam = rules.strategy if isinstance(rules.strategy, Beam) else Beam(1, 1.0, "mean")
        is_known = rules.strategy in (None, beam) and rules.constraints == NO_CONSTRAINTS
        if is_known and (beam.length_penalty, beam.length_normalization) == (1.0, "mean"):
            return None
        return "it is only verified with greedy search and a beam ranked by mean"

    def search(
        self,
        sentences: Sequence[Sentence],
        rules: Rules,
        *,
        check: Callable[[], None] = lambda: None,
        after: Callable[[Sequence[int]], None] = lambda indices: None,
    ) -> list[list[Hypothesis]]:
        """Search as in `Engine`."""
        size = rules.strategy.size if isinstance(rules.strategy, Beam) else 1
        found: list[Hypothesis] = []
        for start in range(0, len(sentences), self.batch_sentences):
            found += self._search_batch(sentences[start : start + self.batch_sentences], size)
        return [[each] for each in found]

    def _search_batch(self, batch: Sequence[Sentence], size: int) -> list[Hypothesis]:
        src_ids = pad([list(sentence.ids) for sentence in batch], last=EOS_ID)
        found = self._generate(src_ids, max(sentence.limit for sentence in batch), size)
        # A call has one limit for all its sentences: those that exceeded or reached their own search again.
        for index, sentence in enumerate(batch):
            if not found[index].finished or len(found[index].ids) >= sentence.limit:
                [found[index]] = self._generate(
                    src_ids[index : index + 1], sentence.limit, size, ends_late=True
                )
        return found

    def _generate(
        self, src_ids: Tensor, limit: int, size: int, *, ends_late: bool = False
    ) -> list[Hypothesis]:
        """Call ``generate``; with ``ends_late``, unfinished hypotheses come after all finished ones.

        At the limit, ``generate`` would rank both together, which differs from our rule.
        """
        # The folder has them normalised in the end, which would take the penalty away.
        processors = LogitsProcessorList([LogitNormalization(), _EndAfter(limit)] if ends_late else [])
        sequences: Tensor = self._model.generate(
            input_ids=src_ids,
            attention_mask=(src_ids != PAD_ID).long(),
            max_new_tokens=limit + ends_late,
            num_beams=size,
            **({"early_stopping": True, "length_penalty": 1.0} if size > 1 else {}),
            **({"renormalize_logits": False} if ends_late else {}),
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
        target_ratio=record.target_ratio,
    )
