"""Starting and resuming a run: what must match, and the checkpoint to continue from."""

import logging
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version

import torch
from torch import Tensor

import mt
from mt import distributed, processes
from mt.checkpoint.record import Checkpoint, DamagedError
from mt.checkpoint.store import CheckpointStore
from mt.checkpoint.training_state import SavedTraining
from mt.config.config import Config
from mt.config.load import load_config
from mt.config.write import all_options, config_to_yaml, differences
from mt.device import Precision
from mt.errors import CheckpointError, ConfigError, RunError
from mt.files import write_atomically
from mt.inference.loaded_model import check_computation, check_tokenizers
from mt.run_directory import RunDirectory
from mt.training.counters import SavedValues, read_values
from mt.training.metrics_file import read_points
from mt.training.train_state import TrainState
from mt.transformer.kernels.linear import onednn_is_faster

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ResumePoint:
    """A checkpoint to continue from, read and verified."""

    checkpoint: Checkpoint
    weights: dict[str, Tensor]
    """Empty once they are restored, like the tensors of the training state."""
    saved: SavedTraining
    values: SavedValues
    damaged: Mapping[str, str]
    """Later checkpoints, each with what is damaged in it."""
    finished: str | None
    """The limit that the run has reached, in words."""

    def restore(self, state: TrainState) -> None:
        """Put the checkpoint into a new train state, once."""
        try:
            state.restore(self.weights, self.saved, self.values)
        except (DamagedError, ValueError) as error:
            raise _unusable(self.checkpoint, error) from error
        # The model and the optimizers have what they need, and the run keeps this object.
        self.weights.clear()
        self.saved.tensors.clear()


def find_resume_point(run: RunDirectory, config: Config, *, dry_run: bool = False) -> ResumePoint | None:
    """The newest sound checkpoint; None for a new run, whose config is written unless this is a dry run."""
    store = CheckpointStore(run.checkpoints_dir)
    recovered, damaged = store.resumable() if dry_run else store.recover()
    if recovered is None:
        _check_new(run, store, config)
        if not dry_run:
            # Steps that were never saved; next to the new config they would be misleading.
            run.metrics_file.unlink(missing_ok=True)
            if run.exists and differences(load_config(run.config_file), config):
                run.trackers_file.unlink(missing_ok=True)
            write_atomically(run.config_file, config_to_yaml(config))
        return None
    checkpoint, weights, saved = recovered
    if not run.exists:
        raise RunError(
            f"{run.path} has checkpoints but has lost its {run.config_file.name}. Restore it from a copy, "
            "or use another run directory with --run PATH."
        )
    check_same_config(run, config)
    check_computation(run, config, checkpoint)
    check_tokenizers(run, checkpoint)
    try:
        values = read_values(saved.values, checkpoint.step)
    except DamagedError as error:
        raise _unusable(checkpoint, error) from error
    finished = values.counters.reached_limit(config.training, config.validation)
    # A limit may have been lowered to where the run was stopped, but a run ends with a validation.
    values.counters.owes_validation |= finished is not None and not checkpoint.metrics
    finished = None if values.counters.owes_validation else finished
    return ResumePoint(checkpoint, weights, saved, values, damaged, finished)


def _unusable(checkpoint: Checkpoint, why: object) -> CheckpointError:
    return CheckpointError(
        f"{checkpoint.folder} cannot be continued: {why}. Restore a copy, remove it to continue from the one "
        "before, or start over with --restart, which moves the old run aside."
    )


def _check_new(run: RunDirectory, store: CheckpointStore, config: Config) -> None:
    """Check that a run without checkpoints never had any, and that its config was written by training."""
    earlier = config
    if run.exists:
        with suppress(ConfigError):
            earlier = load_config(run.config_file)
        if run.config_file.read_text(encoding="utf-8") != config_to_yaml(earlier):
            raise RunError(
                f"{run.config_file} was not written by training, but would be replaced. Rename that file, "
                "or use another run directory with --run PATH."
            )
    traces = [f"checkpoints/{name}" for name in store.traces()]
    # A run that was killed before its first checkpoint has metrics too, but of fewer steps.
    last_step = max((point.step for point in read_points(run.metrics_file)), default=0)
    if last_step > min(earlier.checkpoint.every_steps, earlier.validation.every_steps):
        traces.append(run.metrics_file.name)
    if traces:
        raise RunError(
            f"{run.path} has lost its checkpoints: {' and '.join(traces)} show that it had some. Restore "
            "them, start over with --restart, which moves the old run aside, or use another --run PATH."
        )


def report_resuming(point: ResumePoint, config: Config, environment: Mapping[str, str | int]) -> None:
    """Log where training continues, what was skipped, and why it may not be bit-exact."""
    folder = point.checkpoint.folder.parent
    for name, reason in point.damaged.items():
        LOG.warning("checkpoint %s is damaged and skipped: %s", folder / name, reason)
    LOG.info("resuming %s from step %s", folder.parent, f"{point.checkpoint.step:,}")
    for change in environment_differences(point.checkpoint.environment, environment):
        LOG.warning("resuming is not bit-exact, because this has changed: %s", change)
    if config.training.compile:
        LOG.warning("resuming may not be bit-exact, because of training.compile")


def has_begun(run: RunDirectory) -> bool:
    """Whether a run has saved a checkpoint; one that was killed before that starts over."""
    return run.exists and bool(CheckpointStore(run.checkpoints_dir).names())


def resolve_auto(config: Config, precision: Precision, begun: bool = False) -> Config:
    """``config`` with what it leaves to the device: its precision, and that only CUDA compiles."""
    kind, compiled = precision.device.type, config.training.compile
    # A run that was begun on CUDA keeps the option.
    if kind == "cpu" and compiled is True and not begun:
        raise ConfigError(
            "training.compile: true does not pay on a CPU. On a Zen 4, a small model had 2,150 target tokens "
            "a second after 50 seconds of compiling, and 2,280 without it; in bf16 2,880 after two minutes, "
            "and 3,500 without it. Leave it at auto."
        )
    # On CUDA, it depends on the length of the run, too.
    is_open = kind == "cuda" and compiled == "auto"
    options = {"precision": precision.name, "compile": "auto" if is_open else compiled is True}
    return config.with_options(training=options)


def resolve_length(config: Config, stored: Config | None) -> Config:
    """``config`` with its number of steps, if it is known: what the run has chosen, or ``max_steps``."""
    if config.length_is_open and stored is not None and stored.schedule.fixed_steps:
        return of_length(config, stored.schedule.fixed_steps)
    if config.schedule.total_steps == "auto" and config.training.max_steps is not None:
        total_steps = max(config.training.max_steps, config.schedule.warmup_steps + 1)
        return config.with_options(schedule={"total_steps": total_steps})
    return config


def of_length(config: Config, num_steps: int) -> Config:
    """``config`` with a number of steps in place of a time."""
    limits = {"max_steps": num_steps, "max_minutes": None}
    return config.with_options(schedule={"total_steps": num_steps}, training=limits)


def check_same_config(run: RunDirectory, config: Config) -> None:
    """Before a run is continued: check that no option has changed that affects the mathematics."""
    if changed := differences(load_config(run.config_file), config):
        fields = "\n  ".join(changed)
        raise RunError(
            f"{run.path} was started with another config:\n  {fields}\nSet these options back, use another "
            "run directory with --run PATH, or start over with --restart, which moves the old run aside. "
            f"A new run from its weights, with other options: {run.adapt_command(config.data.path)}",
        )


def check_equal_processes(config: Config, environment: Mapping[str, str | int]) -> None:
    """Before several processes train: check that they have the same software, precision and config."""
    known = {name: environment[name] for name in ("mt", "torch", "precision")} | all_options(config)
    first, *others = distributed.all_gather(known)
    for rank, other in enumerate(others if processes.IS_FIRST else [], 1):
        if different := environment_differences(first, other):
            raise RunError(
                f"process {rank} differs from the first process (shown before ->): {', '.join(different)}. "
                "Start the same command with the same config and the same version on all machines, and with "
                "a training.precision that all of them support, such as float32."
            )


def describe_environment(precision: Precision) -> dict[str, str | int]:
    """Versions, device, precision and threads, for a checkpoint."""
    device = precision.device
    device_name = torch.backends.cpu.get_cpu_capability()
    if device.type == "cuda":
        device_name = torch.cuda.get_device_name(device)
    elif onednn_is_faster(torch.float32):
        device_name += ", float32 by oneDNN"
    return {
        "mt": mt.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "tokenizers": version("tokenizers"),
        "numpy": version("numpy"),
        "system": f"{platform.system()} {platform.machine()}",
        "device": device.type,
        "device_name": device_name,
        "precision": precision.name,
        "num_threads": torch.get_num_threads(),
        "num_processes": processes.SIZE,
    }


def environment_differences(then: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """The differences between two environments, such as ``torch: 2.12 -> 2.13``, in what both contain."""
    return [f"{name}: {then[name]} -> {now[name]}" for name in now if then.get(name, now[name]) != now[name]]
