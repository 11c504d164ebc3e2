"""Scores of short and long sentences, and of single ones.

A word is a token of BLEU (sacreBLEU's 13a tokens, cased), so punctuation marks are words too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from sacrebleu.metrics.chrf import CHRF
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from mt.data.unsegmented_scripts import split_letters
from mt.evaluation.scores import Texts, metrics_of_evaluation, score_by

# The smallest number of words of each group, and its label.
_LENGTHS = {0: "0-9", 10: "10-19", 20: "20-29", 30: "30-39", 40: "40-59", 60: "60+"}

_TOKENIZE: Callable[[str], str] = Tokenizer13a()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class LengthGroup:
    """The scores of the sentences with a number of source words in one range."""

    source_words: str
    num_sentences: int
    bleu: float
    chrfpp: float
    length_ratio: float
    """Words of the translations divided by words of the references."""


@dataclass(frozen=True)
class Analysis:
    """How long the translations are, and how well short and long sentences are translated."""

    length_ratio: float
    by_source_length: list[LengthGroup]
    """Groups without a sentence are left out."""


def words(line: str) -> list[str]:
    """Split a line into the words that BLEU counts; in an unsegmented script each letter is a word."""
    return _TOKENIZE(split_letters(line)).split()


def length_ratio(hypotheses: Texts, references: Texts) -> float:
    """Words of the translations divided by words of the references; BLEU penalises less than 1."""
    num_words = sum(len(words(line)) for line in hypotheses)
    return num_words / max(1, sum(len(words(line)) for line in references))


def analyse_lengths(sources: Texts, hypotheses: Texts, references: Texts) -> Analysis:
    """Compare the lengths of translations and references, and score by the length of the sources."""
    groups: dict[int, list[tuple[str, str]]] = {}
    for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True):
        num_words = len(words(source))
        group = max(smallest for smallest in _LENGTHS if smallest <= num_words)
        groups.setdefault(group, []).append((hypothesis, reference))
    metrics = metrics_of_evaluation(references)
    length_groups = []
    for group, pairs in sorted(groups.items()):
        texts = [*zip(*pairs, strict=True)]
        bleu, chrfpp = (score_by(metrics[key], *texts).value for key in ("bleu", "chrfpp"))
        length_groups.append(LengthGroup(_LENGTHS[group], len(pairs), bleu, chrfpp, length_ratio(*texts)))
    return Analysis(length_ratio(hypotheses, references), length_groups)


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
class ComparedSentence:
    """A sentence with the translations of several systems and their scores."""

    number: int
    source: str
    translations: tuple[str, ...]
    reference: str
    chrfpp: tuple[float, ...]


def worst_sentences(sources: Texts, hypotheses: Texts, references: Texts, num: int) -> list[ScoredSentence]:
    """The ``num`` sentences with the lowest chrF2++, the worst first; ties keep their order."""
    scores = sentence_scores(hypotheses, references)
    sentences = map(ScoredSentence, count(1), sources, hypotheses, references, scores)
    return sorted(sentences, key=lambda sentence: sentence.chrfpp)[:num]


def most_different_sentences(
    sources: Texts, systems: Sequence[Texts], references: Texts, num: int
) -> list[ComparedSentence]:
    """At most ``num`` sentences whose chrF2++ differs most between systems, and differs at all."""
    translations = zip(*systems, strict=True)
    scores = zip(*(sentence_scores(system, references) for system in systems), strict=True)
    sentences = map(ComparedSentence, count(1), sources, translations, references, scores)
    differing = [sentence for sentence in sentences if max(sentence.chrfpp) > min(sentence.chrfpp)]
    differing.sort(key=lambda sentence: min(sentence.chrfpp) - max(sentence.chrfpp))
    return differing[:num]


def sentence_scores(hypotheses: Texts, references: Texts) -> list[float]:
    """chrF2++ of each sentence, which unlike BLEU is meaningful for short sentences."""
    metric = CHRF(word_order=2)
    pairs = zip(hypotheses, references, strict=True)
    return [metric.sentence_score(hypothesis, [reference]).score for hypothesis, reference in pairs]
