"""scripts/gpu-check: tried on the CPU, since it runs where nobody can repair it."""

import os
import re
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


def test_a_part_that_fails_or_hangs_is_ended_with_all_that_it_started_and_the_next_runs(
    tmp_path: Path,
) -> None:
    pid_file, output = tmp_path / "pid", tmp_path / "report.md"
    failing = "echo half a table; echo it broke >&2; exit 1"
    hanging = f"sleep 1000 & echo $! > {pid_file}; echo a row; wait"
    chosen = [
        Part("one", "Part one", ["sh", "-c", failing], limit_seconds=60),
        Part("two", "Part two", ["sh", "-c", hanging], limit_seconds=6),
        Part("three", "Part three", ["echo", "the last"], limit_seconds=60),
    ]
    job = Job("cpu", tmp_path, "builtin:primer", "en", "de")
    results = run_parts(chosen, job, until=time.monotonic() + 100, output=output)
    assert [result.code for result in results] == [1, None, 0]
    report = output.read_text()
    outcomes = ("| Part one | **failed** with code 1 |", "| Part two | **stopped** at its limit of 6 s |")
    for text in (*outcomes, "half a table", "it broke", "a row", "the last"):
        assert text in report
    status = Path(f"/proc/{pid_file.read_text().strip()}/status")
    # Killed, which a busy machine does late, and gone as soon as somebody reaps it.
    for _ in range(600):
        if is_gone := not status.exists() or "State:\tZ" in status.read_text():
            break
        time.sleep(0.1)
    assert is_gone


def run_script(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHON": sys.executable}
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, env=environment)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_cuda_it_says_so_in_a_sentence(tmp_path: Path) -> None:
    done = run_script("--folder", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(
        "^gpu-check:.* finds no CUDA device on this machine.*--device cpu", done.stderr, re.MULTILINE
    )


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
