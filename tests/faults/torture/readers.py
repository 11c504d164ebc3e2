"""Translating and evaluating beside a training that keeps one checkpoint: every answer is that of one save.

As a program, ``python -m tests.faults.torture.readers RUN``, it is that training without the steps: it saves
two models in turn, as fast as the disk allows, until it is killed.
"""

import itertools
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from mt.checkpoint.store import CheckpointStore
from mt.checkpoint.training_state import SavedTraining
from mt.evaluation.evaluate import run_evaluation
from mt.inference.loaded_model import tokenizer_checksums
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from tests.forked import Popen, environment

from .processes import Driver
from .trial import Arena, Task, Trial

PHASE = "readers beside a pruning writer"
SENTENCES = ["the dog sees milk.", "a child buys the car!", "Anna paints two red apples today."]
CPU = torch.device("cpu")

Read = Callable[[RunDirectory, str], list[str]]


def readers(count: int) -> list[Task]:
    """``count`` reads of each kind of reader."""
    return [read_beside_writer(kind, name, count) for kind in READS for name in ("best", "latest")]


def read_beside_writer(kind: str, name: str, count: int) -> Task:
    def task(arena: Arena, driver: Driver) -> Trial:
        trial = Trial(PHASE, f"{count} times {kind} with {name}")
        run = RunDirectory(Path(shutil.copytree(arena.unbroken, arena.new_run())))
        right = [READS[kind](run, step) for step in _two_steps(run)]
        with _writer(run) as writer:
            for number in range(count):
                try:
                    answer = READS[kind](run, name)
                except Exception as error:
                    trial.blame("wrong", f"read {number} was refused: {error!r}")
                    continue
                if answer not in right:
                    trial.blame("wrong", f"read {number} was an answer of neither model: {answer}")
            if writer.poll() is not None:
                trial.blame("wrong", "the writer has ended by itself")
        return trial

    return task


def _translate(run: RunDirectory, name: str) -> list[str]:
    return ModelTranslator.from_run(run, checkpoint=name, device=CPU).translate(SENTENCES)


def _evaluate(run: RunDirectory, name: str) -> list[str]:
    found = run_evaluation(run, split="test", checkpoint=name, device=CPU, analyse=False, num_worst=0)
    return found.hypotheses_file.read_text(encoding="utf-8").splitlines()


READS: dict[str, Read] = {"translate": _translate, "evaluate": _evaluate}


def _two_steps(run: RunDirectory) -> tuple[str, str]:
    names = CheckpointStore(run.checkpoints_dir).names()
    return names[0], names[-1]


@contextmanager
def _writer(run: RunDirectory) -> Iterator[Popen]:
    """The process that saves and removes; it has begun when this is entered."""
    command = [sys.executable, "-m", "tests.faults.torture.readers", str(run.path)]
    with Popen(command, env=environment(), text=True, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def save_and_prune(run: RunDirectory) -> None:
    """Save the oldest and the newest model of the run in turn, each as the best, and keep no other."""
    store = CheckpointStore(run.checkpoints_dir)
    models = [store.load_model(store.require(name)) for name in _two_steps(run)]
    step = store.require("latest").step
    for number in itertools.count(1):
        store.save(
            step + number,
            models[number % 2],
            SavedTraining({}, {}),
            metrics={},
            environment={},
            tokenizers=tokenizer_checksums(run),
            best=True,
            keep=1,
        )
        if number == 1:
            print("begun", flush=True)


if __name__ == "__main__":
    save_and_prune(RunDirectory(Path(sys.argv[1])))
