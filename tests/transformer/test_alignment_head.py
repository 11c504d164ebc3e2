"""The scores of the alignment head are those of the last layer's first head, at once and step by step."""

import pytest
import torch

from mt.masks import causal_mask, padding_mask
from mt.transformer.decoder import Decoder, DecoderLayer
from mt.transformer.layer import LayerShape

SRC_IDS = torch.tensor([[5, 6, 7, 8, 9], [5, 6, 7, 0, 0], [5, 0, 0, 0, 0]])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_scores_give_the_weights_of_the_first_head(norm_first: bool, bias: bool) -> None:
    torch.manual_seed(1)
    decoder = Decoder(LayerShape(16, 4, 24, norm_first=norm_first, bias=bias), 2).eval()
    x, memory, mask = torch.randn(3, 6, 16), torch.randn(3, 5, 16), padding_mask(SRC_IDS)
    last = decoder.layers[-1]
    assert isinstance(last, DecoderLayer)
    seen: list[torch.Tensor] = []
    last.cross_attention.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    alignment: list[torch.Tensor] = []
    hidden = decoder(x, memory, mask, causal_mask(6), alignment)
    (scores,) = alignment
    expected = last.cross_attention.weights(seen[0], memory, mask)[:, 0]
    torch.testing.assert_close(scores.softmax(-1), expected)
    # To be asked changes nothing.
    assert decoder(x, memory, mask, causal_mask(6)).equal(hidden)


@pytest.mark.parametrize("rows_per_sentence", [1, 2])
def test_steps_over_a_cache_give_the_same_scores(rows_per_sentence: int) -> None:
    torch.manual_seed(2)
    decoder = Decoder(LayerShape(16, 4, 24), 2).eval()
    x, memory, mask = torch.randn(3, 6, 16), torch.randn(3, 5, 16), padding_mask(SRC_IDS)
    at_once: list[torch.Tensor] = []
    decoder(x, memory, mask, causal_mask(6), at_once)
    cache = decoder.start_cache(memory, mask, max_length=6, rows_per_sentence=rows_per_sentence)
    for t in range(6):
        alignment: list[torch.Tensor] = []
        decoder.step(x[:, t : t + 1].repeat_interleave(rows_per_sentence, dim=0), cache, alignment)
        expected = at_once[0][:, t].repeat_interleave(rows_per_sentence, dim=0)
        torch.testing.assert_close(alignment[0], expected, atol=1e-5, rtol=1e-4)
