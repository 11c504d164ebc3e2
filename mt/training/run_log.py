"""What a run says of itself, and the log file that keeps it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from mt.checkpoint.record import FORMAT_VERSION, Checkpoint
from mt.config.config import Config
from mt.device import multiplies_bf16_fast
from mt.display import visible
from mt.run_directory import RunDirectory
from mt.training.interruption import Interruption
from mt.training.resume import environment_differences
from mt.training.state import TrainingState
from mt.transformer.transformer import Transformer

LOG = logging.getLogger(__name__)


@contextmanager
def log_file(run: RunDirectory) -> Iterator[None]:
    """Write what is logged to the run's own log as well."""
    handler = logging.FileHandler(run.log_file, encoding="utf-8")
    handler.setFormatter(_VisibleFormatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("mt")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


class _VisibleFormatter(logging.Formatter):
    """For a file that may be shown in a terminal one day."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def report_resuming(
    run: RunDirectory, config: Config, checkpoint: Checkpoint, environment: dict[str, str | int]
) -> None:
    """Where it goes on, and why that may be not exact to the bit."""
    LOG.info("resuming %s from step %s", run.path, f"{checkpoint.step:,}")
    if checkpoint.format_version == 1:
        LOG.warning(
            "resuming is not exact to the bit, for the checkpoint has format 1: from here on dropout is "
            "drawn from a seed for each batch, and so are the words that are made unknown%s. The next "
            "checkpoint has format %d.",
            ", and weight decay leaves out norms, biases and embeddings"
            if config.training.weight_decay
            else "",
            FORMAT_VERSION,
        )
    for difference in environment_differences(checkpoint.environment, environment):
        LOG.warning("resuming is not exact to the bit, for this differs: %s", difference)


def report_stop(interruption: Interruption, step: int, without: str) -> None:
    """Where it was interrupted; ``without`` is what the same command must not have to go on."""
    LOG.info(
        "Stopped %s: %s. The same command%s goes on from there.",
        f"at step {step:,}, saved" if step else "before the first step",
        interruption.reason,
        without,
    )


def report_end(finished: str, state: TrainingState, metric: str) -> None:
    """That the run is finished, and how good it became."""
    LOG.info(
        "Finished: %s, after %s steps, %s target tokens and %.1f minutes.",
        finished,
        f"{state.step:,}",
        f"{state.num_target_tokens:,}",
        state.seconds / 60,
    )
    if state.best_value is not None:
        LOG.info("Best validation %s: %.2f", metric, state.best_value)


def report_model(model: Transformer, environment: dict[str, str | int]) -> None:
    """What is trained, and where it is computed."""
    LOG.info(
        "model: %s parameters, in %s on %s (%s, %s threads)",
        f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        environment["precision"],
        environment["device"],
        environment["device_name"],
        environment["num_threads"],
    )
    device = model.output.weight.device
    if environment["precision"] == "float32" and multiplies_bf16_fast(device):
        LOG.info("this %s multiplies bf16 faster: a new run may set training.precision=auto", device.type)
