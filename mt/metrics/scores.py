"""sacreBLEU's scores, each with the signature that says how it was computed, and exact matches."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from tqdm import tqdm

from mt.errors import DataError

NUM_RESAMPLES = 1000
# sacreBLEU holds the figures of all resamples at once: for so many lines of chrF2++ that is 1 GB.
MAX_RESAMPLED_LINES = 10_000


@dataclass(frozen=True)
class Score:
    """A score in points; of BLEU and chrF more is better, of TER less."""

    name: str
    value: float
    signature: str
    interval: tuple[float, float] | None = None
    """Where 95 % of the scores of resampled corpora lie (bootstrap; Koehn 2004)."""

    def __str__(self) -> str:
        interval = "" if self.interval is None else "  [{:.2f}, {:.2f}]".format(*self.interval)
        return f"{self.name} {self.value:.2f}{interval}  ({self.signature})"


def metrics_of_evaluation() -> dict[str, Metric]:
    """BLEU (Papineni et al. 2002), chrF2++ (Popović 2017) and TER (Snover et al. 2006), by our key."""
    return {"bleu": BLEU(), "chrfpp": CHRF(word_order=2), "ter": TER()}


def score_translations(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
    """BLEU (Papineni et al. 2002) and chrF2 (Popović 2015) of whole texts, as validation uses them.

    Returns:
        ``{"bleu": ..., "chrf": ...}``.

    Raises:
        DataError: If there is not one translation for each reference.
    """
    refuse_unequal(hypotheses, references)
    metrics = {"bleu": BLEU(), "chrf": CHRF()}
    return {key: score_by(metric, hypotheses, references) for key, metric in metrics.items()}


def score_with_confidence(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
    """BLEU, chrF2++ and TER of whole texts, each with its interval up to `MAX_RESAMPLED_LINES` lines.

    Returns:
        ``{"bleu": ..., "chrfpp": ..., "ter": ...}``.

    Raises:
        DataError: If there is not one translation for each reference.
    """
    refuse_unequal(hypotheses, references)
    scores = {}
    with tqdm(metrics_of_evaluation().items(), unit=" metrics", disable=None, leave=False) as bar:
        for key, metric in bar:
            bar.set_description(f"scoring {key}")
            scores[key] = score_by(metric, hypotheses, references, with_confidence=True)
    return scores


def score_by(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[str], *, with_confidence: bool = False
) -> Score:
    """The score of one metric; resampling is seeded by sacreBLEU (SACREBLEU_SEED, else 12345)."""
    resamples = NUM_RESAMPLES if with_confidence and len(references) <= MAX_RESAMPLED_LINES else 1
    result = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=resamples)
    # sacreBLEU's numbers are numpy's, of half the precision where they were resampled.
    middle, half = float(result._mean), float(result._ci)
    interval = (middle - half, middle + half) if resamples > 1 else None
    return Score(result.name, float(result.score), str(metric.get_signature()), interval)


def refuse_unequal(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Check that there is one translation for each reference.

    Raises:
        DataError: If not; sacreBLEU itself would silently score the shorter part.
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
        DataError: If one has none; sacreBLEU itself would silently score against nothing.
    """
    empty = [number for number, text in enumerate(references, start=1) if not text.strip()]
    if empty:
        more = f", and {len(empty) - 1} more" if len(empty) > 1 else ""
        raise DataError(
            f"{where}, sentence {empty[0]}{more}: the reference is empty, and nothing can be scored against "
            "that. Give it a translation, or take the pair out."
        )


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The share of translations that equal their reference, in percent."""
    pairs = list(zip(hypotheses, references, strict=True))
    return 100.0 * sum(hypothesis == reference for hypothesis, reference in pairs) / len(pairs)
