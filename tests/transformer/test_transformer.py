"""The whole model: masks are obeyed, the cache changes no output, weights are exported and loaded."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mt.masks import padding_mask, target_mask
from mt.special_tokens import BOS_ID, PAD_ID
from mt.transformer.transformer import Transformer
from mt.transformer.weights import load_weights
from tests.fixture_types import MakeModel

SRC_IDS = torch.tensor([[5, 6, 7, 8, 9, 3], [10, 6, 3, 0, 0, 0], [7, 8, 9, 10, 3, 0]])
TGT_IDS = torch.tensor([[BOS_ID, 12, 11, 5, 0], [BOS_ID, 6, 0, 0, 0], [BOS_ID, 4, 5, 6, 7]])
NORMS = pytest.mark.parametrize("norm_first", [True, False])


def run(model: Transformer, src_ids: Tensor, tgt_ids: Tensor) -> Tensor:
    logits: Tensor = model(src_ids, padding_mask(src_ids), tgt_ids, target_mask(tgt_ids))
    return logits


def pad_right(ids: Tensor, count: int) -> Tensor:
    return nn.functional.pad(ids, (0, count), value=PAD_ID)


@NORMS
@pytest.mark.parametrize(("src_padding", "tgt_padding"), [(0, 0), (4, 0), (0, 4)])
def test_each_sentence_has_the_same_output_alone_and_in_a_batch_with_any_padding(
    src_padding: int, tgt_padding: int, norm_first: bool, make_model: MakeModel
) -> None:
    model = make_model(norm_first=norm_first)
    expected = run(model, pad_right(SRC_IDS, src_padding), pad_right(TGT_IDS, tgt_padding))
    for row in range(3):
        src_ids = SRC_IDS[row : row + 1, : int((SRC_IDS[row] != PAD_ID).sum())]
        tgt_ids = TGT_IDS[row : row + 1, : int((TGT_IDS[row] != PAD_ID).sum())]
        alone = run(model, src_ids, tgt_ids)[0]
        torch.testing.assert_close(alone, expected[row, : len(alone)], atol=1e-5, rtol=1e-4)


@NORMS
def test_later_target_token_changes_no_earlier_output(norm_first: bool, make_model: MakeModel) -> None:
    model = make_model(norm_first=norm_first)
    tgt_ids = TGT_IDS[2:]
    expected = run(model, SRC_IDS[2:], tgt_ids)[0]
    for position in range(1, tgt_ids.size(1)):
        changed = tgt_ids.clone()
        changed[0, position] = 11
        logits = run(model, SRC_IDS[2:], changed)[0]
        torch.testing.assert_close(logits[:position], expected[:position], atol=1e-6, rtol=0)
        assert ((logits - expected)[position:].abs().amax(-1) > 1e-4).all()


@NORMS
def test_row_of_nothing_but_padding_gives_no_nan(norm_first: bool, make_model: MakeModel) -> None:
    model = make_model(norm_first=norm_first).train()
    src_ids, tgt_ids = SRC_IDS.clone(), TGT_IDS.clone()
    src_ids[1] = tgt_ids[1] = PAD_ID
    src_ids[0] = PAD_ID
    logits = run(model, src_ids, tgt_ids)
    assert logits.isfinite().all()
    logits.logsumexp(-1).sum().backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all(), name
    src_mask = padding_mask(src_ids)
    cache = model.start_cache(model.encode(src_ids, src_mask), src_mask)
    assert model.decode_step(tgt_ids[:, 0], cache)[0].isfinite().all()


@pytest.mark.parametrize(
    "changes",
    [{}, {"tie_output": False}, {"share_embeddings": True, "tgt_vocab_size": 11}, {"norm_first": False}],
    ids=str,
)
def test_loading_the_weights_of_another_model_gives_its_outputs(
    changes: dict[str, Any], make_model: MakeModel
) -> None:
    model, other = make_model(**changes), make_model(**changes)
    tgt_ids = TGT_IDS.clamp(max=10)
    assert not run(other, SRC_IDS, tgt_ids).allclose(run(model, SRC_IDS, tgt_ids), atol=1e-3)
    weights = {name: weight.clone() for name, weight in model.weights().items()}
    assert len({weight.data_ptr() for weight in model.weights().values()}) == len(weights)
    assert sum(weight.numel() for weight in weights.values()) == sum(p.numel() for p in model.parameters())
    load_weights(other, weights)
    assert run(other, SRC_IDS, tgt_ids).equal(run(model, SRC_IDS, tgt_ids))
    assert (other.output.weight is other.tgt_embedding.tokens.weight) == changes.get("tie_output", True)


def test_weights_of_another_model_are_refused_by_name(make_model: MakeModel) -> None:
    model = make_model()
    before = {name: weight.clone() for name, weight in model.weights().items()}
    weights = model.weights()
    with pytest.raises(ValueError, match=r"differ in encoder\.norm\.bias$"):
        load_weights(model, {name: weights[name] for name in weights if name != "encoder.norm.bias"})
    with pytest.raises(ValueError, match=r"differ in extra\.weight$"):
        load_weights(model, weights | {"extra.weight": torch.zeros(2)})
    with pytest.raises(ValueError, match=r"differ in output\.weight$"):
        load_weights(model, make_model(tie_output=False).weights())
    with pytest.raises(ValueError, match=r"encoder\.norm\.bias has the shape \(16, 2\), not \(16,\)$"):
        load_weights(model, weights | {"encoder.norm.bias": torch.zeros(16, 2)})
    assert all(weight.equal(before[name]) for name, weight in model.weights().items())
