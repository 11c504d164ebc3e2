"""Monitoring of a run: TensorBoard, `metrics.jsonl`, and a progress bar or log lines."""

import json
import logging
import math
import os
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from mt.config.located_yaml import Scalar
from mt.display import SECONDS_BETWEEN_LINES, visible
from mt.files import write_atomically
from mt.run_directory import RunDirectory
from mt.training.attention_images import Pixels
from mt.training.counters import Counters, CurvePoint
from mt.training.health import Health
from mt.training.metrics_file import Point, read_points
from mt.training.run_log import record_session
from mt.training.samples import Sample, Samples, json_line, read_samples, sample_table
from mt.training.step import StepResult
from mt.training.tensorboard import hyperparameters, layout
from mt.training.validation import ValidationResult

LOG = logging.getLogger(__name__)
# A loss one nat above its average means that the perplexity is e times as high, which is far beyond noise.
SPIKE = 1.0
# Steps in the running average for the remaining time: one slow step hardly changes it, a busy machine does.
STEPS_OF_PACE = 100
# Points of the training curve between two with the metrics of each layer, which are many.
POINTS_BETWEEN_LAYERS = 5
# Figures of every point that say where it is in the run; they are not drawn.
_POSITION = ("epoch", "num_target_tokens", "minutes")
_BETTER: dict[str, Callable[[float, float], float]] = {"bleu": max, "chrf": max, "loss": min}
BAR = "{desc}{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} steps{postfix}"


class Progress:
    """Writes each metric to both TensorBoard and `metrics.jsonl`, and shows the progress of the run.

    It does not change anything that is saved in a checkpoint.
    """

    def __init__(
        self,
        run: RunDirectory,
        *,
        counters: Counters,
        total_steps: int | None,
        metric: str,
        clip_norm: float | None = None,
    ) -> None:
        """Open the files at the step of ``counters``; entries of later steps are removed.

        ``total_steps`` is None if the step at which the run will end is unknown, ``metric`` that of
        `Counters.best_value`, and ``clip_norm`` the maximum gradient norm, to be drawn beside the norm.
        """
        # Steps after the checkpoint that training resumes from are repeated and logged again. So is a pending
        # validation: a process that was killed may have logged it already.
        first_again = counters.step if counters.owes_validation else counters.step + 1
        owed = (counters.step, "validation") if counters.owes_validation else None
        kept = _keep_points(
            run.metrics_file, lambda at: at.step <= counters.step and (at.step, at.kind) != owed
        )
        samples = _keep_samples(run.samples_file, first_again)
        self._newest_samples = samples[-1] if samples else None
        self._run = run
        self._tensorboard = SummaryWriter(str(run.tensorboard_dir), purge_step=first_again)
        # TensorBoard shows nothing yet, or nothing any more: also not what belongs to the run as a whole.
        self.starts_curves = first_again == 1
        self._clip_norm = clip_norm
        self._best: dict[str, float] = {}
        for point in kept:
            figures = {name: value for name, value in point.figures.items() if name not in _POSITION}
            if point.kind == "validation":
                self._update_best(figures)
            if point.step >= first_again:
                self._draw(point.kind, point.step, figures)
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
        self._since = self._last_line = self._last_step = time.perf_counter()
        self._tokens_since = 0
        self._seconds_per_step, self._num_timed = 0.0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
        self._tensorboard.close()

    def show_options(self, options: Mapping[str, Scalar]) -> None:
        """Lay out TensorBoard's charts, and show the options of the run among its hyper-parameters."""
        writer = self._tensorboard.file_writer
        assert writer is not None  # Only a closed SummaryWriter has none.
        for summary in (layout(), hyperparameters(options)):
            # At the first step, so that they appear once, however often the run is started.
            writer.add_summary(summary, 1)

    def show_corpus(self, report: str, dropped: Mapping[str, int]) -> None:
        """Show in TensorBoard, at the first step, what was dropped from the corpus and why."""
        # Markdown leaves a table unchanged if it is indented by four spaces.
        self._tensorboard.add_text("corpus/report", textwrap.indent(visible(report), "    "), 1)
        for reason, count in dropped.items():
            self._tensorboard.add_scalar(f"corpus/dropped/{reason.replace(' ', '_')}", count, 1)

    def step(self, counters: Counters, result: StepResult, point: CurvePoint | None) -> None:
        """Show one more step, and add a point to the training curves if there is one."""
        now = time.perf_counter()
        self._num_timed += 1
        weight = 1 / min(self._num_timed, STEPS_OF_PACE)
        self._seconds_per_step += weight * (now - self._last_step - self._seconds_per_step)
        self._last_step = now
        self._tokens_since += result.num_target_tokens
        if point is not None:
            self._add_point(counters, result, point, now)
        self._show_bar(counters)

    def _add_point(self, counters: Counters, result: StepResult, point: CurvePoint, now: float) -> None:
        loss, above_average = point
        tokens_per_second = self._tokens_since / (now - self._since)
        self._since, self._tokens_since = now, 0
        self._write(
            "train",
            counters,
            {
                "loss": loss,
                "learning_rate": result.learning_rate,
                "gradient_norm": result.gradient_norm,
                "tokens_per_second": tokens_per_second,
                "step_target_tokens": result.num_target_tokens,
                "skipped_share": counters.num_skipped_steps / counters.step,
                **({"loss_spike": above_average} if above_average > SPIKE else {}),
                **_health_figures(result.health),
            },
        )
        if result.health is not None and counters.num_points % POINTS_BETWEEN_LAYERS == 0:
            self._write("layers", counters, _layer_figures(result.health))
        if above_average > SPIKE:
            LOG.warning(
                "step %s: the loss has jumped to %.3f, %.3f above its running average",
                f"{counters.step:,}",
                loss,
                above_average,
            )
        self._newest_loss = f"loss {loss:.3f}, {tokens_per_second:,.0f} tokens/s"
        if self._bar.disable and now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            LOG.info(
                "step %s  epoch %d  loss %.3f  learning rate %.2e  %s tokens/s%s",
                f"{counters.step:,}",
                counters.epoch + 1,
                loss,
                result.learning_rate,
                f"{tokens_per_second:,.0f}",
                f"  {left}" if (left := self._time_left(counters.step)) else "",
            )

    def _show_bar(self, counters: Counters) -> None:
        best = "" if counters.best_value is None else f"best {self._metric} {counters.best_value:.2f}"
        shown = (self._time_left(counters.step), best, self._newest_loss)
        self._bar.set_description_str(f"epoch {counters.epoch + 1}  ", refresh=False)
        self._bar.set_postfix_str(", ".join(filter(None, shown)), refresh=False)
        self._bar.update()

    def validation(self, counters: Counters, result: ValidationResult, samples: Sequence[Sample]) -> None:
        """Show a validation with some of its translations."""
        self._write("validation", counters, result.figures())
        self._update_best(result.figures())
        self._draw("best", counters.step, self._best)
        scores = "  ".join(f"{score.name} {score.value:.2f}" for score in result.scores.values())
        LOG.info(
            "validation at step %s: loss %.3f  perplexity %s  %s",
            f"{counters.step:,}",
            result.loss,
            f"{result.perplexity:.2f}" if result.perplexity < 1e6 else f"{result.perplexity:.0e}",
            scores,
        )
        for name, of_other in result.others.items():
            scores = "  ".join(f"{score.name} {score.value:.2f}" for score in of_other.values())
            LOG.info("  on %s: %s", name, scores)
        if not self._signatures_logged:
            for score in result.scores.values():
                LOG.info("%s signature: %s", score.name, score.signature)
            signatures = {score.name: score.signature for score in result.scores.values()}
            record_session(self._run, "validation", signatures=signatures)
            self._signatures_logged = True
        for sample in samples:
            LOG.info("  source      %s\n  translation %s\n  reference   %s", *sample)
        if samples:
            table = sample_table(samples, self._newest_samples)
            self._tensorboard.add_text("validation/samples", table, counters.step)
            self._newest_samples = Samples(counters.step, list(samples))
            _append(self._run.samples_file, json_line(self._newest_samples))
        self._tensorboard.flush()
        # The training speed does not include validation.
        self._since, self._tokens_since = time.perf_counter(), 0
        self._last_step = self._since

    def attention(self, counters: Counters, images: Sequence[Pixels]) -> None:
        """Show what the model attends to in some validation sentences."""
        for number, image in enumerate(images, start=1):
            self._tensorboard.add_image(f"attention/{number}", image, counters.step, dataformats="HWC")

    def sync(self) -> None:
        """Return when all points and samples so far are on disk: a resumed run does not write them again."""
        for file in (self._run.metrics_file, self._run.samples_file):
            with file.open("rb") as opened:
                os.fsync(opened.fileno())

    def leave_out(self, seconds: float) -> None:
        """Exclude the time that saving took from the training speed."""
        self._since += seconds
        self._last_step += seconds

    def _write(self, group: str, counters: Counters, values: dict[str, float]) -> None:
        self._draw(group, counters.step, values)
        line = {
            "step": counters.step,
            "epoch": counters.epoch,
            "num_target_tokens": counters.num_target_tokens,
            "minutes": round(counters.seconds / 60, 3),
            "kind": group,
            # JSON has no NaN.
            **{name: value if math.isfinite(value) else None for name, value in values.items()},
        }
        _append(self._run.metrics_file, json.dumps(line) + "\n")

    def _draw(self, group: str, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._tensorboard.add_scalar(f"{group}/{name}", value, step)
        if group == "train" and self._clip_norm is not None:
            self._tensorboard.add_scalar("train/clip_norm", self._clip_norm, step)

    def _update_best(self, figures: Mapping[str, float]) -> None:
        """Keep the best value so far of each metric that is a score or the loss."""
        for name, better in _BETTER.items():
            value = figures.get(name, math.nan)
            if not math.isnan(value):
                self._best[name] = better(self._best.get(name, value), value)

    def _time_left(self, step: int) -> str:
        """The time left for training, without validation and saving."""
        if self._total_steps is None or step >= self._total_steps:
            return ""
        return f"{tqdm.format_interval(self._seconds_per_step * (self._total_steps - step))} left"


def _append(file: Path, line: str) -> None:
    """Append a line; the error has the name of the file if the disk is full."""
    try:
        with file.open("a", encoding="utf-8") as opened:
            opened.write(line)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from error


def _health_figures(health: Health | None) -> dict[str, float]:
    if health is None:
        return {}
    return {"padding_share": health.padding_share, "update_ratio": health.update_ratio}


def _layer_figures(health: Health) -> dict[str, float]:
    kinds = {"gradient_norm": health.gradient_norms, "weight_norm": health.weight_norms}
    return {f"{kind}/{layer}": norm for kind, norms in kinds.items() for layer, norm in norms.items()}


def _keep_points(file: Path, is_kept: Callable[[Point], bool]) -> list[Point]:
    """Rewrite the file with the points that are kept, and return them."""
    kept = list(filter(is_kept, read_points(file)))
    write_atomically(file, "".join(f"{point.text}\n" for point in kept))
    return kept


def _keep_samples(file: Path, first_again: int) -> list[Samples]:
    """Rewrite the file with the samples of earlier steps, and return them."""
    kept = [samples for samples in read_samples(file) if samples.step < first_again]
    write_atomically(file, "".join(map(json_line, kept)))
    return kept


def forget_later_steps(run: RunDirectory, step: int) -> None:
    """Remove the figures of later steps than this one."""
    with Progress(run, counters=Counters(step=step), total_steps=None, metric=""):
        pass
