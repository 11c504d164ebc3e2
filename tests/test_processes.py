"""Which process this is, and how long waiting threads look for work, both told by the environment."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import contextlib, os, sys
from mt.__main__ import main
sys.argv = ["mt", "--version"]
with contextlib.suppress(SystemExit):
    main()
print(os.environ.get("GOMP_SPINCOUNT"), "torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("told", "looks"),
    [({}, "3000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
)
def test_threads_look_for_a_moment_unless_the_environment_says_otherwise(
    told: dict[str, str], looks: str
) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GOMP_", "OMP_WAIT"))}
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=kept | told, capture_output=True, text=True, check=True
    ).stdout
    assert said.splitlines()[-1] == f"{looks} False"


@pytest.mark.parametrize(("launcher", "numbers"), [({}, "0 0 1"), ({"TORCHELASTIC_RUN_ID": "x"}, "5 1 8")])
def test_numbers_of_processes_count_only_if_they_are_from_torchrun(
    launcher: dict[str, str], numbers: str
) -> None:
    """Other launchers set the same variables, for programs of another kind."""
    program = "from mt import processes as p; print(p.rank(), p.local_rank(), p.size())"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC_")}
    given = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}
    environment = kept | given | launcher
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert found.strip() == numbers
