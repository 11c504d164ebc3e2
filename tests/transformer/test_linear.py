"""Linear layers by oneDNN equal torch's, in products of few shapes."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from mt.transformer.kernels.linear import Linear, linear, onednn_is_faster, pad_rows

D, E = 12, 20


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="needs the processor's flags, as on Linux")
def test_float32_is_multiplied_by_onednn_on_amd_with_avx512() -> None:
    flags = set(Path("/proc/cpuinfo").read_text().split())
    assert onednn_is_faster(torch.float32) == ({"AuthenticAMD", "avx512f"} <= flags)


@pytest.fixture
def bf16() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


def test_where_torch_multiplies_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mt.transformer.kernels.linear.onednn_is_faster", lambda dtype: False)
    layer, x = Linear(D, E), torch.randn(3, 5, D)
    assert layer(x).equal(F.linear(x, layer.weight, layer.bias))
    assert linear(x, layer.weight, None).equal(F.linear(x, layer.weight))
    assert Linear.on_rows(lambda rows: rows, x) is x


def test_a_function_of_padded_rows_returns_the_rows_without_padding(bf16: torch.autocast) -> None:
    x = torch.randn(3, 5, D).bfloat16()
    with bf16:
        rows = pad_rows(x, torch.bfloat16)
        assert rows.shape == (32, D)
        assert rows[15:].eq(0).all()
        assert Linear.on_rows(lambda rows: rows, x).equal(x)
