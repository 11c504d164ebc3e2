"""Validation: the loss of the model, and the scores of its translations."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from mt import distributed
from mt.config.data import OWN
from mt.config.training import ValidationConfig
from mt.data.batches.batch import Batch
from mt.data.corpus import NamedSet
from mt.data.text_form import TextForm
from mt.device import Precision
from mt.evaluation.record import Score
from mt.evaluation.scores import score_translations
from mt.memory import split_on_out_of_memory
from mt.sides import Sides
from mt.training.loss import Objective
from mt.training.step import report_too_large


def deciding_metric(config: ValidationConfig) -> str:
    """What decides which checkpoint is best: the metric, or its mean over all sets, such as ``mean_bleu``."""
    return f"mean_{config.metric}" if config.over == "all" else config.metric


@dataclass(frozen=True)
class ValidationResult:
    """The result of one validation."""

    loss: float
    """Cross-entropy without smoothing, in nats per real target token, of the run's own set."""
    sets: Mapping[str, dict[str, Score]]
    """The scores of each set by its name, first those of the run's own."""
    hypotheses: list[str]
    """The translations of the run's own."""

    @property
    def scores(self) -> dict[str, Score]:
        """Those of the run's own set, by which checkpoints are compared."""
        return next(iter(self.sets.values()))

    @property
    def perplexity(self) -> float:
        """The number of tokens that the model is effectively choosing from, at most 1e299."""
        return min(math.exp(min(self.loss, 700.0)), 1e299)

    def values(self) -> dict[str, float]:
        """All metrics by name: those of its own set, and the means over several, such as ``mean_bleu``."""
        values = {"loss": self.loss, "perplexity": self.perplexity}
        for name, score in self.scores.items():
            values[name] = score.value
        for name in self.scores if self.others else ():
            values[f"mean_{name}"] = statistics.fmean(of_set[name].value for of_set in self.sets.values())
        return values

    @property
    def others(self) -> dict[str, dict[str, Score]]:
        """The scores of the other sets."""
        return dict(islice(self.sets.items(), 1, None))

    def values_of_others(self) -> dict[str, float]:
        """The scores of the other sets, such as ``bleu_on_NAME``."""
        values: dict[str, float] = {}
        for name, scores in self.others.items():
            values |= {f"{key}_on_{name}": score.value for key, score in scores.items()}
        return values


def validate(
    objective: Objective,
    batches: Iterable[Batch],
    precision: Precision,
    *,
    translate: Callable[[Sequence[str], Sides[str]], list[str]],
    sets: Mapping[str, NamedSet],
    form: TextForm,
) -> ValidationResult:
    """Evaluate the model on this process's ``batches`` and by its translations of all sets."""
    loss = validation_loss(objective, batches, precision)
    hypotheses, scores = {}, {}
    for name, (pairs, direction) in sets.items():
        hypotheses[name] = translate(list(pairs["src"]), direction)
        scores[name] = score_translations(hypotheses[name], list(pairs["tgt"]), form)
    return ValidationResult(loss, scores, hypotheses[OWN])


@torch.inference_mode()
def validation_loss(objective: Objective, batches: Iterable[Batch], precision: Precision) -> float:
    """Cross-entropy without smoothing, in nats per real target token; NaN if there is none."""
    objective.eval()
    device = next(objective.parameters()).device

    def summed_loss(batch: Batch) -> float:
        with precision.autocast():
            return float(objective(batch.to(device), 0.0))

    def own_share() -> tuple[float, int]:
        own_loss, own_tokens = 0.0, 0
        for batch in batches:
            own_loss += sum(split_on_out_of_memory(summed_loss, batch, _halves))
            own_tokens += batch.num_target_tokens
        return own_loss, own_tokens

    losses, tokens = zip(*distributed.all_gather(distributed.barrier_after(own_share)), strict=True)
    return sum(losses) / sum(tokens) if sum(tokens) else math.nan


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    report_too_large(batch, can_split=True)
    return batch.halves()
