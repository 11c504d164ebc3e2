"""Which process this is, and how long waiting threads look for work, both set by the environment."""

import os
import subprocess
import sys

import pytest

LOOKING = """
import contextlib, os, sys
from mt.__main__ import main
sys.argv = ["mt", "--version"]
with contextlib.suppress(SystemExit):
    main()
print(os.environ.get("GOMP_SPINCOUNT"), "torch" in sys.modules)
"""
NUMBERS = "from mt import processes as p; print(p.RANK, p.LOCAL_RANK, p.SIZE)"


@pytest.mark.parametrize(
    ("program", "environment", "printed"),
    [
        (LOOKING, {}, "3000 False"),
        (LOOKING, {"GOMP_SPINCOUNT": "7"}, "7 False"),
        (LOOKING, {"OMP_WAIT_POLICY": "active"}, "None False"),
        # Other launchers set the same variables, for programs of another kind.
        (NUMBERS, {}, "0 0 1"),
        (NUMBERS, {"TORCHELASTIC_RUN_ID": "x"}, "0 0 1"),
        (NUMBERS, {"TORCHELASTIC_RUN_ID": "x", "MASTER_ADDR": "localhost"}, "5 1 8"),
    ],
)
def test_the_environment_decides(program: str, environment: dict[str, str], printed: str) -> None:
    kept = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    ranks = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"} if program is NUMBERS else {}
    command = [sys.executable, "-c", program]
    ended = subprocess.run(
        command, env=kept | ranks | environment, capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines()[-1] == printed
