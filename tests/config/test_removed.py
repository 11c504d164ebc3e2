"""Options that have gone are ignored where they changed nothing, and explained elsewhere."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mt.config.load import load_config
from mt.errors import ConfigError

Write = Callable[[str], Path]

SMALLEST = "data:\n  path: builtin:primer\n  src: en\n  tgt: de\ntraining:\n  max_steps: 10\n"
OLD_DEFAULTS = [
    "data.workers=null",
    "data.seed=1",
    "training.simcut=0.0",
    "training.simcut_share=0.05",
    "training.bidirectional_epochs=0",
]


def test_old_defaults_are_ignored(write_config: Write) -> None:
    path = write_config(SMALLEST)
    assert load_config(path, OLD_DEFAULTS) == load_config(path)
    assert load_config(path, ["data.workers=4", "training.simcut_share=0.3"]) == load_config(path)
    in_file = (
        SMALLEST.replace("  path", "  workers:\n  seed: 1\n  path") + "  simcut: 0.0\n  simcut_share: 0.05\n"
    )
    assert load_config(write_config(in_file)) == load_config(write_config(SMALLEST))


@pytest.mark.parametrize("option", ["data.seed=2", "training.simcut=3", "training.bidirectional_epochs=5"])
def test_other_values_are_errors_that_say_what_has_gone(option: str, write_config: Write) -> None:
    path = write_config(SMALLEST)
    key = option.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"^--set {option}: {key} was removed, because .*\. Leave it out"):
        load_config(path, [option], label="--set")


def test_the_line_of_a_removed_option_is_named(write_config: Write) -> None:
    path = write_config(SMALLEST + "  simcut: 3\n  simcutt: 3\n")
    with pytest.raises(ConfigError) as raised:
        load_config(path)
    removed, mistyped = str(raised.value).splitlines()
    assert removed.startswith(f"{path}, line 7: training.simcut was removed")
    assert mistyped.startswith(f"{path}, line 8: unknown key 'training.simcutt'.")
