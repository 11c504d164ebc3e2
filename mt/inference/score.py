"""`mt score`: how probable a model thinks translations that are given."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mt.data.batches.batch import Batch, collate
from mt.device import is_out_of_memory
from mt.errors import DataError
from mt.inference.source_reader import SourceReader
from mt.inference.translator import Translator
from mt.search.model import TeacherForced
from mt.special_tokens import EOS_ID, UNK_ID

# Training never holds those of a whole batch at once: 256 MB of them in float32.
_MOST_LOGITS = 2**26


@dataclass(frozen=True)
class ScoredPair:
    """A translation and what the model thinks of it."""

    tokens: Sequence[str]
    """As the vocabulary has them, with EOS."""
    log_probs: Sequence[float]
    """Of each token the natural logarithm of its probability, given the source and the tokens before it."""
    num_unknown: int
    """Tokens that the model does not know; they count as the unknown word."""

    @property
    def log_prob(self) -> float:
        """Of the whole; the score that search gives to the same tokens."""
        return math.fsum(self.log_probs)


def perplexity(log_prob: float, num_tokens: int) -> float:
    """``exp(-log_prob / num_tokens)``: among how many equally probable tokens the model chose, as it were."""
    return math.exp(min(-log_prob / num_tokens, 700.0))


def label_log_probs(model: TeacherForced, batch: Batch) -> Tensor:
    """Compute the log-probability of each label, given those before it (forced decoding).

    Args:
        model: In evaluation mode, on the device of the batch.
        batch: B sources with a translation of up to T labels each, EOS included.

    Returns:
        ``(B, T)`` natural logarithms over the whole vocabulary, meaningless where a label is PAD. The sum of
        a row is the score that search gives to the same hypothesis.
    """
    logits = model.forward(batch.src_ids, batch.src_mask, batch.tgt_ids, batch.tgt_mask).float()
    # Less memory than a log-softmax, of which one number in V would be read.
    return logits.gather(-1, batch.labels[..., None])[..., 0] - logits.logsumexp(-1)


class Scorer:
    """Scores translations as a `Translator` would have, had it found them."""

    def __init__(self, translator: Translator) -> None:
        self._translator = translator
        # Both sides are read alike, so that a word that was carried over is one unknown word here too.
        self._reader = SourceReader(
            translator.tgt_tokenizer, dictionary={}, carries_over=translator.carries_over
        )

    @torch.inference_mode()
    def score(self, pairs: Sequence[tuple[str, str]], *, first_line: int = 1) -> list[ScoredPair]:
        """Score pairs of a source and its translation.

        Args:
            pairs: At least one.
            first_line: The number of the first pair, for messages.

        Raises:
            DataError: If a side is too long for the model.
        """
        sources, targets = (
            [[token.id for token in tokens] for tokens in reader.read_batch(texts)]
            for reader, texts in zip(
                (self._translator.reader, self._reader), zip(*pairs, strict=True), strict=True
            )
        )
        for line, (source, target) in enumerate(zip(sources, targets, strict=True), first_line):
            self._refuse_long(line, "source", source)
            self._refuse_long(line, "translation", target)
        log_probs: dict[int, list[float]] = {}
        for places in self._batches([max(map(len, pair)) + 1 for pair in zip(sources, targets, strict=True)]):
            batch = collate([sources[place] for place in places], [targets[place] for place in places])
            for place, row in zip(places, self._log_probs_of_labels(batch).tolist(), strict=True):
                log_probs[place] = row[: len(targets[place]) + 1]
        tokens = self._translator.tgt_tokenizer.tokens
        return [
            ScoredPair(tokens([*ids, EOS_ID]), log_probs[place], ids.count(UNK_ID))
            for place, ids in enumerate(targets)
        ]

    def _log_probs_of_labels(self, batch: Batch) -> Tensor:
        """``(B, T)``; in two halves where the batch does not fit into memory."""
        try:
            return label_log_probs(self._translator.model, batch.to(self._translator.device))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if len(batch.labels) == 1:
                raise DataError(
                    f"a pair of {batch.src_ids.size(1)} source and {batch.labels.size(1)} target tokens does "
                    "not fit into memory. Leave it out, or take --device cpu."
                ) from error
        # Out of the handler, where the error still holds on to memory.
        return torch.cat([self._log_probs_of_labels(half) for half in batch.halves()])

    def _batches(self, lengths: Sequence[int]) -> list[list[int]]:
        """Places of like length: as many tokens as in a batch of training, or fewer, for the logits' sake."""
        most_logits = _MOST_LOGITS // self._translator.tgt_tokenizer.size
        most_tokens = min(self._translator.config.training.batch_tokens, most_logits)
        batches: list[list[int]] = []
        for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
            if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= most_tokens:
                batches[-1].append(place)
            else:
                batches.append([place])
        return batches

    def _refuse_long(self, line: int, side: str, ids: Sequence[int]) -> None:
        if len(ids) >= self._translator.max_length:
            raise DataError(
                f"line {line}: the {side} has {len(ids) + 1} tokens, end mark included, and this model reads "
                f"at most {self._translator.max_length} (data.max_length when it was trained). Leave it out."
            )
