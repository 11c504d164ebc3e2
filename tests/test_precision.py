"""Mixed precision where it helps, and a sentence where it would not."""

from typing import Literal

import pytest
import torch

from mt.device import Precision, multiplies_bf16_fast
from mt.errors import DeviceError


@pytest.mark.parametrize("device", ["cpu", "mps", "cuda"])
def test_float32_changes_nothing(device: str) -> None:
    precision = Precision("float32", torch.device(device))
    assert not precision.scaler.is_enabled()
    with precision.autocast():
        assert not torch.is_autocast_enabled("cpu")
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


@pytest.fixture
def amx(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A CPU that multiplies bf16 fast, or one that does not."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": request.param}, raising=False)


@pytest.mark.parametrize(("device", "amx"), [("cpu", False), ("mps", True)], indirect=["amx"])
@pytest.mark.usefixtures("amx")
def test_bf16_is_refused_where_it_would_be_slower(device: str) -> None:
    with pytest.raises(
        DeviceError, match=rf"or a CPU with AMX or AVX-512 BF16, which this device \({device}\) is not"
    ):
        Precision("bf16", torch.device(device))


@pytest.mark.parametrize(("device", "amx"), [("cpu", False), ("mps", True)], indirect=["amx"])
@pytest.mark.usefixtures("amx")
def test_auto_takes_float32_where_bf16_would_be_slower(device: str) -> None:
    precision = Precision("auto", torch.device(device))
    assert precision.name == "float32"
    with precision.autocast():
        assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_fp16_needs_cuda(device: str) -> None:
    with pytest.raises(
        DeviceError, match=rf"fp16 needs a CUDA device, which this device \({device}\) is not\."
    ):
        Precision("fp16", torch.device(device))


@pytest.mark.parametrize("name", ["bf16", "auto"])
@pytest.mark.parametrize("amx", [True], indirect=True)
@pytest.mark.usefixtures("amx")
def test_bf16_on_a_cpu_that_is_fast_at_it(name: Literal["bf16", "auto"]) -> None:
    precision = Precision(name, torch.device("cpu"))
    assert precision.name == "bf16"
    assert not precision.scaler.is_enabled()
    with precision.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16


@pytest.mark.skipif(
    not torch.cuda.is_available() or not multiplies_bf16_fast(torch.device("cuda")),
    reason="needs a CUDA GPU that is fast at bf16",
)
@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_mixed_precision_multiplies_in_halves(name: Literal["bf16", "fp16"]) -> None:
    precision = Precision(name, torch.device("cuda"))
    assert precision.scaler.is_enabled() == (name == "fp16")
    with precision.autocast():
        product = torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")
    assert product.dtype == {"bf16": torch.bfloat16, "fp16": torch.float16}[name]


@pytest.mark.parametrize(
    ("capability", "expected"),
    [((6, 1), "float32"), ((7, 0), "fp16"), ((7, 5), "fp16"), ((8, 0), "bf16"), ((9, 0), "bf16")],
)
def test_auto_takes_the_precision_that_the_gpu_has_tensor_cores_for(
    capability: tuple[int, int], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    # Otherwise the scaler finds that there is no GPU.
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    precision = Precision("auto", torch.device("cuda"))
    assert precision.name == expected
    assert precision.scaler.is_enabled() == (expected == "fp16")


def test_tf32_is_allowed_where_the_config_says_so_and_forbidden_again() -> None:
    matmul = torch.backends.cuda.matmul
    for tf32 in (True, False):
        Precision("float32", torch.device("cuda"), tf32=tf32)
        assert matmul.allow_tf32 == tf32
        assert matmul.fp32_precision == ("tf32" if tf32 else "ieee")
    Precision("float32", torch.device("cpu"), tf32=True)
    assert not matmul.allow_tf32
