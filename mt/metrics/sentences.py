"""Single sentences: those that are translated worst, and those in which two systems differ most."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.chrf import CHRF


@dataclass(frozen=True)
class ScoredSentence:
    """A sentence, its translation, and their score."""

    number: int
    """Its position in the test set, counted from 1."""
    source: str
    translation: str
    reference: str
    chrfpp: float


@dataclass(frozen=True)
class SentenceOfTwo:
    """A sentence with the translations of two systems, and their scores."""

    number: int
    """Its position in the test set, counted from 1."""
    source: str | None
    translations: tuple[str, str]
    reference: str
    chrfpp: tuple[float, float]


def worst_sentences(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], num: int
) -> list[ScoredSentence]:
    """The ``num`` sentences with the lowest chrF2++, the worst first; of equals the earlier first."""
    scores = sentence_scores(hypotheses, references)
    order = sorted(range(len(scores)), key=scores.__getitem__)[:num]
    return [ScoredSentence(i + 1, sources[i], hypotheses[i], references[i], scores[i]) for i in order]


def most_different_sentences(
    sources: Sequence[str] | None,
    hypotheses: tuple[Sequence[str], Sequence[str]],
    references: Sequence[str],
    num: int,
) -> list[SentenceOfTwo]:
    """At most ``num`` sentences whose chrF2++ differs most between two systems, and differs at all."""
    first, second = (sentence_scores(each, references) for each in hypotheses)
    order = sorted(range(len(references)), key=lambda i: -abs(first[i] - second[i]))[:num]
    return [
        SentenceOfTwo(
            i + 1,
            None if sources is None else sources[i],
            (hypotheses[0][i], hypotheses[1][i]),
            references[i],
            (first[i], second[i]),
        )
        for i in order
        if first[i] != second[i]
    ]


def sentence_scores(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF2++ of each sentence, which unlike BLEU is meaningful for a short one."""
    metric = CHRF(word_order=2)
    pairs = zip(hypotheses, references, strict=True)
    return [metric.sentence_score(hypothesis, [reference]).score for hypothesis, reference in pairs]
