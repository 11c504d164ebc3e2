"""Watching a run: TensorBoard, `metrics.jsonl`, and a progress bar or log lines."""

import json
import logging
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from mt.atomic_files import write_text_atomically
from mt.training.state import TrainingState
from mt.training.step import StepResult
from mt.training.validation import ValidationResult

LOG = logging.getLogger(__name__)
SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Writes each figure to TensorBoard and `metrics.jsonl` alike, and shows the run to whoever watches."""

    def __init__(
        self, tensorboard_dir: Path, metrics_file: Path, *, state: TrainingState, total_steps: int | None
    ) -> None:
        """Open the files at the state's step; whatever they hold of later steps is taken back."""
        # Steps after the checkpoint that is resumed from will be taken again, and logged again.
        self._tensorboard = SummaryWriter(str(tensorboard_dir), purge_step=state.step + 1)
        _forget_after(metrics_file, state.step)
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

    def step(self, state: TrainingState, result: StepResult, learning_rate: float, *, log: bool) -> None:
        """Move on by one step; where ``log``, add a point to the training curves."""
        self._bar.update()
        self._tokens_since += result.num_target_tokens
        if not log or not state.logged_tokens:
            return
        now = time.perf_counter()
        loss = state.logged_loss / state.logged_tokens
        state.logged_loss, state.logged_tokens = 0.0, 0
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
            },
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
        if state.step == 0 or not self._signatures_logged:
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

    _signatures_logged = False

    def _write(self, group: str, state: TrainingState, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._tensorboard.add_scalar(f"{group}/{name}", value, state.step)
        line = {
            "step": state.step,
            "epoch": state.epoch,
            "num_target_tokens": state.num_target_tokens,
            "minutes": round(state.seconds / 60, 3),
            "kind": group,
            **values,
        }
        self._metrics.write(json.dumps(line) + "\n")
        self._metrics.flush()

    def _time_left(self, step: int, now: float) -> str:
        start, first_step = self._started_at
        if self._total_steps is None or step >= self._total_steps:
            return ""
        left = (now - start) / (step - first_step) * (self._total_steps - step)
        return f"  {tqdm.format_interval(left)} left"


def _forget_after(metrics_file: Path, step: int) -> None:
    """Drop the lines of later steps, and a last line that a crash cut short."""
    if not metrics_file.exists():
        return
    kept = []
    for line in metrics_file.read_text(encoding="utf-8").split("\n"):
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except (ValueError, KeyError, TypeError):
            continue
    write_text_atomically(metrics_file, "".join(kept))
