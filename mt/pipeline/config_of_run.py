"""What a run directory must be for training to begin or to go on there: its config, and nothing lost."""

from mt.atomic_files import write_text_atomically
from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.config.load import MAX_CONFIG_BYTES, load_config
from mt.config.write import config_to_yaml, differences
from mt.errors import ConfigError, RunError
from mt.regular_files import read_bytes
from mt.run_directory import RunDirectory
from mt.training.progress import read_metrics


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


def refuse_lost_checkpoints(run: RunDirectory, store: CheckpointStore, config: Config) -> None:
    """Before a run without a checkpoint begins: check that it never had one.

    Steps in the metrics alone do not tell: a run that was killed before it first saved has them too. They do
    where they go on after a step that was saved, as a first validation is, which is the best so far.

    Raises:
        RunError: If it had one; the message names what tells of it.
    """
    told = [f"checkpoints/{name}" for name in store.traces()]
    points = read_metrics(run.metrics_file)
    validated = [point["step"] for point in points if point["kind"] == "validation"]
    first_saved = min([_begun_with(run, config).checkpoint.every_steps, *validated])
    if any(point["step"] > first_saved for point in points):
        told.append(run.metrics_file.name)
    if told:
        way_out = (
            "start over with --restart, which moves this run aside" if run.exists else "choose another --run"
        )
        raise RunError(
            f"{run.path} has no checkpoint any more, though {' and '.join(told)} tell of one. "
            f"Put the checkpoints back from a copy, or {way_out}."
        )


def _begun_with(run: RunDirectory, config: Config) -> Config:
    """The config that the steps in the metrics were taken with, as far as anything tells."""
    try:
        return load_config(run.config_file) if run.exists else config
    except ConfigError:
        return config


def refuse_changed_config(
    run: RunDirectory,
    config: Config,
    *,
    way_out: str = "Train into a new directory with --run, or start over with --restart, which moves it "
    "aside.",
) -> None:
    """Before a run goes on: check that its mathematics would stay what they are.

    Raises:
        RunError: If they would not; the message names the options.
    """
    changed = differences(load_config(run.config_file), config)
    if changed:
        fields = "\n  ".join(changed)
        raise RunError(f"{run.path} was begun with another config:\n  {fields}\n{way_out}")


def write_config(run: RunDirectory, config: Config) -> None:
    """Put the config, with every default written out, where the run is known by it."""
    write_text_atomically(run.config_file, config_to_yaml(config))
