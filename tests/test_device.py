"""Which device is chosen, on machines that have it and on machines that do not; and what memory does."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import mt.device
from mt.device import (
    _left_by_memory_limits,
    attention_dtype,
    choose_device,
    choose_search_precision,
    is_out_of_memory,
    multiplies_bf16_fast,
    onednn_is_faster,
)
from mt.errors import DeviceError


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


@pytest.fixture
def attention_by_cudnn() -> Iterator[None]:
    """Torch may choose cuDNN's attention kernel, as it does unless told otherwise."""
    torch.backends.cuda.enable_cudnn_sdp(True)
    yield
    torch.backends.cuda.enable_cudnn_sdp(True)


@pytest.mark.parametrize("machine", [["cuda"]], indirect=True)
@pytest.mark.parametrize("name", ["auto", "cuda", torch.device("cuda", 1)])
@pytest.mark.usefixtures("machine", "attention_by_cudnn")
def test_attention_on_cuda_is_not_left_to_cudnn_which_makes_a_plan_for_each_shape(
    name: str | torch.device,
) -> None:
    is_allowed: Callable[[], bool] = torch.backends.cuda.cudnn_sdp_enabled
    choose_device("cpu")
    assert is_allowed()
    choose_device(name)
    assert not is_allowed()


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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no arenas")
def test_threads_share_an_arena_for_each_core(tmp_path: Path) -> None:
    # In a process of its own, since it cannot be undone.
    code = f"""
import ctypes, os, threading, torch
from mt.device import keep_freed_memory
keep_freed_memory()
num_threads = 4 * os.cpu_count()
all_there = threading.Barrier(num_threads)
def allocate():
    kept = torch.ones(1000)
    all_there.wait()
threads = [threading.Thread(target=allocate) for _ in range(num_threads)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen({str(tmp_path / "info.xml")!r}.encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "info.xml").read_text().count("<heap nr=") == os.cpu_count()


def test_bf16_is_fast_where_the_processor_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists() and hasattr(torch.cpu, "get_capabilities"):
        flags = set(cpuinfo.read_text().split())
        assert multiplies_bf16_fast(torch.device("cpu")) == bool(flags & {"amx_bf16", "avx512_bf16"})
        assert onednn_is_faster(torch.float32) == ({"AuthenticAMD", "avx512f"} <= flags)
    for capability, is_fast in (((7, 5), False), ((8, 0), True), ((12, 0), True)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, found=capability: found)
        assert multiplies_bf16_fast(torch.device("cuda")) == is_fast
    assert not multiplies_bf16_fast(torch.device("mps"))
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
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
def test_the_precision_of_search_is_16_bits_where_that_is_faster(
    instructions: str,
    capability: tuple[int, int] | None,
    device: str,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {instructions: True})
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert choose_search_precision("auto", torch.device(device)) == expected


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
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)
    assert onednn_is_faster(dtype) == expected
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict, raising=False)
    assert onednn_is_faster(dtype) == (dtype == torch.bfloat16)


@pytest.mark.parametrize(
    ("instructions", "device", "dtype", "expected"),
    [
        ("avx512_bf16", "cpu", torch.bfloat16, torch.float32),
        ("amx_bf16", "cpu", torch.bfloat16, torch.bfloat16),
        ("avx512_bf16", "cuda", torch.bfloat16, torch.bfloat16),
        ("avx512_bf16", "cpu", torch.float32, torch.float32),
    ],
)
def test_attention_is_computed_in_float32_where_that_is_faster(
    instructions: str,
    device: str,
    dtype: torch.dtype,
    expected: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {instructions: True}, raising=False)
    assert attention_dtype(dtype, torch.device(device)) == expected


@pytest.mark.parametrize(
    ("name", "device", "needed"),
    [
        ("bf16", "cpu", "AVX-512 BF16"),
        ("bf16", "cuda", "Ampere"),
        ("fp16", "cpu", "CUDA"),
        ("int8", "cuda", "a CPU"),
    ],
)
def test_a_precision_that_the_device_lacks_is_refused_with_a_way_out(
    name: str, device: str, needed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    with pytest.raises(DeviceError, match=rf"precision {name} needs .*{needed}.*{device}") as refused:
        choose_search_precision(name, torch.device(device))  # type: ignore[arg-type]
    assert "--precision auto" in str(refused.value)


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, dict[str, str]], None]:
    """Makes this process one of a control group, whose files and those of its parents these are."""

    def make(own: str, files: dict[str, str]) -> None:
        (tmp_path / "own").write_text(own)
        for name, text in files.items():
            (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "groups" / name).write_text(text)

    monkeypatch.setattr(mt.device, "_OWN_GROUP", tmp_path / "own")
    monkeypatch.setattr(mt.device, "_GROUPS", tmp_path / "groups")
    return make


def limited(folder: str, most: object, taken: int, cached: int = 0) -> dict[str, str]:
    stat = f"anon {taken}\ninactive_file {cached}\nactive_file {cached}\n"
    files = {"memory.max": f"{most}\n", "memory.current": f"{taken}\n", "memory.stat": stat}
    return {f"{folder}{name}": text for name, text in files.items()}


@pytest.mark.parametrize(
    ("own", "files", "left"),
    [
        # In a container, which sees its own group as the root, or has the path that its host knows.
        ("0::/\n", limited("", 1000, 900), 100),
        ("0::/docker/8f0\n", limited("", 1000, 900), 100),
        ("0::/../8f0\n", limited("", 1000, 900), 100),
        # In a batch job, the limit is that of a group above.
        (
            "1:name=systemd:/x\n0::/job_7/step_0\n",
            limited("job_7/", 1000, 700) | limited("job_7/step_0/", "max", 600),
            300,
        ),
        ("0::/job_7/step_0\n", limited("job_7/", 1000, 700) | limited("job_7/step_0/", 800, 690), 110),
        # What is cached of files can be freed.
        ("0::/\n", limited("", 1000, 900, cached=350), 800),
        ("0::/\n", limited("", 1000, 1100), 0),
        # No limit, or one that cannot be read.
        ("0::/\n", limited("", "max", 900), None),
        ("0::/\n", {"memory.max": "1000\n", "memory.current": "900\n"}, None),
        ("0::/\n", limited("", 1000, 900) | {"memory.stat": "anon 900\n"}, None),
        ("0::/\n", limited("", 1000, 900) | {"memory.stat": "not a pair\n"}, None),
        ("0::/\n", {}, None),
        ("9:memory:/job_7\n", {}, None),
    ],
)
def test_memory_limits_of_containers_and_batch_jobs(
    own: str,
    files: dict[str, str],
    left: int | None,
    groups: Callable[[str, dict[str, str]], None],
) -> None:
    groups(own, files)
    assert _left_by_memory_limits() == left


def test_without_control_groups_no_memory_limit_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mt.device, "_OWN_GROUP", tmp_path / "none")
    assert _left_by_memory_limits() is None
