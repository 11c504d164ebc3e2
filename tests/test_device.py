"""Which device and which precision are chosen, on machines that have them and on machines that do not."""

import ctypes
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from mt.device import (
    Precision,
    choose_device,
    choose_precision,
    is_out_of_memory,
    multiplies_bf16_fast,
)
from mt.errors import DeviceError
from mt.transformer.kernels.linear import onednn_is_faster


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A machine that has these accelerators and no others."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in request.param)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in request.param)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [(["cuda", "mps"], "cuda"), (["cuda"], "cuda"), (["mps"], "mps"), ([], "cpu")],
    indirect=["machine"],
)
@pytest.mark.usefixtures("machine")
def test_auto_takes_the_best_there_is(expected: str) -> None:
    assert choose_device("auto") == torch.device(expected)
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device(expected) == torch.device(expected)


@pytest.mark.parametrize("machine", [["cuda"]], indirect=True)
@pytest.mark.parametrize("name", ["auto", "cuda", torch.device("cuda", 1)])
@pytest.mark.usefixtures("machine")
def test_attention_on_cuda_is_left_to_the_kernel_for_short_sequences(name: str | torch.device) -> None:
    backends: Any = torch.backends.cuda
    backends.enable_cudnn_sdp(True)
    choose_device("cpu")
    assert backends.cudnn_sdp_enabled()
    assert backends.flash_sdp_enabled()
    choose_device(name)
    assert not backends.cudnn_sdp_enabled()
    assert not backends.flash_sdp_enabled()
    assert backends.mem_efficient_sdp_enabled()
    backends.enable_cudnn_sdp(True)


@pytest.mark.parametrize("machine", [["mps"]], indirect=True)
@pytest.mark.parametrize("name", ["cuda", "gpu", ""])
@pytest.mark.usefixtures("machine")
def test_device_that_is_not_there_is_refused_with_those_that_are(name: str) -> None:
    with pytest.raises(DeviceError, match=rf"no usable device '{name}'\. Choose auto or mps, cpu\."):
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


def test_what_this_machine_says_when_its_memory_is_full_is_understood() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(raised.value)


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries keep memory in their own way"
)
def test_memory_that_is_freed_is_not_asked_for_again() -> None:
    # In a process of its own, since it cannot be undone. 16,384 pages are 64 MB.
    code = """
import resource, torch
from mt.device import keep_freed_memory
def pages_asked_for():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(2**26, dtype=torch.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
pages_asked_for()
without = pages_asked_for()
keep_freed_memory()
pages_asked_for()
print(without, pages_asked_for())
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    without, kept = map(int, ended.stdout.split())
    assert kept < 1_000
    assert without > 10 * kept


MKL = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"


@pytest.mark.skipif(
    not MKL.exists() or not hasattr(ctypes.CDLL(str(MKL)), "mkl_serv_get_dynamic"), reason="needs MKL"
)
def test_mkl_chooses_no_number_of_threads() -> None:
    # In a process of its own: in this one the number has been set.
    code = f"""
import ctypes
from mt.device import fix_num_threads
fix_num_threads()
print(ctypes.CDLL({str(MKL)!r}).mkl_serv_get_dynamic())
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "0\n"


def test_bf16_is_fast_where_the_processor_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        flags = set(cpuinfo.read_text().split())
        assert multiplies_bf16_fast(torch.device("cpu")) == bool(flags & {"amx_bf16", "avx512_bf16"})
        assert onednn_is_faster(torch.float32) == ({"AuthenticAMD", "avx512f"} <= flags)
    for capability, is_fast in (((7, 5), False), ((8, 0), True), ((12, 0), True)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, found=capability: found)
        assert multiplies_bf16_fast(torch.device("cuda")) == is_fast
    assert not multiplies_bf16_fast(torch.device("mps"))
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    assert not multiplies_bf16_fast(torch.device("cpu"))


@pytest.mark.parametrize(
    ("instructions", "capability", "device", "expected"),
    [
        ("amx_bf16", None, "cpu", "bf16"),
        ("avx512_bf16", None, "cpu", "bf16"),
        ("avx512_f", None, "cpu", "float32"),
        ("avx512_f", (8, 0), "cuda", "bf16"),
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
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {instructions: True})
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    # Otherwise the scaler finds that there is no GPU.
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    assert choose_precision("auto", torch.device(device)) == expected
    precision = Precision("auto", torch.device(device))
    assert (precision.name, precision.scaler.is_enabled()) == (expected, expected == "fp16")


@pytest.mark.parametrize(
    ("name", "has_avx512", "dtype", "expected"),
    [
        ("AMD EPYC", True, torch.float32, True),
        ("AMD EPYC", False, torch.float32, False),
        ("Intel(R) Xeon(R) Processor", True, torch.float32, False),
        ("AMD EPYC", True, torch.float64, False),
        ("Intel(R) Xeon(R) Processor", False, torch.bfloat16, True),
    ],
)
def test_float32_is_left_to_mkl_except_on_amds_processors_with_avx512(
    name: str, has_avx512: bool, dtype: torch.dtype, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"cpu_name": name, "avx512_f": has_avx512}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)
    assert onednn_is_faster(dtype) == expected
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    assert onednn_is_faster(dtype) == (dtype == torch.bfloat16)


@pytest.mark.parametrize(
    ("name", "device", "needed"),
    [
        ("bf16", "cpu", "AVX-512 BF16"),
        ("bf16", "cuda", "Ampere"),
        ("fp16", "mps", "CUDA"),
    ],
)
def test_a_precision_that_the_device_lacks_is_refused_with_a_remedy(
    name: Literal["bf16", "fp16"], device: str, needed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    for choose in (choose_precision, Precision):
        with pytest.raises(DeviceError, match=rf"precision {name} needs .*{needed}.*{device}.*such as auto"):
            choose(name, torch.device(device))


@pytest.mark.parametrize("name", ["bf16", "auto"])
def test_training_in_bf16_on_a_cpu_that_is_fast_at_it(
    name: Literal["bf16", "auto"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    precision = Precision(name, torch.device("cpu"))
    assert (precision.name, precision.scaler.is_enabled()) == ("bf16", False)
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


def test_tf32_is_allowed_where_the_config_says_so_and_forbidden_again() -> None:
    matmul = torch.backends.cuda.matmul
    for tf32 in (True, False):
        Precision("float32", torch.device("cuda"), tf32=tf32)
        assert matmul.allow_tf32 == tf32
        assert matmul.fp32_precision == ("tf32" if tf32 else "ieee")
    Precision("float32", torch.device("cpu"), tf32=True)
    assert not matmul.allow_tf32
