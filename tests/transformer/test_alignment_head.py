"""The alignment scores are those of the last layer's first cross-attention head, cached or not."""

import pytest
import torch

from mt.masks import padding_mask, target_mask
from mt.transformer.recording import recording_attention
from tests.fixture_types import MakeModel

SRC_IDS = torch.tensor([[5, 6, 7, 8, 9], [5, 6, 7, 0, 0], [5, 0, 0, 0, 0]])
TGT_IDS = torch.tensor([[2, 4, 5, 6, 7, 8]] * 3)
MASKS = padding_mask(SRC_IDS), target_mask(TGT_IDS)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_softmax_of_the_scores_gives_the_weights_of_the_first_head(
    norm_first: bool, bias: bool, make_model: MakeModel
) -> None:
    model = make_model(norm_first=norm_first, bias=bias)
    memory = model.encode(SRC_IDS, MASKS[0])
    with recording_attention(model) as recorded:
        decoded = model.decode(TGT_IDS, memory, *MASKS, with_alignment=True)
    assert decoded.alignment_scores is not None
    [weights] = recorded.cross[-1]
    torch.testing.assert_close(decoded.alignment_scores.softmax(-1), weights[:, 0])


@pytest.mark.parametrize("rows_per_sentence", [1, 2])
def test_cached_steps_give_the_same_scores(rows_per_sentence: int, make_model: MakeModel) -> None:
    model = make_model()
    memory = model.encode(SRC_IDS, MASKS[0])
    at_once = model.decode(TGT_IDS, memory, *MASKS, with_alignment=True).alignment_scores
    assert at_once is not None
    cache = model.start_cache(memory, MASKS[0])
    number = 1
    for t in range(6):
        rows = TGT_IDS[:, t].repeat_interleave(number, dim=0)
        _, scores = model.decode_step(rows, cache, with_alignment=True)
        expected = at_once[:, t].repeat_interleave(number, dim=0)
        assert scores is not None
        torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-4)
        if t == 0:
            number = rows_per_sentence
            cache.select(torch.arange(len(rows)).repeat_interleave(number), None)
