"""`mt check` as a shell sees it."""

import re
from pathlib import Path

from tests.fixture_types import Call


def test_a_good_config(succeed: Call, tiny_config_file: Path) -> None:
    _, out, err = succeed("check", "-c", tiny_config_file, "--set", "schedule.warmup_steps=99")
    assert err == ""
    names = re.findall(r"^(\w+:?) ", out, re.MULTILINE)
    assert " ".join(names[:8]) == "run corpus vocabulary lengths model memory time disk"
    assert out.startswith("run         runs/tiny, which is new, on cpu in float32\n")
    assert "\nwarning: the warm-up (schedule.warmup_steps 99) is not over when the run ends at step 12" in out
    assert out.endswith("\nThis run can begin.\n")
    assert "\n    " not in out
    assert re.search(r"\n    decoded +\w", succeed("check", "-c", tiny_config_file, "-v").out)
    assert not Path("runs").exists()
    succeed("train", "-c", tiny_config_file)
    longer = ("check", "-c", "runs/tiny/config.yaml", "--set", "training.max_steps=99")
    assert "which exists already" in succeed(*longer).out
    assert "elsewhere, which is new" in succeed(*longer, "--run", "elsewhere").out
