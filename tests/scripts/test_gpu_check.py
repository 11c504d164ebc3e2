"""scripts/gpu-check: tried on the CPU, since it runs where nobody can repair it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from scripts.gpu_check.__main__ import Part, run_parts
from scripts.gpu_check.job import Job

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "scripts" / "gpu-check"


def job(folder: Path, device: str = "cpu") -> Job:
    return Job(device, folder, "builtin:primer", "en", "de")


def python(name: str, code: str, limit_seconds: float = 60) -> Part:
    return Part(name, f"Part {name}", [sys.executable, "-c", code], limit_seconds)


def run_script(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHON": sys.executable}
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, env=environment)


def test_a_part_that_fails_does_not_stop_the_next(tmp_path: Path) -> None:
    chosen = [
        python("one", "print('| a |')"),
        python("two", "import sys; print('half a table'); sys.exit('it broke')"),
        python("three", "print('the last')"),
    ]
    output = tmp_path / "report.md"
    results = run_parts(chosen, job(tmp_path), until=time.monotonic() + 100, output=output)
    assert [result.code for result in results] == [0, 1, 0]
    report = output.read_text()
    for expected in ("| Part two | **failed** with code 1 |", "half a table", "it broke", "the last"):
        assert expected in report


def test_a_part_that_hangs_is_stopped_with_all_that_it_started_and_keeps_what_it_printed(
    tmp_path: Path,
) -> None:
    pid_file = tmp_path / "pid"
    command = ["sh", "-c", f"sleep 1000 & echo $! > {pid_file}; echo a row; wait"]
    output = tmp_path / "report.md"
    hanging = Part("hanging", "Part hanging", command, limit_seconds=6)
    [result] = run_parts([hanging], job(tmp_path), until=time.monotonic() + 100, output=output)
    assert result.code is None
    assert "a row" in output.read_text()
    assert "| **stopped** at its limit of 6 s |" in output.read_text()
    status = Path(f"/proc/{pid_file.read_text().strip()}/status")
    # Killed, which a busy machine does late, and gone as soon as somebody reaps it.
    for _ in range(600):
        if is_gone := not status.exists() or "State:\tZ" in status.read_text():
            break
        time.sleep(0.1)
    assert is_gone


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_cuda_it_says_so_in_a_sentence(tmp_path: Path) -> None:
    done = run_script("--folder", str(tmp_path))
    assert done.returncode == 2
    [sentence] = [line for line in done.stderr.splitlines() if line.startswith("gpu-check:")]
    assert "finds no CUDA device on this machine" in sentence
    assert "--device cpu" in sentence
    assert done.stdout == ""


@pytest.mark.slow
def test_the_whole_check_runs_on_the_cpu(tmp_path: Path) -> None:
    output = tmp_path / "report.md"
    done = run_script(
        "--device", "cpu", "--minutes", "60", "--folder", str(tmp_path), "--output", str(output)
    )
    report = output.read_text()
    assert done.returncode == 0, done.stderr + report
    assert report in done.stdout
    for title in (
        "Device", "Losses and gradients beside the CPU", "Training steps beside Hugging Face Marian",
        "Gaps between kernels", "Training, killing and resuming",
        "Translating and evaluating beside the CPU",
    ):  # fmt: skip
        assert f"| {title} | passed |" in report
    for precision in ("float32", "bf16"):
        [row] = [line for line in report.splitlines() if line.startswith(f"| {precision} | no | ")]
        assert row.endswith(" | the same bits | the same bits | the same | passed |")
    assert "| fp16 | no | - | - | - | - | needs a GPU |" in report
    assert "| each | yes | - | - | - | - | needs a GPU: " in report
    assert report.count("need a GPU") == 2
