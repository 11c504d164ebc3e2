"""A model that begins as a word-by-word translator: the aligner knows which words translate each other.

The embedding of a source word points where those of its translations do, and cross-attention passes on what
it attends to. So the first gradients, which teach where to attend, are already right.
"""

import logging

import numpy as np
import torch
from torch import Tensor, nn

from mt.data.batches.alignment import NONE, SrcPositions
from mt.data.batches.pairs import EncodedPairs
from mt.special_tokens import EOS_ID
from mt.transformer.transformer import Transformer

LOG = logging.getLogger(__name__)

# The share of the lexicon in the variance of a source embedding; the rest stays as it was drawn.
_SHARE = 0.9
# The standard deviation of what is added to an identity.
_NOISE = 0.02


@torch.no_grad()
def begin_with_lexicon(model: Transformer, pairs: EncodedPairs, src_positions: SrcPositions) -> None:
    """Set source embeddings, cross-attention and the output's bias, by the aligned training pairs."""
    counts = link_counts(
        pairs, src_positions, (len(model.src_embedding.tokens.weight), model.output.out_features)
    )
    embedding = model.src_embedding.tokens.weight
    translation = torch.sparse.mm(counts, model.output.weight)
    norms = translation.norm(dim=1, keepdim=True)
    known = norms[:, 0] > 0
    towards = translation[known] / norms[known] * embedding[known].norm(dim=1, keepdim=True)
    embedding[known] = _SHARE**0.5 * towards + (1 - _SHARE) ** 0.5 * embedding[known]
    for layer in model.decoder.layers:
        for projection in (layer.cross_attention.value, layer.cross_attention.output):
            _make_identity(projection)
    if model.output.bias is not None:
        model.output.bias.copy_(_log_frequencies(pairs, model.output.out_features))
    LOG.info("%s of %s source words begin as their translations", f"{int(known.sum()):,}", f"{len(known):,}")


def link_counts(pairs: EncodedPairs, src_positions: SrcPositions, size: tuple[int, int]) -> Tensor:
    """How often a target word is aligned with a source word: sparse ``(source words, target words)``."""
    is_linked = src_positions != NONE
    starts = np.repeat(pairs.src.offsets[:-1], np.diff(pairs.tgt.offsets))
    src_ids = pairs.src.ids[(starts + src_positions)[is_linked]]
    links = torch.from_numpy(np.stack([src_ids, pairs.tgt.ids[is_linked]]).astype(np.int64))
    return torch.sparse_coo_tensor(links, torch.ones(links.size(1)), size, check_invariants=True).coalesce()


def _make_identity(linear: nn.Linear) -> None:
    nn.init.normal_(linear.weight, std=_NOISE)
    linear.weight.diagonal().add_(1.0)


def _log_frequencies(pairs: EncodedPairs, num_entries: int) -> Tensor:
    """The logarithm of each target word's share of the text; half an occurrence for those without any."""
    counts = np.bincount(pairs.tgt.ids, minlength=num_entries).astype(np.float32)
    counts[EOS_ID] = len(pairs)
    return torch.from_numpy(np.log(np.maximum(counts, 0.5) / counts.sum()))
