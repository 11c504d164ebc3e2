"""Options that have gone are ignored at their old defaults, and explained otherwise."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mt.config.load import load_config
from mt.errors import ConfigError

SMALLEST = "data:\n  path: builtin:primer\n  src: en\n  tgt: de\ntraining:\n  max_steps: 10\n"


def test_old_defaults_are_ignored(write_config: Callable[[str], Path]) -> None:
    path = write_config(SMALLEST + "  simcut: 0.0\n  simcut_share: 0.3\n  bidirectional_epochs: 0\n")
    expected = load_config(path, ["data.workers=null", "data.seed=1"])
    assert load_config(write_config(SMALLEST), ["data.workers=4"]) == expected


def test_other_values_are_errors_that_name_the_line(write_config: Callable[[str], Path]) -> None:
    path = write_config(SMALLEST + "  simcut: 3\n")
    with pytest.raises(ConfigError) as raised:
        load_config(path, ["data.seed=2"])
    first, second = str(raised.value).splitlines()
    assert first.startswith(f"{path}, line 7: training.simcut was removed, because")
    assert second.startswith("override data.seed=2: data.seed was removed, because")
