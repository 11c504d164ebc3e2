"""Monitoring of a run: TensorBoard, `metrics.jsonl`, and a progress bar or log lines."""

import contextlib
import json
import logging
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams
from tqdm.auto import tqdm

from mt.config.config import Config
from mt.config.write import fixed_options
from mt.display import SECONDS_BETWEEN_LINES, markdown_table, markdown_text
from mt.files import write_atomically
from mt.run_directory import RunDirectory
from mt.training.budget import UNTIMED_STEPS
from mt.training.counters import Counters, CurvePoint
from mt.training.metrics_file import read_points
from mt.training.peak import share_of_peak
from mt.training.run_log import record_session
from mt.training.step import StepResult
from mt.training.trackers import Trackers
from mt.training.validation import ValidationResult, deciding_metric

LOG = logging.getLogger(__name__)
# A loss one nat above its average means that the perplexity is e times as high, which is far beyond noise.
SPIKE = 1.0
BAR = "{desc}{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} steps{postfix}"
# TensorBoard sorts options by name and shows five of them, first those that differ. These are named without
# their section, and so come first.
_SWEPT = ("model.dropout", "schedule.learning_rate", "training.batch_tokens", "training.label_smoothing")


OnMetrics = Callable[[int, Mapping[str, float]], object]
"""Called with a step and its metrics by name, such as ``train/loss`` and ``validation/bleu``."""


class Sample(NamedTuple):
    """A validation sentence with its translation."""

    source: str
    translation: str
    reference: str


class Progress(contextlib.ExitStack):
    """Writes each metric to both TensorBoard and `metrics.jsonl`, and shows the progress of the run."""

    def __init__(
        self,
        run: RunDirectory,
        config: Config,
        counters: Counters,
        *,
        total_steps: int | None,
        peak_rate: float | None = None,
        on_metrics: OnMetrics | None = None,
    ) -> None:
        """Open the files at the step of ``counters``; entries of later steps are removed."""
        super().__init__()
        # Steps after the checkpoint that training resumes from are repeated and logged again. So is a pending
        # validation: a process that was killed may have logged it already.
        owed = (counters.step, "validation") if counters.owes_validation else None
        points = read_points(run.metrics_file)
        kept = [point for point in points if point.step <= counters.step and (point.step, point.kind) != owed]
        write_atomically(run.metrics_file, "".join(f"{point.text}\n" for point in kept))
        self._run = run
        self._tensorboard = SummaryWriter(str(run.tensorboard_dir), purge_step=counters.step + 1)
        self._bar = tqdm(
            initial=counters.step,
            disable=not (sys.stderr.isatty() or "ipykernel" in sys.modules),
            dynamic_ncols=True,
        )
        self.callback(self._tensorboard.close)
        self.callback(self._bar.close)
        self.expect(total_steps)
        if counters.step == 0:
            self._show_options(config)
        self._metric = deciding_metric(config.validation)
        self._training = config.training
        self._peak_rate = peak_rate
        self._listeners = [] if on_metrics is None else [on_metrics]
        if config.training.report_to is not None:
            self._listeners.append(self.enter_context(Trackers(run, config, kept)))
        self._newest_loss = ""
        self._signatures_logged = False
        self._started = self._since = self._last_line = time.perf_counter()
        self._num_steps = -UNTIMED_STEPS
        self._num_tokens = 0

    def expect(self, total_steps: int | None) -> None:
        """Show how far the run is on its way to so many steps; None if they are not known."""
        self._total_steps = self._bar.total = total_steps
        self._bar.bar_format = "{desc}step {n_fmt}{postfix}" if total_steps is None else BAR

    def _show_options(self, config: Config) -> None:
        """Show the options of a new run among TensorBoard's hyper-parameters."""
        writer = self._tensorboard.file_writer
        assert writer is not None  # Only a closed SummaryWriter has none.
        options = fixed_options(config).items()
        named = {name.partition(".")[2] if name in _SWEPT else name: value for name, value in options}
        # At the first step, so that they appear once, however often the run is started.
        writer.add_summary(hparams(named, {})[1], 1)

    def step(self, result: StepResult) -> None:
        """Show one more step, and its point of the training curve if it has one."""
        counters = result.counters
        self._num_steps += 1
        if self._num_steps == 0:
            self._started = time.perf_counter()
        self._num_tokens += result.batches.num_target_tokens
        if result.point is not None:
            self._add_point(result, result.point)
        best = "" if counters.best_value is None else f"best {self._metric} {counters.best_value:.2f}"
        notes = (self._time_left(counters.step), best, self._newest_loss)
        self._bar.set_description_str(f"{self._place(counters)}  ", refresh=False)
        self._bar.set_postfix_str(", ".join(filter(None, notes)), refresh=False)
        self._bar.update()

    def _add_point(self, result: StepResult, point: CurvePoint) -> None:
        counters, now = result.counters, time.perf_counter()
        speed = self._num_tokens / (now - self._since)
        self._since = now
        self._num_tokens = 0
        metrics = {"loss": point.loss, "learning_rate": result.learning_rate}
        metrics |= {"gradient_norm": result.gradient_norm, "tokens_per_second": speed}
        if self._training.stages:
            metrics["stage"] = self._stage(counters) + 1
        self._write("train", counters, metrics)
        step, above = f"{counters.step:,}", point.above_average
        if above > SPIKE:
            LOG.warning("step %s: the loss jumped to %.3f, %.3f above its average", step, point.loss, above)
        pace = f"{speed:,.0f} tokens/s{share_of_peak(speed, self._peak_rate)}"
        self._newest_loss = f"loss {point.loss:.3f}, {pace}"
        if self._bar.disable and now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            where = f"step {step}  {self._place(counters)}"
            details = f"learning rate {result.learning_rate:.2e}  {pace}"
            LOG.info("%s  loss %.3f  %s  %s", where, point.loss, details, self._time_left(counters.step))

    def validation(
        self, counters: Counters, result: ValidationResult, samples: Sequence[Sample] = ()
    ) -> None:
        """Show a validation with some of its translations."""
        self._write("validation", counters, result.values() | result.values_of_others())
        scores = "  ".join(f"{score.name} {score.value:.2f}" for score in result.scores.values())
        figures = f"loss {result.loss:.3f}  perplexity {result.perplexity:.4g}  {scores}"
        LOG.info("validation at step %s: %s", f"{counters.step:,}", figures)
        for name, of_set in result.others.items():
            LOG.info("  on %s: %s", name, "  ".join(f"{s.name} {s.value:.2f}" for s in of_set.values()))
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
        self._tensorboard.flush()

    def exclude(self, seconds: float) -> None:
        """Exclude the time that a validation or saving took from the training speed."""
        self._since += seconds
        self._started += seconds

    def _write(self, group: str, counters: Counters, values: dict[str, float]) -> None:
        metrics = {f"{group}/{name}": value for name, value in values.items()}
        for name, value in values.items():
            # TensorBoard sorts charts by name, and opens the first two groups.
            comes_first = group == "validation" or name == "loss"
            tag = f"learning/{group}_{name}" if comes_first else f"{group}/{name}"
            self._tensorboard.add_scalar(tag, value, counters.step)
        for listener in self._listeners:
            listener(counters.step, metrics)
        line = {
            "step": counters.step,
            "epoch": counters.epoch,
            "num_target_tokens": counters.num_target_tokens,
            "minutes": round(counters.seconds / 60, 3),
            "kind": group,
            # JSON has no NaN.
            **{name: value if math.isfinite(value) else None for name, value in values.items()},
        }
        with self._run.metrics_file.open("a", encoding="utf-8") as opened:
            opened.write(json.dumps(line) + "\n")

    def _stage(self, counters: Counters) -> int:
        """The number, from 0, of the stage of the newest step."""
        return self._training.stage_at(counters.step - 1)[0]

    def _place(self, counters: Counters) -> str:
        place = f"epoch {counters.epoch + 1}"
        if names := [*self._training.stages]:
            place = f"stage {names[self._stage(counters)]}, {place}"
        return place

    def _time_left(self, step: int) -> str:
        """The time left for training, without validation and saving."""
        if self._total_steps is None or step >= self._total_steps:
            return ""
        return f"{tqdm.format_interval(self.step_seconds * (self._total_steps - step))} left"

    @property
    def step_seconds(self) -> float:
        """The time of an average step, without validation and saving."""
        return (time.perf_counter() - self._started) / max(1, self._num_steps)
