"""What a run directory must be for training to begin or to go on there: its config, and nothing lost."""

import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version

import torch

import mt
from mt.atomic_files import write_text_atomically
from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.config.load import MAX_CONFIG_BYTES, load_config
from mt.config.write import config_to_yaml, differences
from mt.device import is_out_of_memory
from mt.errors import ConfigError, RunError, TrainingError
from mt.regular_files import read_bytes
from mt.run_directory import RunDirectory
from mt.training.precision import Precision
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


def describe_environment(device: torch.device, precision: Precision) -> dict[str, str | int]:
    """Plain names and values, for a checkpoint."""
    on_gpu = device.type == "cuda"
    return {
        "mt": mt.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "tokenizers": version("tokenizers"),
        "numpy": version("numpy"),
        "system": f"{platform.system()} {platform.machine()}",
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device)
        if on_gpu
        else torch.backends.cpu.get_cpu_capability(),
        "precision": precision.name,
        "num_threads": torch.get_num_threads(),
    }


def environment_differences(then: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """What differs between two environments, as ``torch: 2.12 -> 2.13``, of what is known of both."""
    return [f"{name}: {then[name]} -> {now[name]}" for name in now if then.get(name, now[name]) != now[name]]


@contextmanager
def explain_out_of_memory(config: Config) -> Iterator[None]:
    """Say what can be made smaller, where splitting batches does not help.

    Raises:
        TrainingError: Where what is done meanwhile does not fit.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(
            "the model and its optimizer do not fit into memory. Lower model.d_model "
            f"({config.model.d_model}), model.d_ff ({config.model.d_ff}), tokenizer.max_size or "
            f"data.max_length ({config.data.max_length:,})."
        ) from error
