"""Validation: the loss of the model, and the scores of its translations."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import datasets
import torch

from mt import distributed
from mt.data.batches.batch import Batch
from mt.data.text_form import TextForm
from mt.device import Precision
from mt.evaluation.record import Score
from mt.evaluation.scores import score_translations
from mt.memory import split_on_out_of_memory
from mt.training.loss import Objective
from mt.training.step import report_too_large


@dataclass(frozen=True)
class ValidationResult:
    """The result of one validation."""

    loss: float
    """Cross-entropy without smoothing, in nats per real target token."""
    scores: dict[str, Score]
    hypotheses: list[str]
    others: Mapping[str, dict[str, Score]] = field(default_factory=dict)
    """The scores of other validation sets, by their names."""

    @property
    def perplexity(self) -> float:
        """The number of tokens that the model is effectively choosing from, at most 1e299."""
        return min(math.exp(min(self.loss, 700.0)), 1e299)

    def values(self) -> dict[str, float]:
        """All metrics by name, including every choice of `validation.metric`."""
        scores = {name: score.value for name, score in self.scores.items()}
        return {"loss": self.loss, "perplexity": self.perplexity, **scores}

    def others_by_name(self) -> dict[str, float]:
        """The scores of the other sets, such as ``bleu_on_NAME``."""
        sets = self.others.items()
        return {f"{key}_on_{name}": score.value for name, scores in sets for key, score in scores.items()}


def validate(
    objective: Objective,
    batches: Iterable[Batch],
    precision: Precision,
    *,
    translate: Callable[[Sequence[str]], list[str]],
    sources: Sequence[str],
    references: Sequence[str],
    others: Mapping[str, datasets.Dataset],
    form: TextForm,
) -> ValidationResult:
    """Evaluate the model on this process's ``batches`` and by its translations, also of ``others``."""
    objective.eval()
    loss = validation_loss(objective, batches, precision)
    all_sources = list(sources)
    for other in others.values():
        all_sources += other["src"]
    translations = translate(all_sources)
    hypotheses, end = translations[: len(sources)], len(sources)
    scores = {}
    for name, other in others.items():
        start, end = end, end + len(other)
        scores[name] = score_translations(translations[start:end], list(other["tgt"]), form)
    return ValidationResult(loss, score_translations(hypotheses, references, form), hypotheses, scores)


@torch.inference_mode()
def validation_loss(objective: Objective, batches: Iterable[Batch], precision: Precision) -> float:
    """Cross-entropy without smoothing, in nats per real target token; NaN if there is none."""
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
