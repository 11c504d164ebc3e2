"""Monitoring of a run: TensorBoard, `metrics.jsonl`, and a progress bar or log lines."""

import json
import logging
import math
import os
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams
from tqdm import tqdm

from mt.config.located_yaml import Scalar
from mt.display import SECONDS_BETWEEN_LINES, markdown_table, markdown_text, visible
from mt.files import write_atomically
from mt.run_directory import RunDirectory
from mt.training.attention_images import Pixels
from mt.training.counters import Counters, CurvePoint
from mt.training.metrics_file import read_points
from mt.training.run_log import record_session
from mt.training.step import StepResult
from mt.training.validation import ValidationResult

LOG = logging.getLogger(__name__)
# A loss one nat above its average means that the perplexity is e times as high, which is far beyond noise.
SPIKE = 1.0
BAR = "{desc}{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} steps{postfix}"


class Sample(NamedTuple):
    """A validation sentence with its translation."""

    source: str
    translation: str
    reference: str


class Progress:
    """Writes each metric to both TensorBoard and `metrics.jsonl`, and shows the progress of the run.

    It does not change anything that is saved in a checkpoint.
    """

    def __init__(
        self, run: RunDirectory, *, counters: Counters, total_steps: int | None, metric: str
    ) -> None:
        """Open the files at the step of ``counters``; entries of later steps are removed.

        ``total_steps`` is None if the step at which the run will end is unknown, and ``metric`` is that of
        `Counters.best_value`.
        """
        # Steps after the checkpoint that training resumes from are repeated and logged again. So is a pending
        # validation: a process that was killed may have logged it already.
        owed = (counters.step, "validation") if counters.owes_validation else None
        points = read_points(run.metrics_file)
        kept = [point for point in points if point.step <= counters.step and (point.step, point.kind) != owed]
        write_atomically(run.metrics_file, "".join(f"{point.text}\n" for point in kept))
        self._run = run
        self._tensorboard = SummaryWriter(str(run.tensorboard_dir), purge_step=counters.step + 1)
        self._bar = tqdm(
            total=total_steps,
            initial=counters.step,
            disable=not sys.stderr.isatty(),
            bar_format="{desc}step {n_fmt}{postfix}" if total_steps is None else BAR,
            dynamic_ncols=True,
        )
        self._total_steps = total_steps
        self._metric = metric
        self._newest_loss = ""
        self._signatures_logged = False
        self._started = self._since = self._last_line = time.perf_counter()
        self._num_steps, self._num_tokens = 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
        self._tensorboard.close()

    def show_run(self, options: Mapping[str, Scalar], corpus: str) -> None:
        """Show the options of a new run among TensorBoard's hyper-parameters, and what its corpus has."""
        writer = self._tensorboard.file_writer
        assert writer is not None  # Only a closed SummaryWriter has none.
        known = {name: value for name, value in options.items() if value is not None}
        # At the first step, so that they appear once, however often the run is started.
        writer.add_summary(hparams(known, {})[1], 1)
        # Markdown leaves a table unchanged if it is indented by four spaces.
        self._tensorboard.add_text("corpus/report", textwrap.indent(visible(corpus), "    "), 1)

    def step(self, result: StepResult) -> None:
        """Show one more step, and its point of the training curve if it has one."""
        counters = result.counters
        self._num_steps += 1
        self._num_tokens += result.num_target_tokens
        if result.point is not None:
            self._add_point(result, result.point)
        best = "" if counters.best_value is None else f"best {self._metric} {counters.best_value:.2f}"
        shown = (self._time_left(counters.step), best, self._newest_loss)
        self._bar.set_description_str(f"epoch {counters.epoch + 1}  ", refresh=False)
        self._bar.set_postfix_str(", ".join(filter(None, shown)), refresh=False)
        self._bar.update()

    def _add_point(self, result: StepResult, point: CurvePoint) -> None:
        counters, now = result.counters, time.perf_counter()
        speed = self._num_tokens / (now - self._since)
        self._since, self._num_tokens = now, 0
        self._write(
            "train",
            counters,
            {
                "loss": point.loss,
                "learning_rate": result.learning_rate,
                "gradient_norm": result.gradient_norm,
                "tokens_per_second": speed,
            },
        )
        step = f"{counters.step:,}"
        if point.above_average > SPIKE:
            LOG.warning(
                "step %s: the loss has jumped to %.3f, %.3f above its running average",
                step,
                point.loss,
                point.above_average,
            )
        self._newest_loss = f"loss {point.loss:.3f}, {speed:,.0f} tokens/s"
        if self._bar.disable and now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            LOG.info(
                "step %s  epoch %d  loss %.3f  learning rate %.2e  %s tokens/s  %s",
                step,
                counters.epoch + 1,
                point.loss,
                result.learning_rate,
                f"{speed:,.0f}",
                self._time_left(counters.step),
            )

    def validation(
        self,
        counters: Counters,
        result: ValidationResult,
        samples: Sequence[Sample] = (),
        attention: Pixels | None = None,
    ) -> None:
        """Show a validation with some of its translations, and what the model attends to in one of them."""
        self._write("validation", counters, result.values() | result.others_by_name())
        LOG.info(
            "validation at step %s: loss %.3f  perplexity %s  %s",
            f"{counters.step:,}",
            result.loss,
            f"{result.perplexity:.2f}" if result.perplexity < 1e6 else f"{result.perplexity:.0e}",
            "  ".join(f"{score.name} {score.value:.2f}" for score in result.scores.values()),
        )
        for name, scores in result.others.items():
            LOG.info("  on %s: %s", name, "  ".join(f"{s.name} {s.value:.2f}" for s in scores.values()))
        if not self._signatures_logged:
            signatures = {score.name: score.signature for score in result.scores.values()}
            for name, signature in signatures.items():
                LOG.info("%s signature: %s", name, signature)
            record_session(self._run, "validation", signatures=signatures)
            self._signatures_logged = True
        for sample in samples:
            LOG.info("  source      %s\n  translation %s\n  reference   %s", *sample)
        table = markdown_table(Sample._fields, [[*map(markdown_text, sample)] for sample in samples])
        self._tensorboard.add_text("validation/samples", table, counters.step)
        if attention is not None:
            self._tensorboard.add_image("attention", attention, counters.step, dataformats="HWC")
        self._tensorboard.flush()

    def sync(self) -> None:
        """Return when all points so far are on disk: a resumed run does not write them again."""
        with self._run.metrics_file.open("rb") as opened:
            os.fsync(opened.fileno())

    def leave_out(self, seconds: float) -> None:
        """Exclude the time that a validation or saving took from the training speed."""
        self._since += seconds
        self._started += seconds

    def _write(self, group: str, counters: Counters, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._tensorboard.add_scalar(f"{group}/{name}", value, counters.step)
        line = {
            "step": counters.step,
            "epoch": counters.epoch,
            "num_target_tokens": counters.num_target_tokens,
            "minutes": round(counters.seconds / 60, 3),
            "kind": group,
            # JSON has no NaN.
            **{name: value if math.isfinite(value) else None for name, value in values.items()},
        }
        try:
            with self._run.metrics_file.open("a", encoding="utf-8") as opened:
                opened.write(json.dumps(line) + "\n")
        except OSError as error:
            # With the name of the file if the disk is full.
            raise OSError(error.errno, error.strerror, str(self._run.metrics_file)) from error

    def _time_left(self, step: int) -> str:
        """The time left for training, without validation and saving."""
        if self._total_steps is None or step >= self._total_steps:
            return ""
        seconds_per_step = (time.perf_counter() - self._started) / self._num_steps
        return f"{tqdm.format_interval(seconds_per_step * (self._total_steps - step))} left"


def forget_later_steps(run: RunDirectory, step: int) -> None:
    """Remove the metrics of later steps than this one."""
    with Progress(run, counters=Counters(step=step), total_steps=None, metric=""):
        pass
