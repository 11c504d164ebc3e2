"""sacreBLEU scores with their signatures, confidence intervals and significance; exact matches.

Confidence intervals come from bootstrap resampling. A test set is one sample of possible sentences. Test sets
drawn from it with replacement show how much a score depends on the sample (Koehn 2004). sacreBLEU draws them,
with the seed SACREBLEU_SEED, or 12345 by default.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from mt.data.text_form import TextForm
from mt.data.tokenizers.tokenizer import normalise_spacing
from mt.errors import DataError
from mt.evaluation.record import Score
from mt.inference.bleu import bleu_tokenizer

Texts = Sequence[str]
"""Translations or references, one for each sentence of a test set."""
NUM_RESAMPLES = 1000
# sacreBLEU keeps the statistics of all resamples in memory: for this many lines chrF2++ takes 1 GB.
MAX_RESAMPLED_LINES = 10_000
_AS_WRITTEN = TextForm()
# Below this p a difference is commonly called significant.
SIGNIFICANT = 0.05


def on_one_line(text: str) -> str:
    """The text with spaces for its line breaks, also for those of old Macs and of Unicode."""
    return " ".join(text.splitlines())


def in_form(form: TextForm, texts: Texts) -> list[str]:
    """The texts as both sides of every score are: in the form of the run's training text."""
    # Until nothing changes: of "&amp;quot;" a model learns "&quot;", which is rewritten once more.
    while (rewritten := form.rewrite(texts)) != list(texts):
        texts = rewritten
    return rewritten


def metrics_of_evaluation(references: Texts) -> dict[str, Metric]:
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


SCORE_NAMES = {"bleu": "BLEU", "chrf": "chrF2"}
"""The names of the scores of :func:`score_translations`, by key."""


def score_translations(
    hypotheses: Texts, references: Texts, form: TextForm = _AS_WRITTEN
) -> dict[str, Score]:
    """BLEU (Papineni et al. 2002) and chrF2 (Popović 2015) of whole texts in this form, for validation."""
    hypotheses, references = in_form(form, hypotheses), in_form(form, references)
    bleu = BLEU(tokenize=bleu_tokenizer(references))
    return {
        "bleu": score_by(bleu, hypotheses, references),
        "chrf": score_by(CHRF(), hypotheses, references),
    }


def score_by(metric: Metric, hypotheses: Texts, references: Texts) -> Score:
    """The score of whole texts by one metric."""
    check_lengths(hypotheses, references)
    result = metric.corpus_score(list(hypotheses), [list(references)])
    return Score(result.name, result.score, str(metric.get_signature()))


def check_lengths(hypotheses: Texts, references: Texts) -> None:
    """Raise `DataError` unless there are as many translations as references, and at least one."""
    if len(hypotheses) != len(references) or not references:
        raise DataError(
            f"{len(hypotheses)} translations cannot be scored against {len(references)} references: "
            "give one translation for each reference, and at least one."
        )


def exact_match(hypotheses: Texts, references: Texts) -> float:
    """The percentage of translations that equal their reference, ignoring differences in spacing."""
    num_equal = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        num_equal += normalise_spacing(hypothesis) == normalise_spacing(reference)
    return 100.0 * num_equal / len(references)


@dataclass(frozen=True)
class Compared:
    """The score of a system, and how it differs from that of the first one."""

    score: Score
    gain: float
    """By how many points it is above the first."""
    p_value: float
    """The probability of a difference this large if the two were equally good; 1 for the first itself."""


def score_with_confidence(
    hypotheses: Texts, references: Texts, metrics: Mapping[str, Metric] | None = None
) -> dict[str, Score]:
    """The scores of whole texts, with confidence intervals for up to `MAX_RESAMPLED_LINES` lines.

    The metrics are those of `metrics_of_evaluation` by default.
    """
    metrics = metrics or metrics_of_evaluation(references)
    if len(references) > MAX_RESAMPLED_LINES:
        return {key: score_by(metric, hypotheses, references) for key, metric in metrics.items()}
    compared = paired_bootstrap([hypotheses], references, metrics)
    return {key: single.score for key, [single] in compared.items()}


def paired_bootstrap(
    systems: Sequence[Texts], references: Texts, metrics: Mapping[str, Metric] | None = None
) -> dict[str, list[Compared]]:
    """Compare systems with the first one on the same resampled sentences, by the same metrics."""
    for hypotheses in systems:
        check_lengths(hypotheses, references)
    metrics = metrics or metrics_of_evaluation(references)
    named: list[tuple[str, Texts]] = [(str(index), list(texts)) for index, texts in enumerate(systems)]
    # Also for a single system: sacreBLEU's own code for that case fails if a resample scores 0.
    signatures, results = PairedTest(named, metrics, [list(references)], "bs", NUM_RESAMPLES)()
    compared: dict[str, list[Compared]] = {}
    for key, (name, signature) in zip(metrics, signatures.items(), strict=True):
        compared[key] = []
        results_of_systems: Sequence[Any] = results[name]
        for result in results_of_systems:
            interval = float(result.mean - result.ci), float(result.mean + result.ci)
            score = Score(name, float(result.score), str(signature), interval)
            gain = score.value - float(results_of_systems[0].score)
            # For two equal systems sacreBLEU gives p = 0.001, because no resample differs by more than 0.
            compared[key].append(Compared(score, gain, float(result.p_value) if gain else 1.0))
    return compared
