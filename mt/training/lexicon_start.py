"""A model that begins as a word-by-word translator: the aligner knows which words translate each other.

Target words that have the same neighbours begin with similar embeddings, and that of a source word points
where those of its translations do. Cross-attention passes on what it attends to, and the output knows how
frequent each word is. What is left to learn first is where to attend.
"""

import logging

import numpy as np
import torch
from torch import Tensor, nn

from mt.data.batches.alignment import NONE
from mt.data.batches.pairs import EncodedPairs, EncodedSentences, Ids
from mt.special_tokens import EOS_ID
from mt.transformer.transformer import Transformer

LOG = logging.getLogger(__name__)

# The share of what is known in the variance of an embedding; the rest stays as it was drawn.
_SHARE = 0.9
# How far away a neighbour is at most, and the power of its frequency that is the frequency expected of it.
_WINDOW, _SMOOTHING = 2, 0.75
# The standard deviation of what is added to an identity.
_NOISE = 0.02


@torch.no_grad()
def begin_with_lexicon(model: Transformer, pairs: EncodedPairs) -> None:
    """Set embeddings, cross-attention and the output's bias, by the aligned training pairs."""
    num_src = _occurrences(pairs.src.ids, model.src_embedding.tokens.num_embeddings, len(pairs))
    num_tgt = _occurrences(pairs.tgt.ids, model.output.out_features, len(pairs))
    links = link_counts(pairs, (len(num_src), len(num_tgt)))
    neighbours = vectors_of_neighbours(pairs.tgt, *model.output.weight.shape)
    for matrix in {model.tgt_embedding.tokens.weight, model.output.weight}:
        _turn(matrix, neighbours, neighbours.norm(dim=1) > 0)
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


def _turn(embedding: Tensor, vectors: Tensor, rows: Tensor) -> None:
    """Let these rows point where the vectors do, about as long as they were."""
    drawn = embedding[rows]
    direction = nn.functional.normalize(vectors[rows], dim=1)
    lengths = drawn.norm(dim=1, keepdim=True)
    embedding[rows] = _SHARE**0.5 * direction * lengths + (1 - _SHARE) ** 0.5 * drawn


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


def vectors_of_neighbours(sentences: EncodedSentences, num_entries: int, width: int) -> Tensor:
    """``(V, D)``: vectors that are similar for entries with the same neighbours before and after them.

    The truncated singular value decomposition of positive pointwise mutual information, with smoothed
    contexts and roots of the singular values (Levy, Goldberg and Dagan 2015, sections 2 and 3).
    """
    ids = sentences.ids.astype(np.int64)
    sentence = np.repeat(np.arange(len(sentences)), np.diff(sentences.offsets))
    places, weights = [], []
    for distance in range(1, _WINDOW + 1):
        is_same = sentence[distance:] == sentence[:-distance]
        before = ids[:-distance][is_same]
        after = ids[distance:][is_same]
        # What stands after an entry is counted apart from what stands before it.
        for entry, neighbour in ((before, after + num_entries), (after, before)):
            places.append(2 * num_entries * entry + neighbour)
            weights.append(np.full(len(entry), 1 / distance))
    distinct, which = np.unique(np.concatenate(places), return_inverse=True)
    counts = np.bincount(which, np.concatenate(weights))
    entry, neighbour = np.divmod(distinct, 2 * num_entries)
    of_entry = np.bincount(entry, counts, num_entries)
    of_neighbour = np.bincount(neighbour, counts, 2 * num_entries) ** _SMOOTHING
    expected = of_entry[entry] * of_neighbour[neighbour] / of_neighbour.sum()
    information = np.log(counts / expected).clip(min=0).astype(np.float32)
    matrix = torch.sparse_coo_tensor(
        torch.from_numpy(np.stack([entry, neighbour])),
        torch.from_numpy(information),
        (num_entries, 2 * num_entries),
        check_invariants=True,
    )
    left, singular_values, _ = torch.svd_lowrank(matrix, q=min(width, num_entries))
    left[of_entry == 0] = 0.0
    return nn.functional.pad(left * singular_values.sqrt(), (0, width - len(singular_values)))


def _occurrences(ids: Ids, num_entries: int, num_sentences: int) -> Tensor:
    """How often each entry occurs, EOS once a sentence: ``(V,)``."""
    counts = np.bincount(ids, minlength=num_entries)
    counts[EOS_ID] = num_sentences
    return torch.from_numpy(counts.astype(np.float32))
