"""Attention against torch's own function and module; the alignment scores are those of its first head."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt.masks import causal_mask, padding_mask, target_mask
from mt.transformer import kernels
from mt.transformer.attention import MultiHeadAttention, attention, attention_weights, mask_scores
from mt.transformer.kernels.attention import as_bias
from mt.transformer.recording import recording_attention
from tests.fixture_types import MakeModel

B, H, TQ, TK, K = 3, 2, 5, 7, 4
GradientCheck = Callable[[Tensor, Tensor, list[Tensor], list[Tensor]], None]


def random_mask(*shape: int) -> Tensor:
    """About half of it True, and in each row at least the first key."""
    mask = torch.rand(shape) < 0.5
    mask[..., 0] = True
    return mask


def random_heads(num_queries: int, num_keys: int) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = (torch.randn(B, H, length, K) for length in (num_queries, num_keys, num_keys))
    return query.requires_grad_(), key.requires_grad_(), value.requires_grad_()


@pytest.mark.parametrize(
    "mask_shape",
    [None, (B, 1, 1, TK), (B, 1, TQ, TK), (1, 1, TQ, TK), (B, H, TQ, TK), (1, H, 1, TK), (TQ, TK)],
)
def test_weights_times_values_equal_the_attention_of_torch(
    mask_shape: tuple[int, ...] | None, assert_equal_gradients: GradientCheck
) -> None:
    heads = random_heads(TQ, TK)
    mask = None if mask_shape is None else random_mask(*mask_shape)
    ours = attention(*heads, mask)
    theirs = F.scaled_dot_product_attention(*heads, attn_mask=mask)
    torch.testing.assert_close(ours, theirs)
    assert_equal_gradients(ours, theirs, list(heads), list(heads))


@pytest.mark.parametrize("form", ["boolean", "bias", "causal", "all"])
def test_the_kernel_computes_the_plain_equation(form: str, assert_equal_gradients: GradientCheck) -> None:
    heads = random_heads(TQ, TQ)
    padding = padding_mask(torch.tensor([[5] * TQ, [5, 5, 5, 0, 0], [5, 0, 0, 0, 0]]))
    causal = causal_mask(TQ)
    forms: dict[str, tuple[Tensor | None, kernels.Mask]] = {
        "boolean": (padding & causal, padding & causal),
        "bias": (padding, as_bias(padding, torch.float32)),
        "causal": (causal, "causal"),
        "all": (None, None),
    }
    plain, fast = attention(*heads, forms[form][0]), kernels.attention(*heads, forms[form][1])
    torch.testing.assert_close(fast, plain)
    assert_equal_gradients(fast, plain, list(heads), list(heads))
    # In mixed precision it is in float32 where its gradient is needed, and takes 8 numbers of a mask at once.
    with torch.autocast("cpu", torch.bfloat16):
        assert kernels.attention(*heads, forms[form][1]).dtype == torch.float32
        with torch.no_grad():
            assert kernels.attention(*heads, forms["all"][1]).dtype == torch.bfloat16
    assert as_bias(padding, torch.float32).stride(0) == 8


def test_query_without_any_allowed_key_gets_zeros_and_no_nan(assert_equal_gradients: GradientCheck) -> None:
    heads = random_heads(TQ, TK)
    mask = random_mask(B, 1, TQ, TK)
    mask[1, :, 2] = False
    ours = attention(*heads, mask)
    assert ours[1, :, 2].eq(0).all()
    assert attention_weights(heads[0], heads[1], mask)[1, :, 2].eq(0).all()
    theirs = F.scaled_dot_product_attention(*heads, attn_mask=mask)
    torch.testing.assert_close(ours, theirs)
    assert_equal_gradients(ours, theirs, list(heads), list(heads))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("num_heads", [1, 2, 8])
@pytest.mark.parametrize("case", ["self", "cross", "masked"])
def test_multi_head_attention_equals_that_of_torch(
    case: str,
    num_heads: int,
    bias: bool,
    randomise: Callable[[nn.Module], None],
    copy_attention: Callable[[MultiHeadAttention, nn.MultiheadAttention], None],
    assert_equal_gradients: GradientCheck,
) -> None:
    ours = MultiHeadAttention(16, num_heads, bias=bias)
    randomise(ours)
    theirs = nn.MultiheadAttention(16, num_heads, bias=bias, batch_first=True)
    copy_attention(ours, theirs)
    x = torch.randn(B, TQ, 16, requires_grad=True)
    memory = x if case == "self" else torch.randn(B, TK, 16, requires_grad=True)
    mask = random_mask(B, num_heads, TQ, memory.size(1)) if case == "masked" else None
    # In nn.MultiheadAttention True means "may not", and the heads are part of the batch dimension.
    their_mask = None if mask is None else ~mask.flatten(0, 1)

    output = ours(x, memory, mask)
    their_output, _ = theirs(x, memory, memory, attn_mask=their_mask, need_weights=False)
    torch.testing.assert_close(output, their_output)
    assert_equal_gradients(output, their_output, [x, memory], [x, memory])


def test_dropout_is_active_in_training_only_and_keeps_the_mean() -> None:
    attention = MultiHeadAttention(8, 2, dropout=0.5)
    x = torch.randn(1, 6, 8).expand(4000, 6, 8)
    expected = attention.eval()(x, x, None)
    assert attention(x, x, None).equal(expected)
    dropped = attention.train()(x, x, None)
    assert (dropped[0] - dropped[1]).abs().max() > 0.05
    torch.testing.assert_close(dropped.mean(0), expected[0], atol=0.05, rtol=0)


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
    scores = mask_scores(decoded.alignment_scores, MASKS[0][:, 0])
    torch.testing.assert_close(scores.softmax(-1), weights[:, 0])
