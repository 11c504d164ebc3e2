"""Watching a run: TensorBoard, `metrics.jsonl`, and a progress bar or log lines."""

import json
import logging
import math
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from mt.atomic_files import write_text_atomically
from mt.regular_files import read_bytes
from mt.training.state import TrainingState
from mt.training.step import StepResult
from mt.training.validation import ValidationResult

LOG = logging.getLogger(__name__)
SECONDS_BETWEEN_LINES = 10.0
# One nat above its average, a loss has a perplexity of e times what it was: far beyond noise.
SPIKE = 1.0
_MAX_METRICS_BYTES = 2**30
# Of a whole number; JSON knows longer ones than a float can hold.
_MAX_FIGURE = 1e300


class Progress:
    """Writes each figure to TensorBoard and `metrics.jsonl` alike, and shows the run to whoever watches."""

    def __init__(
        self, tensorboard_dir: Path, metrics_file: Path, *, state: TrainingState, total_steps: int | None
    ) -> None:
        """Open the files at the state's step; whatever they hold of later steps is taken back."""
        _let_older_events_be_read_first(tensorboard_dir)
        # Steps after the checkpoint that is resumed from will be taken again, and logged again; so will a
        # validation that it owes, which a process that was killed may have logged already.
        kept = _forget_after(metrics_file, state)
        first_again = state.step if state.owes_validation else state.step + 1
        self._tensorboard = SummaryWriter(str(tensorboard_dir), purge_step=first_again)
        for line in kept:
            if line["step"] >= first_again:
                self._draw(line["kind"], line["step"], _figures(line))
        self._metrics = metrics_file.open("a", encoding="utf-8")
        self._bar = tqdm(
            total=total_steps,
            initial=state.step,
            unit=" steps",
            disable=None,
            dynamic_ncols=True,
            smoothing=0.1,
        )
        self._total_steps = total_steps
        self._signatures_logged = False
        self._since = time.perf_counter()
        self._tokens_since = 0
        self._last_line = self._since
        self._started_at = (self._since, state.step)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
        self._tensorboard.close()
        self._metrics.close()

    def corpus(self, report: str, dropped: Mapping[str, int]) -> None:
        """Show in TensorBoard, at the first step, what was dropped from the corpus and why."""
        # Four blanks make Markdown leave a table as it is.
        self._tensorboard.add_text("corpus/report", textwrap.indent(report, "    "), 1)
        for reason, count in dropped.items():
            self._tensorboard.add_scalar(f"corpus/dropped/{reason.replace(' ', '_')}", count, 1)

    def step(self, state: TrainingState, result: StepResult, learning_rate: float, *, log: bool) -> None:
        """Move on by one step; where ``log``, add a point to the training curves."""
        self._bar.update()
        self._tokens_since += result.num_target_tokens
        if not log or not state.logged_tokens:
            return
        now = time.perf_counter()
        loss, above_average = state.end_window()
        tokens_per_second = self._tokens_since / (now - self._since)
        self._since, self._tokens_since = now, 0
        self._write(
            "train",
            state,
            {
                "loss": loss,
                "learning_rate": learning_rate,
                "gradient_norm": result.gradient_norm,
                "tokens_per_second": tokens_per_second,
                **({"loss_spike": above_average} if above_average > SPIKE else {}),
            },
        )
        if above_average > SPIKE:
            LOG.warning(
                "step %s: the loss has jumped to %.3f, %.3f above its running average",
                f"{state.step:,}",
                loss,
                above_average,
            )
        self._bar.set_postfix_str(f"loss {loss:.3f}, {tokens_per_second:,.0f} tokens/s")
        if self._bar.disable and now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            LOG.info(
                "step %s  epoch %d  loss %.3f  learning rate %.2e  %s tokens/s%s",
                f"{state.step:,}",
                state.epoch + 1,
                loss,
                learning_rate,
                f"{tokens_per_second:,.0f}",
                self._time_left(state.step, now),
            )

    def validation(
        self, state: TrainingState, result: ValidationResult, samples: list[tuple[str, str, str]]
    ) -> None:
        """Show a validation; ``samples`` are triples of source, translation, and reference."""
        self._write("validation", state, result.values())
        scores = "  ".join(f"{score.name} {score.value:.2f}" for score in result.scores.values())
        LOG.info(
            "validation at step %s: loss %.3f  perplexity %.2f  %s",
            f"{state.step:,}",
            result.loss,
            result.perplexity,
            scores,
        )
        if not self._signatures_logged:
            for score in result.scores.values():
                LOG.info("%s signature: %s", score.name, score.signature)
            self._signatures_logged = True
        for number, (source, hypothesis, reference) in enumerate(samples, start=1):
            LOG.info("  source      %s\n  translation %s\n  reference   %s", source, hypothesis, reference)
            text = f"**source** {source}\n\n**translation** {hypothesis}\n\n**reference** {reference}"
            self._tensorboard.add_text(f"samples/{number}", text, state.step)
        self._tensorboard.flush()
        # What validating took is no part of the training speed.
        self._since, self._tokens_since = time.perf_counter(), 0

    def leave_out(self, seconds: float) -> None:
        """What saving took is no part of the training speed either."""
        self._since += seconds

    def _write(self, group: str, state: TrainingState, values: dict[str, float]) -> None:
        self._draw(group, state.step, values)
        line = {
            "step": state.step,
            "epoch": state.epoch,
            "num_target_tokens": state.num_target_tokens,
            "minutes": round(state.seconds / 60, 3),
            "kind": group,
            # Strict readers of JSON know no NaN.
            **{name: value if math.isfinite(value) else None for name, value in values.items()},
        }
        self._metrics.write(json.dumps(line) + "\n")
        self._metrics.flush()

    def _draw(self, group: str, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._tensorboard.add_scalar(f"{group}/{name}", value, step)

    def _time_left(self, step: int, now: float) -> str:
        start, first_step = self._started_at
        if self._total_steps is None or step >= self._total_steps:
            return ""
        left = (now - start) / (step - first_step) * (self._total_steps - step)
        return f"  {tqdm.format_interval(left)} left"


def _let_older_events_be_read_first(tensorboard_dir: Path) -> None:
    """Give event files of earlier sittings names that come before that of the next one.

    TensorBoard reads them in the order of their names, which begin with the second they were made in; a clock
    that went backwards would mix up the curves.
    """
    newest = int(time.time()) - 1
    renamed = []
    for file in sorted(tensorboard_dir.glob("events.out.tfevents.*.*"), reverse=True):
        *head, second, tail = file.name.split(".", 4)
        if not second.isdecimal():
            continue
        newest = min(newest, int(second))
        renamed.append((file, file.with_name(".".join([*head, f"{newest:010d}", tail]))))
        newest -= 1
    # The oldest first, so that their order is right at every moment.
    for file, new_name in reversed(renamed):
        file.rename(new_name)


def _forget_after(metrics_file: Path, state: TrainingState) -> list[dict[str, Any]]:
    """Keep the lines up to the state's step, and none that a crash cut short; return them."""
    if not metrics_file.exists():
        return []
    kept = []
    for text in read_bytes(metrics_file, max_bytes=_MAX_METRICS_BYTES).split(b"\n"):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if not _is_ours(line):
            continue
        is_owed = state.owes_validation and line["step"] == state.step and line["kind"] == "validation"
        if line["step"] <= state.step and not is_owed:
            kept.append(line)
    write_text_atomically(metrics_file, "".join(json.dumps(line) + "\n" for line in kept))
    return kept


def _is_ours(line: object) -> bool:
    """Whether this is a line such as `Progress` writes: a step, a kind, and otherwise numbers or null."""
    if not isinstance(line, dict) or type(line.get("step")) is not int:
        return False
    figures = [value for name, value in line.items() if name not in ("step", "kind")]
    return isinstance(line.get("kind"), str) and all(
        value is None or (type(value) in (int, float) and abs(value) < _MAX_FIGURE) for value in figures
    )


def _figures(line: dict[str, Any]) -> dict[str, float]:
    """What stands in a line of the metrics besides where it stands."""
    return {
        name: math.nan if value is None else value
        for name, value in line.items()
        if name not in ("step", "epoch", "num_target_tokens", "minutes", "kind")
    }
