"""Which device and which precision are chosen, on machines that have them and on machines that do not."""

import os
from pathlib import Path
from typing import Literal

import pytest
import torch

from mt.device import Precision, choose_device, choose_precision, usable_precisions
from mt.errors import EngineError
from mt.memory import is_out_of_memory


@pytest.mark.parametrize(
    ("there", "expected"), [(["cuda", "mps"], "cuda"), (["cuda"], "cuda"), (["mps"], "mps"), ([], "cpu")]
)
def test_auto_takes_the_best_there_is_and_what_is_not_there_is_refused(
    there: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in there)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in there)
    assert choose_device("auto") == torch.device(expected)
    for name in (*there, "cpu"):
        assert choose_device(name) == choose_device(torch.device(name)) == torch.device(name)
    for name in {"cuda", "mps", "gpu", ""} - set(there):
        usable = ", ".join([*there, "cpu"])
        with pytest.raises(EngineError, match=rf"no usable device '{name}'\. Choose auto or {usable}\."):
            choose_device(name)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA failed with error out of memory"), True),
        (RuntimeError("mkl_malloc: failed to allocate memory"), True),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_memory_that_is_full_is_told_from_other_errors(error: RuntimeError, expected: bool) -> None:
    assert is_out_of_memory(error) == expected


@pytest.mark.skipif(
    not Path("/proc/cpuinfo").exists() or "ATEN_CPU_CAPABILITY" in os.environ,
    reason="needs the processor's flags, as on Linux, and all of them used",
)
def test_bf16_is_fast_where_the_processor_says_so() -> None:
    flags = set(Path("/proc/cpuinfo").read_text().split())
    assert ("bf16" in usable_precisions(torch.device("cpu"))) == bool(flags & {"amx_bf16", "avx512_bf16"})


@pytest.mark.parametrize(
    ("instructions", "capability", "device", "expected"),
    [
        ("amx_bf16", None, "cpu", "bf16"),
        ("avx512_bf16", None, "cpu", "bf16"),
        ("avx512_f", None, "cpu", "float32"),
        ("avx512_f", (8, 0), "cuda", "bf16"),
        ("avx512_f", (12, 0), "cuda", "bf16"),
        ("avx512_f", (7, 5), "cuda", "fp16"),
        ("amx_bf16", (7, 0), "cuda", "fp16"),
        ("amx_bf16", (6, 1), "cuda", "float32"),
        ("amx_bf16", None, "mps", "float32"),
    ],
)
def test_auto_takes_16_bits_where_that_is_faster(
    instructions: str,
    capability: tuple[int, int] | None,
    device: str,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {instructions: True})
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    # Otherwise the scaler finds that there is no GPU.
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    assert choose_precision("auto", torch.device(device)) == expected
    precision = Precision("mixed", torch.device(device))
    assert (precision.name, precision.scaler.is_enabled()) == (expected, expected == "fp16")
    # A run that leaves it open trains with 16 bits on CUDA only.
    assert Precision("auto", torch.device(device)).name == (expected if device == "cuda" else "float32")


def test_bf16_is_not_fast_where_torch_is_told_to_use_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert usable_precisions(torch.device("cpu")) == ["float32"]


@pytest.mark.parametrize(
    ("name", "device", "usable"),
    [("bf16", "cpu", "float32"), ("bf16", "cuda", "fp16 or float32"), ("fp16", "mps", "float32")],
)
def test_a_precision_that_the_device_lacks_is_refused_with_a_remedy(
    name: Literal["bf16", "fp16"], device: str, usable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    for choose in (choose_precision, Precision):
        with pytest.raises(
            EngineError, match=rf"in {usable} on .*\({device}\), not in {name}\. .*such as auto"
        ):
            choose(name, torch.device(device))
    # In a run that has begun in it, that would change nothing.
    with pytest.raises(EngineError, match=r"a run that has begun keeps its own, .* with --init-from"):
        Precision(name, torch.device(device))


def test_tf32_is_allowed_where_the_config_says_so_and_forbidden_again() -> None:
    matmul = torch.backends.cuda.matmul
    for tf32 in (True, False):
        Precision("float32", torch.device("cuda"), tf32=tf32)
        assert matmul.allow_tf32 == tf32
        assert matmul.fp32_precision == ("tf32" if tf32 else "ieee")
    Precision("float32", torch.device("cpu"), tf32=True)
    assert not matmul.allow_tf32
