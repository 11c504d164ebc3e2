"""Sizes by a hand-written formula, variants by what they share, initial weights by their distribution."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from mt.masks import padding_mask, target_mask
from mt.special_tokens import PAD_ID
from tests.fixture_types import MakeModel

VARIANTS: list[dict[str, Any]] = [
    {},
    {"norm_first": False},
    {"bias": False},
    {"bias": False, "norm_first": False},
    {"activation": "gelu"},
    {"tie_output": False},
    {"share_embeddings": True, "tgt_vocab_size": 11},
    {"share_embeddings": True, "tgt_vocab_size": 11, "tie_output": False},
    {"num_encoder_layers": 3, "num_decoder_layers": 1},
    {"num_encoder_layers": 1, "num_decoder_layers": 4},
    {"output_bias": True},
    {"output_bias": True, "tie_output": False},
    {"d_ff": 5},
    {"num_heads": 16},
    {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1},
]


def num_parameters(
    *,
    src_vocab_size: int = 11,
    tgt_vocab_size: int = 13,
    d_ff: int = 24,
    num_encoder_layers: int = 2,
    num_decoder_layers: int = 2,
    norm_first: bool = True,
    bias: bool = True,
    tie_output: bool = True,
    share_embeddings: bool = False,
    output_bias: bool = False,
    **_without_influence: Any,
) -> int:
    d = 16
    attention = 4 * (d * d + bias * d)
    feed_forward = 2 * d * d_ff + bias * (d_ff + d)
    norm = d + bias * d
    encoder = num_encoder_layers * (attention + feed_forward + 2 * norm) + norm_first * norm
    decoder = num_decoder_layers * (2 * attention + feed_forward + 3 * norm) + norm_first * norm
    num_rows = tgt_vocab_size + (not share_embeddings) * src_vocab_size + (not tie_output) * tgt_vocab_size
    return encoder + decoder + num_rows * d + output_bias * tgt_vocab_size


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_every_variant_has_the_parameters_of_the_formula_and_each_gets_a_gradient(
    changes: dict[str, Any], make_model: MakeModel
) -> None:
    model = make_model(**changes).train()
    assert sum(p.numel() for p in model.parameters()) == num_parameters(**changes)
    src_ids, tgt_ids = torch.randint(4, 11, (4, 6)), torch.randint(4, 11, (4, 5))
    logits = model(src_ids, padding_mask(src_ids), tgt_ids, target_mask(tgt_ids))
    assert logits.shape == (4, 5, changes.get("tgt_vocab_size", 13))
    logits.logsumexp(-1).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # The softmax is invariant to what is added to all keys alike.
        assert "key.bias" in name or parameter.grad.any(), name


def test_linear_weights_are_xavier_uniform_and_biases_zero(make_model: MakeModel) -> None:
    model = make_model(d_model=64, d_ff=160, tie_output=False, tgt_vocab_size=50, output_bias=True)
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    assert len(linears) == 2 * (4 + 2) + 2 * (8 + 2) + 1
    for linear in linears:
        assert linear.bias.eq(0).all()
        bound = math.sqrt(6 / (linear.in_features + linear.out_features))
        weight = linear.weight.detach()
        assert 0.98 * bound < weight.abs().max() <= bound
        assert float(weight.std()) == pytest.approx(bound / math.sqrt(3), rel=0.06)
        assert abs(float(weight.mean())) < 5 * bound / math.sqrt(3 * weight.numel())


@pytest.mark.parametrize("tie_output", [True, False])
def test_scaled_embeddings_are_as_large_as_the_positions(tie_output: bool, make_model: MakeModel) -> None:
    model = make_model(d_model=64, tie_output=tie_output, src_vocab_size=200, tgt_vocab_size=300)
    for embedding in (model.src_embedding, model.tgt_embedding):
        weight = embedding.tokens.weight.detach()
        assert float(weight.std()) == pytest.approx(64**-0.5, rel=0.05)
        assert float((weight * embedding.scale).square().mean().sqrt()) == pytest.approx(1, rel=0.05)
        assert float(weight.abs().max()) > 3 * 64**-0.5  # normal, not uniform


def test_all_matrices_start_with_the_standard_deviation_asked_for(make_model: MakeModel) -> None:
    model = make_model(d_model=64, src_vocab_size=200, tgt_vocab_size=300, initial_std=0.02)
    for matrix in (parameter.detach() for parameter in model.parameters() if parameter.dim() == 2):
        assert float(matrix.std()) == pytest.approx(0.02, rel=0.06)


def test_words_and_embeddings_are_dropped_on_both_sides(make_model: MakeModel) -> None:
    model = make_model(word_dropout=0.2, dropout=0.1)
    sides = model.src_embedding, model.tgt_embedding
    assert [(side.word_dropout.p, side.dropout.p) for side in sides] == [(0.2, 0.1), (0.2, 0.1)]


@torch.no_grad()
def test_the_padding_row_of_an_embedding_changes_no_prediction(make_model: MakeModel) -> None:
    model = make_model(tie_output=False)
    src_ids = torch.tensor([[5, 6, 7, 3], [8, 3, PAD_ID, PAD_ID]])
    tgt_ids = torch.tensor([[2, 5, 6, 7], [2, 9, PAD_ID, PAD_ID]])

    def run() -> torch.Tensor:
        logits: torch.Tensor = model(src_ids, padding_mask(src_ids), tgt_ids, target_mask(tgt_ids))
        return logits[tgt_ids != PAD_ID]

    expected = run()
    for embedding in (model.src_embedding, model.tgt_embedding):
        embedding.tokens.weight[PAD_ID] = 100 * torch.randn(16)
        assert torch.equal(run(), expected)
