"""The reference engine: the searches of `mt.search` over a model of ours, or an ensemble, by torch."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from math import isfinite
from typing import Literal

import torch
from torch import Tensor

from mt import distributed
from mt.config.config import Config
from mt.data.batches.batch import Batch, collate, pad
from mt.device import SearchPrecision
from mt.errors import OverflowedLinesError
from mt.inference.engines import (
    Attention,
    CheckStop,
    NBest,
    OnDone,
    Rules,
    Sentences,
    batches_by_length,
    in_batches,
    in_halves,
)
from mt.search.beam import beam_search
from mt.search.ensemble import EnsembleModel, Member
from mt.search.greedy import greedy_search
from mt.search.hypothesis import NotFiniteError
from mt.search.request import SearchRequest, TeacherForced
from mt.search.sampling import sample
from mt.search.strategy import Beam
from mt.special_tokens import EOS_ID, UNK_ID
from mt.transformer.recording import recording_attention
from mt.transformer.transformer import Transformer

# Source tokens in a batch, including padding; with a beam, those of a sentence count once for each of its
# hypotheses. A batch to score has fewer, because all of its logits are held at once.
_BATCH_TOKENS, _BEAM_TOKENS, _SCORED_TOKENS = 8192, 16_384, 2048
# How many times as many they are on CUDA, where more sentences hardly lengthen a step.
_TIMES_ON_CUDA = 4


class TorchEngine:
    """The engine that can do everything, and the reference for the other."""

    name: Literal["torch"] = "torch"

    def __init__(
        self, model: Member, device: torch.device, config: Config, precision: SearchPrecision
    ) -> None:
        """Search with ``model``, which is on ``device`` in ``precision`` and has this config."""
        self.model = model
        self.torch_device = device
        self.device = device.type
        self.precision: SearchPrecision = precision
        self.aligning_heads = config.aligning_heads
        self.batch_sentences = config.validation.batch_sentences
        """How many sentences that wait are best translated at once."""

    def search(self, sentences: Sentences, rules: Rules, check_stop: CheckStop, on_done: OnDone) -> NBest:
        """The translations of each sentence, the best first, of batches that several processes share.

        Args:
            sentences: What to translate, with the limit and the prefix of each.
            rules: The strategy and the constraints, which are the same for all.
            check_stop: Called before each batch and each step; may raise, and then nothing is returned.
            on_done: Called with the indices of the sentences of each batch when it is done, in any order.
        """
        most_tokens = min(_BATCH_TOKENS, _BEAM_TOKENS // rules.beam.size)
        most_tokens *= _TIMES_ON_CUDA if self.device == "cuda" else 1
        batches = batches_by_length(sentences, most_tokens, self.batch_sentences)
        search_some = partial(self._search, rules, check_stop)

        def search_batch(batch: Sequence[int]) -> NBest:
            check_stop()
            hypotheses = in_halves(search_some, [sentences[index] for index in batch])
            on_done(batch)
            return hypotheses

        hypotheses = chain.from_iterable(distributed.scatter(batches, search_batch))
        by_index = dict(zip(chain.from_iterable(batches), hypotheses, strict=True))
        return [by_index[index] for index in range(len(sentences))]

    @torch.inference_mode()
    def _search(self, rules: Rules, check_stop: CheckStop, batch: Sentences) -> NBest:
        src_ids = pad([list(sentence.ids) for sentence in batch], last=EOS_ID).to(self.torch_device)
        prefixes = [sentence.prefix for sentence in batch]
        request = SearchRequest(
            src_ids,
            [sentence.limit for sentence in batch],
            keep_unk=rules.keep_unk,
            forbidden=rules.forbidden,
            copyable=src_ids == UNK_ID if rules.copies_words else None,
            prefix_copies=[sentence.prefix_copies for sentence in batch],
            constraints=replace(rules.constraints, prefixes=prefixes if any(prefixes) else ()),
            with_scores=rules.with_scores,
            before_each_step=check_stop,
        )
        try:
            if isinstance(rules.strategy, Beam):
                return beam_search(self.model, request, rules.strategy)
            if rules.strategy is None:
                return [[best] for best in greedy_search(self.model, request)]
            numbers = [sentence.number for sentence in batch]
            return [[drawn] for drawn in sample(self.model, request, rules.strategy, numbers)]
        except NotFiniteError as error:
            raise self._overflow_of([batch[index].line for index in error.sentences]) from error

    @torch.inference_mode()
    def score(self, sentences: Sentences) -> list[list[float]]:
        """The log-probabilities of the tokens of each prefix, and of EOS after it."""

        def score_batch(some: Sentences) -> list[list[float]]:
            batch = collate([sentence.ids for sentence in some], [sentence.prefix for sentence in some])
            rows: list[list[float]] = label_log_probs(self.model, batch.to(self.torch_device)).tolist()
            return [row[: len(sentence.prefix) + 1] for sentence, row in zip(some, rows, strict=True)]

        scores = in_batches(partial(in_halves, score_batch), sentences, _SCORED_TOKENS)
        scored = zip(sentences, scores, strict=True)
        overflowed = [sentence.line for sentence, log_probs in scored if not all(map(isfinite, log_probs))]
        if overflowed:
            raise self._overflow_of(overflowed)
        return scores

    def _overflow_of(self, lines: Sequence[int]) -> OverflowedLinesError:
        reason = (
            f"has a sentence for which the model's logits in {self.precision} are NaN or infinite. "
            "Use --precision float32, or another checkpoint with --checkpoint NAME."
        )
        return OverflowedLinesError({line: f"line {line} {reason}" for line in lines})

    def attention(self, sentences: Sentences) -> list[Attention]:
        """How much each token of each prefix attends to each of the sentence, by the heads that align."""
        layer, num_heads = self.aligning_heads
        weights: list[Attention] = []
        for sentence in sentences:
            *_, cross = self.record(sentence.ids, sentence.prefix)
            weights.append(cross[layer, :num_heads].mean(0).tolist())
        return weights

    @torch.inference_mode()
    def record(self, src_ids: Sequence[int], tgt_ids: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Three kinds of attention, as in `SentenceAttention`, for ids without BOS and EOS.

        Of an ensemble, that of its first model.
        """
        model = self.model.models[0] if isinstance(self.model, EnsembleModel) else self.model
        assert isinstance(model, Transformer)
        batch = collate([src_ids], [tgt_ids]).to(self.torch_device)
        with recording_attention(model) as recorded:
            memory = model.encode(batch.src_ids, batch.src_mask)
            model.decode(batch.tgt_ids, memory, batch.src_mask, batch.tgt_mask)

        def stacked(layers: list[list[Tensor]]) -> Tensor:
            return torch.stack([weights[0] for [weights] in layers]).cpu()

        return stacked(recorded.encoder_self), stacked(recorded.decoder_self), stacked(recorded.cross)


def label_log_probs(model: TeacherForced, batch: Batch) -> Tensor:
    """Compute the log-probability of each label, given the preceding ones (forced decoding).

    ``(B, T)`` natural logarithms over the whole vocabulary, meaningless where a label is PAD.
    """
    logits = model.forward(batch.src_ids, batch.src_mask, batch.tgt_ids, batch.tgt_mask).float()
    # A log-softmax would need more memory, and only one of its V values would be used.
    return logits.gather(-1, batch.labels[..., None])[..., 0] - logits.logsumexp(-1)
