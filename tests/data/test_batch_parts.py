"""A batch taken apart: into two, and back into the sentences it was made of."""

import torch

from mt.data.batches.batch import Batch, collate

SRC, TGT = [[5, 6, 7], [8], [], [9, 9]], [[4], [5, 6], [7, 8, 9], []]


def test_sentences_are_what_was_collated() -> None:
    assert collate(SRC, TGT).sentences() == (SRC, TGT)


def test_halves_have_each_row_once() -> None:
    whole = collate(SRC[:3], TGT[:3])
    first, second = whole.halves()
    for name in ("src_ids", "src_mask", "tgt_ids", "tgt_mask", "labels"):
        assert torch.equal(torch.cat([getattr(first, name), getattr(second, name)]), getattr(whole, name))
    assert (first.num_target_tokens, second.num_target_tokens) == (2, 7)
    assert [len(half.labels) for half in (first, second)] == [1, 2]
    assert isinstance(first, Batch)
