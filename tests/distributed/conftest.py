"""Runs of several processes as torchrun starts them, and what they recorded."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file

from tests import processes

DRIVER = Path(__file__).with_name("float64_training.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
LONGEST_SECONDS = 400
Start = Callable[..., "Job"]


class Job(NamedTuple):
    """A training run that has been started, in a process group of its own."""

    process: subprocess.Popen[str]
    run: Path
    output: Path

    def end(self) -> int:
        """Its exit code."""
        try:
            return self.process.wait(LONGEST_SECONDS)
        finally:
            self.process.kill()

    def succeed(self) -> "Job":
        assert self.end() == 0, self.output.read_text()
        return self


def command_of(
    config_file: Path,
    run: Path,
    overrides: Sequence[str],
    *,
    size: int,
    program: Sequence[str],
    how: Sequence[str] = (),
) -> list[str]:
    """Training by so many processes, which torchrun starts if there are several, or if it is said how."""
    sets = [word for override in overrides for word in ("--set", override)]
    options = ["train", "--config", str(config_file), "--run", str(run), *sets]
    module = ["-m"] if program == ["mt"] else []
    if size == 1 and not how:
        return [sys.executable, *module, *program, *options]
    how = how or ("--standalone", f"--nproc-per-node={size}")
    return [*TORCHRUN, *how, *module, "--", *program, *options]


@pytest.fixture
def start(tiny_config_file: Path, tmp_path: Path) -> Start:
    """Starts ``mt train`` in ``tmp_path/<name>`` by so many processes, in float64 with records if asked."""

    def run(
        name: str, *overrides: str, size: int = 1, float64: bool = True, torchrun: tuple[str, ...] = ()
    ) -> Job:
        program = [str(DRIVER), str(tmp_path / f"{name}-{size}")] if float64 else ["mt"]
        command = command_of(
            tiny_config_file, tmp_path / name, overrides, size=size, program=program, how=torchrun
        )
        output = tmp_path / f"{name}-{size}.output"
        with output.open("a") as file:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment(), text=True
            )
        return Job(process, tmp_path / name, output)

    return run


def environment() -> dict[str, str]:
    """One thread each, which sleeps where processes share cores."""
    return processes.environment(GOMP_SPINCOUNT="0")


def steps_of(run: Path, size: int) -> list[list[dict[str, Any]]]:
    """What each process recorded of each step."""
    files = [run.with_name(f"{run.name}-{size}.{rank}") for rank in range(size)]
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def position(run: Path) -> dict[str, Any]:
    """The counters of the newest checkpoint."""
    state = json.loads((_newest(run) / "training_state.json").read_text())["state"]
    assert isinstance(state, dict)
    return state


def tensors(run: Path) -> dict[str, torch.Tensor]:
    """The weights of the newest checkpoint, and the moments of Adam."""
    return load_file(_newest(run) / "model.safetensors") | load_file(
        _newest(run) / "training_state.safetensors"
    )


def _newest(run: Path) -> Path:
    return run / "checkpoints" / (run / "checkpoints/latest").read_text().strip()


def assert_close(one: Path, other: Path) -> None:
    """Matrices to 1e-12 of their norm, everything else to 1e-10."""
    ours, theirs = tensors(one), tensors(other)
    assert ours.keys() == theirs.keys()
    matrices, others = {"no matrix": 0.0}, {"nothing else": 0.0}
    for name, tensor in ours.items():
        difference = tensor - theirs[name]
        if tensor.dim() > 1:
            matrices[name] = float(difference.norm() / tensor.norm())
        else:
            others[name] = float(difference.abs().max())
    for differences, limit in ((matrices, 1e-12), (others, 1e-10)):
        worst = max(differences, key=differences.__getitem__)
        print(f"{other.name}: at most {differences[worst]:.1e} ({worst})")
        assert all(difference <= limit for difference in differences.values()), worst


def pairs_of(*records: list[list[dict[str, Any]]]) -> list[tuple[int, int]]:
    """(epoch, pair) of all that was trained on, in any order."""
    return [
        (epoch, pair)
        for ranks in records
        for steps in ranks
        for step in steps
        for epoch, pairs in step["pairs"]
        for pair in pairs
    ]
