"""The plain model, to search with: it decodes each row from its start again, as a reference for caches."""

import torch
from torch import Tensor

from mt.masks import causal_mask
from mt.transformer.attention import mask_scores
from mt.transformer.transformer import Transformer


class Prefixes:
    """Everything that the rows have been given so far, and what they are translations of."""

    def __init__(self, memory: Tensor, src_mask: Tensor) -> None:
        self.memory, self.src_mask = memory, src_mask
        self.ids = torch.empty(len(memory), 0, dtype=torch.long)

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        self.ids = self.ids[rows]
        if sentences is not None:
            self.memory, self.src_mask = self.memory[sentences], self.src_mask[sentences]


class UncachedTransformer:
    """An `EncoderDecoder` that only uses what training uses too."""

    def __init__(self, model: Transformer) -> None:
        self.model = model

    def encode(self, src_ids: Tensor, src_mask: Tensor) -> Tensor:
        return self.model.encode(src_ids, src_mask)

    def start_cache(self, memory: Tensor, src_mask: Tensor) -> Prefixes:
        return Prefixes(memory, src_mask)

    def decode_step(
        self, ids: Tensor, cache: Prefixes, *, with_alignment: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        cache.ids = torch.cat([cache.ids, ids[:, None]], dim=1)
        num_rows, length = cache.ids.shape
        memory, src_mask = (
            each.repeat_interleave(num_rows // len(each), dim=0) for each in (cache.memory, cache.src_mask)
        )
        decoded = self.model.decode(
            cache.ids, memory, src_mask, causal_mask(length), with_alignment=with_alignment
        )
        logits, scores = self.model.project(decoded.hidden[:, -1]), decoded.alignment_scores
        return logits, None if scores is None else mask_scores(scores, src_mask[:, 0])[:, -1]
