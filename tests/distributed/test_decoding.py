"""Several processes translate a test set as one does: the same bytes, each line once."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from mt.errors import LinesError
from mt.run_directory import RunDirectory
from tests.processes import environment

TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--", "mt"]


def start(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
    )


@pytest.mark.slow
def test_two_processes_score_once(trained: RunDirectory) -> None:
    options = ["evaluate", "--run", str(trained.path), "--scores-only"]
    one = start(trained.path, "mt", *options)
    assert one.returncode == 0, one.stderr
    [hypotheses] = trained.path.glob("hypotheses.*.txt")
    expected = hypotheses.read_text(encoding="utf-8")
    hypotheses.unlink()
    two = start(trained.path, *TORCHRUN, *options)
    assert two.returncode == 0, two.stderr
    assert two.stdout == one.stdout
    assert hypotheses.read_text(encoding="utf-8") == expected
    records = (trained.path / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["scores"] for line in records] == [json.loads(records[0])["scores"]] * 2


def test_errors_of_lines_travel_between_processes() -> None:
    error = LinesError({3: "line 3 is too long", 7: "so is line 7"})
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.reasons) == (str(error), error.reasons)
