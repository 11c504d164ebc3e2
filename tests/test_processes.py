"""How long waiting threads look for work, which torch reads from the environment when it is loaded."""

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
