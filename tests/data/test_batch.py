"""Batches against torch's own padding and masks written out by hand; in halves; as the sentences again."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mt.data.batches.batch import Batch, collate, pad
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID
from tests.data.conftest import raw_ids

SRC, TGT = [[5, 6, 7], [8], [], [9, 9]], [[4], [5, 6], [7, 8, 9], []]


def random_sentences(num_sentences: int, seed: int) -> list[list[int]]:
    generator = np.random.default_rng(seed)
    return [generator.integers(4, 50, generator.integers(0, 12)).tolist() for _ in range(num_sentences)]


@pytest.mark.parametrize("seed", range(5))
def test_pad_equals_pad_sequence_of_torch(seed: int) -> None:
    sentences = random_sentences(7, seed)
    expected = pad_sequence([torch.tensor(s).long() for s in sentences], True, PAD_ID)
    assert torch.equal(pad(sentences), expected)
    expected = pad_sequence([torch.tensor([BOS_ID, *s, EOS_ID]) for s in sentences], True, PAD_ID)
    assert torch.equal(pad(sentences, first=BOS_ID, last=EOS_ID), expected)


def test_collate_written_out_by_hand() -> None:
    batch = collate([[10, 11], [12]], [[20], [21, 22]])
    assert batch.src_ids.tolist() == [[10, 11, EOS_ID], [12, EOS_ID, PAD_ID]]
    assert batch.tgt_ids.tolist() == [[BOS_ID, 20, PAD_ID], [BOS_ID, 21, 22]]
    assert batch.labels.tolist() == [[20, EOS_ID, PAD_ID], [21, 22, EOS_ID]]
    assert batch.src_mask.tolist() == [[[[True, True, True]]], [[[True, True, False]]]]
    assert batch.tgt_mask.tolist() == [
        [[[True, False, False], [True, True, False], [True, True, False]]],
        [[[True, False, False], [True, True, False], [True, True, True]]],
    ]
    assert batch.num_target_tokens == 5


def test_an_alignment_is_laid_out_as_the_labels_are_and_aligns_their_ends() -> None:
    batch = collate([[5, 6, 7], [8]], [[9], [9, 9]], [[2], [-1, 0]])
    assert batch.alignment is not None
    assert batch.alignment.tolist() == [[2, 3, -1], [-1, 0, 1]]
    nothing = batch.without_labels()
    assert nothing.alignment is not None
    assert set(nothing.alignment.flatten().tolist()) == {-1}
    assert (set(nothing.labels.flatten().tolist()), nothing.num_target_tokens) == ({PAD_ID}, 0)
    twice = batch.repeated(2)
    assert twice.num_target_tokens == 2 * batch.num_target_tokens == 10
    for name, tensor in vars(batch).items():
        if isinstance(tensor, Tensor):
            assert torch.equal(getattr(twice, name), torch.cat([tensor, tensor]))
    assert batch.num_positions == 2 * 4 + 2 * 3


def test_to_moves_every_tensor() -> None:
    batch = collate([[10, 11]], [[20]], [[0]]).to("meta")
    devices = [each.device.type for each in vars(batch).values() if isinstance(each, Tensor)]
    assert [*devices, batch.tgt_mask.device.type] == ["meta"] * 6
    assert batch.num_target_tokens == 2


@pytest.mark.parametrize("device", ["cuda", "mps", "cpu"])
@pytest.mark.parametrize("pinned", [True, False])
def test_a_copy_is_waited_for_unless_it_is_from_pinned_memory_to_cuda(
    device: str, pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of any other copy the source may be freed, and used again, before it has been read.
    copies: list[tuple[object, bool]] = []

    def to(tensor: Tensor, device: torch.device, *, non_blocking: bool = False) -> Tensor:
        copies.append((torch.device(device).type, non_blocking))
        return tensor

    monkeypatch.setattr(Tensor, "to", to)
    monkeypatch.setattr(Tensor, "is_pinned", lambda tensor: pinned)
    collate([[10, 11]], [[20]], [[0]]).to(device)
    assert copies == [(device, pinned and device == "cuda")] * 5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_pinned_batch_reaches_the_gpu_unchanged() -> None:
    batch = collate(random_sentences(9, 1), random_sentences(9, 2))
    moved = batch.pin_memory().to("cuda")
    assert torch.equal(moved.tgt_ids.cpu(), batch.tgt_ids)
    assert torch.equal(moved.tgt_mask.cpu(), batch.tgt_mask)


def test_a_batch_knows_whether_its_sources_are_padded() -> None:
    tgt = [[4], [5, 6]]
    assert not collate([[7, 8], [9, 7]], tgt).has_src_padding
    assert collate([[7], [9, 7]], tgt).has_src_padding


def test_sentences_are_what_was_collated() -> None:
    assert raw_ids(collate(SRC, TGT)) == (SRC, TGT)


def test_halves_have_each_row_once() -> None:
    whole = collate(SRC[:3], TGT[:3], [[0], [0, -1], [-1, -1, -1]])
    first, second = whole.halves()
    for name in ("src_ids", "src_mask", "tgt_ids", "tgt_mask", "labels", "alignment"):
        assert torch.equal(torch.cat([getattr(first, name), getattr(second, name)]), getattr(whole, name))
    assert (first.num_target_tokens, second.num_target_tokens) == (2, 7)
    assert [len(half.labels) for half in (first, second)] == [1, 2]
    assert isinstance(first, Batch)
