"""How translations are judged: sacreBLEU's scores, each with the signature that says how it was computed."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from mt.errors import DataError


@dataclass(frozen=True)
class Score:
    """A score from 0 to 100, higher is better."""

    name: str
    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f}  ({self.signature})"


def score_translations(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
    """BLEU (Papineni et al. 2002) and chrF (Popović 2015) of whole texts, detokenized, line by line.

    Returns:
        ``{"bleu": ..., "chrf": ...}``.

    Raises:
        DataError: If the numbers of lines differ; sacreBLEU itself would silently score the shorter part.
    """
    if len(hypotheses) != len(references):
        raise DataError(
            f"{len(hypotheses)} translations cannot be scored against {len(references)} references: "
            "give one translation for each reference."
        )
    if not references:
        raise DataError("there is nothing to score: the references are empty.")
    scores = {}
    for key, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        result = metric.corpus_score(list(hypotheses), [list(references)])
        scores[key] = Score(result.name, result.score, str(metric.get_signature()))
    return scores


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The share of translations that equal their reference, in percent."""
    pairs = list(zip(hypotheses, references, strict=True))
    return 100.0 * sum(hypothesis == reference for hypothesis, reference in pairs) / len(pairs)
