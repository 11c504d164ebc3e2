"""A run that is killed at its writes, or whose newest checkpoint is damaged, ends as if it were unbroken."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "one_of", [pytest.param(1, marks=pytest.mark.slow, id="each"), pytest.param(15, id="some")]
)
def test_killed_at_writes_and_with_flipped_bits(tmp_path: Path, one_of: int) -> None:
    record = tmp_path / "record.json"
    subprocess.run(
        [sys.executable, "-m", "tests.faults.crash", record, str(one_of)],
        cwd=tmp_path,
        env={
            "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "MT_ENGINE": "torch",
            "MT_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1", "LC_ALL": "C.UTF-8",
        },
        check=True,
    )  # fmt: skip
    unbroken, *trials = json.loads(record.read_text()).items()
    assert len(trials) > 16
    assert [name for name, run in trials if run != unbroken[1]] == []
