"""A run's ``config.yaml``: what may take its place, and what may not."""

from mt.atomic_files import write_text_atomically
from mt.config.config import Config
from mt.config.load import MAX_CONFIG_BYTES, load_config
from mt.config.write import config_to_yaml, differences
from mt.errors import ConfigError, RunError
from mt.regular_files import read_bytes
from mt.run_directory import RunDirectory


def refuse_config_of_others(run: RunDirectory) -> None:
    """Before a run begins: check that no file of the user's stands where its config will.

    What a first attempt left that failed may be overwritten; it is written here, and to the letter.

    Raises:
        RunError: If ``config.yaml`` is anything else.
    """
    if not run.exists:
        return
    try:
        ours = config_to_yaml(load_config(run.config_file))
    except ConfigError:
        ours = ""
    if _content(run) != ours.encode():
        raise RunError(
            f"{run.config_file} was not written by training, which would replace it: train into a folder of "
            "its own with --run, or rename that file."
        )


def _content(run: RunDirectory) -> bytes | None:
    """What ``config.yaml`` holds; None where it is not a file that training wrote."""
    try:
        return read_bytes(run.config_file, max_bytes=MAX_CONFIG_BYTES)
    except OSError:
        return None


def refuse_changed_config(run: RunDirectory, config: Config) -> None:
    """Before a run goes on: check that its mathematics would stay what they are.

    Raises:
        RunError: If they would not; the message names the options.
    """
    changed = differences(load_config(run.config_file), config)
    if changed:
        fields = "\n  ".join(changed)
        raise RunError(
            f"{run.path} was begun with another config:\n  {fields}\n"
            "Train into a new directory with --run, or start over with --restart, which moves it aside."
        )


def write_config(run: RunDirectory, config: Config) -> None:
    """Put the config, with every default written out, where the run is known by it."""
    write_text_atomically(run.config_file, config_to_yaml(config))
