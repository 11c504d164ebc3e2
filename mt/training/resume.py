"""Starting and resuming a run: what must match, and the checkpoint to continue from."""

import logging
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version

import torch
from torch import Tensor

import mt
from mt import distributed, processes
from mt.checkpoint.record import Checkpoint, DamagedError
from mt.checkpoint.store import CheckpointStore, RecoveredCheckpoint
from mt.checkpoint.training_state import SavedTraining
from mt.config.config import Config
from mt.config.load import load_config
from mt.config.write import all_options, config_to_yaml, differences, with_unset_from
from mt.device import Precision, onednn_is_faster
from mt.errors import CheckpointError, ConfigError, RunError
from mt.files import write_atomically
from mt.inference.loaded_model import check_computation, check_tokenizers
from mt.run_directory import RunDirectory
from mt.training.counters import SavedValues, read_values
from mt.training.metrics_file import read_points
from mt.training.train_state import TrainState

LOG = logging.getLogger(__name__)

_EQUAL_EVERYWHERE = {
    "mt": "Install the same version on all machines.",
    "torch": "Install the same version on all machines.",
    "precision": "training.precision: auto selects what is fastest on each machine. Name one that all of "
    "them support, such as training.precision=float32.",
}
"""What must be equal in the environments of all processes, and what to do if it is not."""


@dataclass(frozen=True)
class ResumePoint:
    """A checkpoint to continue from, read and verified."""

    checkpoint: Checkpoint
    weights: dict[str, Tensor]
    """The weights that were saved as the model, by name; empty once they are restored."""
    saved: SavedTraining
    """The training state; without its tensors once they are restored."""
    values: SavedValues
    damaged: list[str]
    """What is damaged in later checkpoints, one sentence for each."""

    def why_finished(self, config: Config) -> str | None:
        """The limit that the run has reached, in words; None if there is something left to do."""
        counters = self.values.counters
        if counters.owes_validation:
            return None
        return counters.reached_limit(config.training, config.validation)

    def restore(self, train_state: TrainState, run: RunDirectory) -> None:
        """Put the checkpoint into a new train state, once."""
        try:
            with _explain_unusable(self.checkpoint):
                train_state.restore(self.weights, self.saved, self.values)
            # The model and the optimizers have what they need, and the run keeps this object.
            self.weights.clear()
            self.saved.tensors.clear()
        except ValueError as error:
            raise CheckpointError(
                f"{self.checkpoint.folder} does not match the tokenizers in {run.path}: {error}. "
                "Restore the old ones, or start over with --restart, which moves the old run aside."
            ) from error


def find_resume_point(run: RunDirectory, store: CheckpointStore, config: Config) -> ResumePoint | None:
    """The newest sound checkpoint; None for a new run, whose config is then written."""
    recovered, reasons = store.recover()
    _check_fits(run, store, config, recovered.checkpoint if recovered else None)
    if recovered is None:
        # Those steps were never saved; next to the new config they would be misleading.
        run.metrics_file.unlink(missing_ok=True)
        write_config(run, config)
        return None
    return _read_point(store, config, recovered, reasons)


def foresee_resume_point(run: RunDirectory, store: CheckpointStore, config: Config) -> ResumePoint | None:
    """What `find_resume_point` will find; nothing is written."""
    recovered, reasons = store.resumable()
    _check_fits(run, store, config, recovered.checkpoint if recovered else None)
    return _read_point(store, config, recovered, reasons) if recovered else None


def _read_point(
    store: CheckpointStore, config: Config, recovered: RecoveredCheckpoint, reasons: Mapping[str, str]
) -> ResumePoint:
    checkpoint = recovered.checkpoint
    weights, saved = recovered.weights, recovered.training_state
    damaged = [
        f"checkpoint {store.directory / name} is damaged and skipped: {reason}"
        for name, reason in reasons.items()
    ]
    with _explain_unusable(checkpoint):
        values = read_values(saved, checkpoint.step)
    if values.counters.reached_limit(config.training, config.validation) and not checkpoint.metrics:
        # A limit was lowered to where the run was stopped, but a run ends with a validation.
        values.counters.owes_validation = True
    return ResumePoint(checkpoint, weights, saved, values, damaged)


def _check_fits(
    run: RunDirectory, store: CheckpointStore, config: Config, checkpoint: Checkpoint | None
) -> None:
    """Check, without writing, that training may continue from ``checkpoint``, or begin if it is None."""
    if checkpoint is None:
        check_not_begun(run, store, config)
        return
    if not run.exists:
        raise RunError(
            f"{run.path} has checkpoints but has lost its {run.config_file.name}. Restore it from a copy, "
            "or use another run directory with --run PATH."
        )
    check_same_config(run, config)
    check_computation(run, config, checkpoint)
    check_tokenizers(run, checkpoint)


@contextmanager
def _explain_unusable(checkpoint: Checkpoint) -> Iterator[None]:
    try:
        yield
    except DamagedError as error:
        raise CheckpointError(
            f"Cannot continue from {checkpoint.folder}: {error}. Remove it to continue from the checkpoint "
            "before it, or start over with --restart, which moves the old run aside."
        ) from error


def report_resuming(
    run: RunDirectory, config: Config, point: ResumePoint, environment: dict[str, str | int]
) -> None:
    """Log where training continues, what was skipped, and why it may not be bit-exact."""
    checkpoint = point.checkpoint
    for sentence in point.damaged:
        LOG.warning("%s", sentence)
    LOG.info("resuming %s from step %s", run.path, f"{checkpoint.step:,}")
    for difference in environment_differences(checkpoint.environment, environment):
        LOG.warning("resuming is not bit-exact, because this has changed: %s", difference)
    if config.training.compile:
        LOG.warning(
            "resuming may not be bit-exact, because of training.compile: it chooses kernels by the first "
            "batches of a session"
        )


def check_not_begun(run: RunDirectory, store: CheckpointStore, config: Config) -> None:
    """Before a run without checkpoints starts: check that it never had one, and that its config is its own.

    A config that an earlier attempt wrote is recognised by its exact text.
    """
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
        other = "start over with --restart, which moves the old run aside"
        raise RunError(
            f"{run.path} has lost its checkpoints: {' and '.join(traces)} show that it had some. Restore "
            f"them from a copy, or {other if run.exists else 'use another run directory with --run PATH'}."
        )


def as_begun(config: Config, run: RunDirectory) -> Config:
    """``config`` with the values of a run that has begun for the options that it does not set.

    So a run keeps what it began with when a default changes.
    """
    if not run.exists or not CheckpointStore(run.checkpoints_dir).names():
        return config
    return with_unset_from(load_config(run.config_file), config)


def check_same_config(
    run: RunDirectory,
    config: Config,
    otherwise: str = ", use another run directory with --run PATH, or start over with --restart, which moves "
    "the old run aside",
) -> None:
    """Before a run is resumed: check that no option has changed that affects the mathematics."""
    changed = differences(load_config(run.config_file), config)
    if changed:
        fields = "\n  ".join(changed)
        raise RunError(
            f"{run.path} was started with another config:\n  {fields}\nSet these options back{otherwise}. "
            f"A new run from its weights, with other options: {run.adapt_command(config.data.path)}",
        )


def check_equal_processes(config: Config, environment: Mapping[str, str | int]) -> None:
    """Before several processes train: check that they have the same software, precision and config."""
    (mine, my_options), *others = distributed.all_gather((dict(environment), all_options(config)))
    if not processes.is_first():
        return
    for rank, (its, its_options) in enumerate(others, 1):
        for name, remedy in _EQUAL_EVERYWHERE.items():
            if its[name] != mine[name]:
                raise RunError(
                    f"{name} is {mine[name]} in the first process and {its[name]} in process {rank}. {remedy}"
                )
        if different := environment_differences(its_options, my_options):
            raise RunError(
                f"process {rank} was given a different config from the first process (shown after ->): "
                f"{', '.join(different)}. Start the same command with the same config on all machines."
            )


def write_config(run: RunDirectory, config: Config) -> None:
    """Write the config, with all defaults, which makes the directory a run."""
    write_atomically(run.config_file, config_to_yaml(config))


def describe_environment(device: torch.device, precision: Precision) -> dict[str, str | int]:
    """Versions, device, precision and threads, for a checkpoint."""
    if device.type == "cuda":
        device_name = torch.cuda.get_device_name(device)
    else:
        library = ", float32 by oneDNN" if onednn_is_faster(torch.float32) else ""
        device_name = f"{torch.backends.cpu.get_cpu_capability()}{library}"
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
        "num_processes": processes.size(),
    }


def environment_differences(then: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """The differences between two environments, such as ``torch: 2.12 -> 2.13``, in what both contain."""
    return [f"{name}: {then[name]} -> {now[name]}" for name in now if then.get(name, now[name]) != now[name]]
