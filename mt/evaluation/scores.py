"""sacreBLEU scores, each with the signature that says how it was computed, and exact matches."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from mt.errors import DataError
from mt.unsegmented_scripts import bleu_tokenizer


@dataclass(frozen=True)
class Score:
    """A score in points; BLEU and chrF are better when higher, TER when lower."""

    name: str
    value: float
    signature: str
    interval: tuple[float, float] | None = None
    """The 95 % confidence interval (bootstrap resampling; Koehn 2004)."""

    def __str__(self) -> str:
        interval = "" if self.interval is None else "  [{:.2f}, {:.2f}]".format(*self.interval)
        return f"{self.name} {self.value:.2f}{interval}  ({self.signature})"


def metrics_of_evaluation(references: Sequence[str]) -> dict[str, Metric]:
    """BLEU (Papineni et al. 2002), chrF2++ (Popović 2017) and TER (Snover et al. 2006), by key.

    BLEU and TER split words as the script of the references requires; their signatures say how.
    """
    tokenizer = bleu_tokenizer(references)
    has_spaces = tokenizer == "13a"
    return {
        "bleu": BLEU(tokenize=tokenizer),
        "chrfpp": CHRF(word_order=2),
        "ter": TER() if has_spaces else TER(normalized=True, asian_support=True),
    }


def score_translations(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
    """BLEU (Papineni et al. 2002) and chrF2 (Popović 2015) of whole texts, for validation.

    Returns:
        ``{"bleu": ..., "chrf": ...}``.

    Raises:
        DataError: If there is not one translation for each reference.
    """
    refuse_unequal(hypotheses, references)
    metrics = {"bleu": BLEU(tokenize=bleu_tokenizer(references)), "chrf": CHRF()}
    return {key: score_by(metric, hypotheses, references) for key, metric in metrics.items()}


def score_by(metric: Metric, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """The score of whole texts by one metric."""
    result = metric.corpus_score(list(hypotheses), [list(references)])
    return Score(result.name, result.score, str(metric.get_signature()))


def refuse_unequal(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Check that there are as many translations as references, and at least one.

    Raises:
        DataError: If not; sacreBLEU would silently score the shorter part.
    """
    if len(hypotheses) != len(references):
        raise DataError(
            f"{len(hypotheses)} translations cannot be scored against {len(references)} references: "
            "give one translation for each reference."
        )
    if not references:
        raise DataError("there is nothing to score: the references are empty.")


def refuse_empty(references: Sequence[str], where: str) -> None:
    """Check that every reference has text.

    Raises:
        DataError: If one has none; sacreBLEU would silently score against nothing.
    """
    empty = [number for number, text in enumerate(references, start=1) if not text.strip()]
    if empty:
        more = f", and {len(empty) - 1} more" if len(empty) > 1 else ""
        raise DataError(
            f"{where}, sentence {empty[0]}{more}: the reference is empty, and nothing can be scored against "
            "that. Give it a translation, or take the pair out."
        )


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The percentage of translations that equal their reference."""
    pairs = list(zip(hypotheses, references, strict=True))
    return 100.0 * sum(hypothesis == reference for hypothesis, reference in pairs) / len(pairs)
