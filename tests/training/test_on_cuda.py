"""A whole step of training on a CUDA device, without a GPU: no mixed devices, and hardly any waiting."""

from collections.abc import Sequence
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from mt.config.config import Config
from mt.config.data import DataConfig
from mt.config.model import ModelConfig
from mt.config.training import TrainingConfig
from mt.data.batches.batch import collate
from mt.data.batches.stream import StepBatches
from mt.device import Precision
from mt.training.train_state import TrainState, new_train_state
from tests.fake_cuda import CUDA, fake_cuda, on_cuda
from tests.fixture_types import MakeBatches
from tests.training.steps import take_step

MOST_READS = 1
"""In one step: the loss and the norm of the gradient, at once."""


def state_on_cuda(precision: Literal["auto", "float32", "bf16", "fp16"], **training: Any) -> TrainState:
    model = ModelConfig(d_model=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, d_ff=32)
    config = Config(
        data=DataConfig(path="-", src="a", tgt="b"),
        model=model,
        training=TrainingConfig(max_steps=1, **training),
    )
    built = on_cuda(model, vocab_size=17)
    return new_train_state(built, config, Precision(precision, CUDA))


OPTIONS: Sequence[dict[str, Any]] = [
    {},
    {"muon": True},
    {"r_drop": 5.0, "ema_decay": 0.9},
    {"muon": True, "ema_decay": 0.9, "clip_norm": None},
    {"muon": True, "ema_decay": 0.9, "weight_decay": 0.1, "num_micro_batches": 2},
]


@pytest.mark.parametrize("training", OPTIONS, ids=str)
@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
def test_steps_are_launched_without_waiting_for_the_one_before(
    precision: Literal["float32", "bf16", "fp16"], training: dict[str, Any], make_batches: MakeBatches
) -> None:
    batches = make_batches([4, 7])
    with fake_cuda() as device:
        state = state_on_cuda(precision, **training)
        micro_batches = [device.on_host(batch) for batch in batches]
        launched = [state.launch(StepBatches.of(*micro_batches)) for _ in range(2)]
        assert device.num_reads == 0
        assert all(state.finish(step).updated for step in launched)
        assert device.num_reads == 2 * MOST_READS
        assert {parameter.device.type for parameter in state.objective.parameters()} == {"cuda"}


def test_mixed_precision_is_on_for_the_fake_device() -> None:
    # The tests above would show nothing of it otherwise.
    with fake_cuda():
        ones = torch.ones(2, 2, device=CUDA)
        with Precision("bf16", CUDA).autocast():
            assert (ones @ ones).dtype == torch.bfloat16
        with Precision("fp16", CUDA).autocast():
            assert (ones @ ones).dtype == torch.float16


@pytest.mark.parametrize("src_lengths", [(5, 5, 5), (5, 3, 4)], ids=["equal lengths", "padding"])
def test_only_padding_of_sources_has_a_mask_which_would_rule_out_flash_attention(
    src_lengths: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[bool, bool]] = []
    attend = functional.scaled_dot_product_attention

    def note(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
    ) -> Tensor:
        calls.append((attn_mask is not None, is_causal))
        return attend(query, key, value, attn_mask, dropout_p, is_causal)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", note)
    batch = collate([[7] * length for length in src_lengths], [[8] * length for length in (2, 6, 4)])
    with fake_cuda() as device:
        take_step(state_on_cuda("bf16"), [device.on_host(batch)])
    is_padded = len(set(src_lengths)) > 1
    of_encoder, of_decoder = [(is_padded, False)], [(False, True), (is_padded, False)]
    assert calls == of_encoder + of_decoder
