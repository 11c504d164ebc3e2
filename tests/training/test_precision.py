"""Mixed precision where it helps, and a sentence where it would not."""

from typing import Literal

import pytest
import torch

from mt.errors import DeviceError
from mt.training.precision import Precision

MIXED = pytest.mark.parametrize("name", ["bf16", "fp16"])


@pytest.mark.parametrize("device", ["cpu", "mps", "cuda"])
def test_float32_changes_nothing(device: str) -> None:
    precision = Precision("float32", torch.device(device))
    assert not precision.scaler.is_enabled()
    with precision.autocast():
        assert not torch.is_autocast_enabled("cpu")
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


@MIXED
@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_mixed_precision_needs_cuda(name: Literal["bf16", "fp16"], device: str) -> None:
    with pytest.raises(DeviceError, match=rf"{name} needs a CUDA device, and this run trains on {device}\."):
        Precision(name, torch.device(device))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@MIXED
def test_mixed_precision_multiplies_in_halves(name: Literal["bf16", "fp16"]) -> None:
    precision = Precision(name, torch.device("cuda"))
    assert precision.scaler.is_enabled() == (name == "fp16")
    with precision.autocast():
        product = torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")
    assert product.dtype == {"bf16": torch.bfloat16, "fp16": torch.float16}[name]
