"""Is one system better than another, or is it chance? Paired bootstrap resampling (Koehn 2004)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sacrebleu.significance import PairedTest

from mt.errors import DataError
from mt.metrics.scores import (
    MAX_RESAMPLED_LINES,
    NUM_RESAMPLES,
    Score,
    metrics_of_evaluation,
    refuse_unequal,
)


@dataclass(frozen=True)
class Difference:
    """What two systems score by one metric."""

    first: Score
    second: Score
    p_value: float
    """How probable so large a difference would be if the two were equally good."""

    @property
    def gain(self) -> float:
        """Points that the second scores more than the first."""
        return self.second.value - self.first.value


def paired_bootstrap(
    first: Sequence[str], second: Sequence[str], references: Sequence[str]
) -> dict[str, Difference]:
    """Compare two systems by BLEU, chrF2++ and TER, on the same resampled sentences.

    Returns:
        ``{"bleu": ..., "chrfpp": ..., "ter": ...}``.

    Raises:
        DataError: If there is not one translation by each system for each reference, or there are so many
            that resampling them does not fit into memory.
    """
    for hypotheses in (first, second):
        refuse_unequal(hypotheses, references)
    if len(references) > MAX_RESAMPLED_LINES:
        raise DataError(
            f"{len(references):,} sentences are too many for the paired bootstrap, which would take "
            f"gigabytes for them: compare at most {MAX_RESAMPLED_LINES:,}."
        )
    metrics = metrics_of_evaluation()
    test = PairedTest(
        [("first", list(first)), ("second", list(second))],
        metrics,
        [list(references)],
        test_type="bs",
        n_samples=NUM_RESAMPLES,
    )
    signatures, scores = test()
    results: Mapping[str, Any] = scores
    found = {}
    # sacreBLEU keeps our order and puts its own names in place of our keys.
    for key, (name, signature) in zip(metrics, signatures.items(), strict=True):
        of_first, of_second = results[name]
        difference = Difference(
            _score(name, str(signature), of_first),
            _score(name, str(signature), of_second),
            float(of_second.p_value),
        )
        # For two equal systems sacreBLEU says p = 0.001, as no resample differs by more than nothing.
        found[key] = difference if difference.gain else replace(difference, p_value=1.0)
    return found


def _score(name: str, signature: str, result: Any) -> Score:
    middle, half = float(result.mean), float(result.ci)
    return Score(name, float(result.score), signature, (middle - half, middle + half))
