"""A model that begins as a word-by-word translator: the aligner knows which words translate each other.

The embedding of a source word points where those of its translations do, cross-attention passes on what it
attends to, and the output knows how frequent each word is. What is left to learn first is where to attend.
"""

import logging

import numpy as np
import torch
from torch import Tensor, nn

from mt.data.batches.alignment import NONE
from mt.data.batches.pairs import EncodedPairs, Ids
from mt.special_tokens import EOS_ID
from mt.transformer.transformer import Transformer

LOG = logging.getLogger(__name__)

# The share of the lexicon in the variance of a source embedding; the rest stays as it was drawn.
_SHARE = 0.9
# The standard deviation of what is added to an identity.
_NOISE = 0.02


@torch.no_grad()
def begin_with_lexicon(model: Transformer, pairs: EncodedPairs) -> None:
    """Set source embeddings, cross-attention and the output's bias, by the aligned training pairs."""
    num_src = _occurrences(pairs.src.ids, model.src_embedding.tokens.num_embeddings, len(pairs))
    num_tgt = _occurrences(pairs.tgt.ids, model.output.out_features, len(pairs))
    links = link_counts(pairs, (len(num_src), len(num_tgt)))
    embedding = model.src_embedding.tokens.weight
    translation = torch.sparse.mm(links, model.output.weight)
    is_linked = translation.norm(dim=1) > 0
    if embedding is model.tgt_embedding.tokens.weight:
        # What both languages have, such as a name, translates itself.
        is_linked &= num_src > num_tgt
    _turn(embedding, translation, is_linked)
    for layer in model.decoder.layers:
        _make_identity(layer.cross_attention.value)
        _make_identity(layer.cross_attention.output)
    if model.output.bias is not None:
        # An entry that never occurs counts as half an occurrence.
        shares = num_tgt.clamp(min=0.5) / num_tgt.sum()
        model.output.bias.copy_(shares.log())
    share = f"{int(is_linked.sum()):,} of {len(is_linked):,}"
    LOG.info("%s source entries begin as their translations", share)


def _turn(embedding: Tensor, translation: Tensor, rows: Tensor) -> None:
    """Let these rows point where their translations do, about as long as they were."""
    drawn = embedding[rows]
    direction = nn.functional.normalize(translation[rows], dim=1)
    lengths = drawn.norm(dim=1, keepdim=True)
    of_lexicon = _SHARE**0.5 * direction * lengths
    embedding[rows] = of_lexicon + (1 - _SHARE) ** 0.5 * drawn


def _make_identity(linear: nn.Linear) -> None:
    nn.init.normal_(linear.weight, std=_NOISE)
    linear.weight.diagonal().add_(1.0)


def link_counts(pairs: EncodedPairs, size: tuple[int, int]) -> Tensor:
    """How often each target entry is aligned with each source entry, and EOS with EOS: sparse ``size``."""
    assert pairs.src_positions is not None
    is_linked = pairs.src_positions != NONE
    starts = np.repeat(pairs.src.offsets[:-1], np.diff(pairs.tgt.offsets))
    src_ids = pairs.src.ids[(starts + pairs.src_positions)[is_linked]]
    links = torch.from_numpy(np.stack([src_ids, pairs.tgt.ids[is_linked]]))
    links = torch.cat([links, torch.full((2, 1), EOS_ID, dtype=links.dtype)], dim=1)
    return torch.sparse_coo_tensor(links, torch.ones(links.size(1)), size, check_invariants=True).coalesce()


def _occurrences(ids: Ids, num_entries: int, num_sentences: int) -> Tensor:
    """How often each entry occurs, EOS once a sentence: ``(V,)``."""
    counts = np.bincount(ids, minlength=num_entries)
    counts[EOS_ID] = num_sentences
    return torch.from_numpy(counts.astype(np.float32))
