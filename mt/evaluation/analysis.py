"""Which words a system translates correctly: by training frequency, by sentence length, copied, unknown.

A word is a token of BLEU (sacreBLEU's 13a tokens, cased). Punctuation marks are words too, even where
sentences are grouped by length; only `SourceWords` is limited to words with a letter or digit.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, repeat

from sacrebleu.metrics.chrf import CHRF
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from mt.config.config import Config
from mt.data.corpus import load_corpus
from mt.data.text_form import TextForm
from mt.data.unsegmented_scripts import split_letters
from mt.display import track
from mt.errors import DataError
from mt.evaluation.scores import metrics_of_evaluation, score_by
from mt.evaluation.test_set import EvaluationSet, warn_of_leaks, was_trained_with_another
from mt.run_directory import RunDirectory

LOG = logging.getLogger(__name__)

# The smallest number of each group, and its label.
_LENGTHS = {0: "0-9", 10: "10-19", 20: "20-29", 30: "30-39", 40: "40-59", 60: "60+"}
_FREQUENCIES = {0: "0", 1: "1", 2: "2-4", 5: "5-9", 10: "10-99", 100: "100-999", 1000: "1000+"}

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
class FrequencyGroup:
    """F1 of the target words with a training frequency in one range."""

    training_frequency: str
    num_reference_words: int
    num_output_words: int
    f1: float
    """Harmonic mean of precision and recall in percent; a word matches as often as both sides have it."""


@dataclass(frozen=True)
class SourceWords:
    """How many source words (tokens, not types) are copied or unknown."""

    num_words: int
    num_copied: int
    """Words that occur unchanged in the translation of their sentence."""
    num_copied_by_reference: int
    num_unknown: int | None
    """Words that never occur in the training sources; None if the training corpus could not be read."""
    num_unknown_copied: int | None


@dataclass(frozen=True)
class Analysis:
    """Which words and sentences a system translates well."""

    length_ratio: float
    """Words of the translations divided by words of the references."""
    source_words: SourceWords
    by_source_length: list[LengthGroup]
    by_training_frequency: list[FrequencyGroup] | None
    """None if the training corpus cannot be read."""


def analyse_translations(
    run: RunDirectory, config: Config, test_set: EvaluationSet, hypotheses: list[str]
) -> Analysis:
    """Analyse translations of a test set; the training corpus is read, and compared with the test set."""
    texts = test_set.sources, hypotheses, test_set.references
    form = TextForm.of(config.cleaning)
    # Words are looked up in training text that was normalised before it was split into words.
    src, output, expected = (form.rewrite(lines) for lines in texts)
    of_sources = of_targets = None
    try:
        corpus = load_corpus(config.data, config.cleaning)
    except DataError as error:
        LOG.warning("unknown words and word frequencies need the training corpus and are left out: %s", error)
    else:
        if was_trained_with_another(run, "train", corpus.report.splits.train.fingerprint):
            LOG.warning(
                "%s was trained with another training text than this one, in which unknown words and word "
                "frequencies are counted",
                run.path,
            )
        warn_of_leaks(test_set, corpus.train, form)
        of_sources = count_words(corpus.train["src"], src)
        of_targets = count_words(corpus.train["tgt"], output + expected)
    return Analysis(
        length_ratio(*texts[1:]),
        count_source_words(src, output, expected, of_sources),
        by_source_length(*texts),
        None if of_targets is None else by_training_frequency(output, expected, of_targets),
    )


def words(line: str) -> list[str]:
    """Split a line into the words that BLEU counts; in an unsegmented script each letter is a word."""
    return _TOKENIZE(split_letters(line)).split()


def count_words(lines: Iterable[str], vocabulary: Iterable[str]) -> Counter[str]:
    """How often each word of ``vocabulary``, also lines of text, occurs in ``lines``."""
    counts = Counter({word: 0 for line in vocabulary for word in words(line)})
    for line in track(lines, "counting words", unit="lines"):
        for word in words(line):
            if word in counts:
                counts[word] += 1
    return counts


def length_ratio(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Words of the translations divided by words of the references; BLEU penalises less than 1."""
    output, expected = (sum(len(words(line)) for line in lines) for lines in (hypotheses, references))
    return output / max(1, expected)


def by_source_length(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
) -> list[LengthGroup]:
    """Separate scores of short and long sentences; groups without a sentence are left out."""
    groups: dict[int, list[tuple[str, str]]] = {}
    for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True):
        groups.setdefault(_group_of(len(words(source)), _LENGTHS), []).append((hypothesis, reference))
    metrics = metrics_of_evaluation(references)
    length_groups = []
    for group, pairs in sorted(groups.items()):
        texts = [text for text, _ in pairs], [reference for _, reference in pairs]
        bleu, chrfpp = (score_by(metrics[key], *texts).value for key in ("bleu", "chrfpp"))
        length_groups.append(LengthGroup(_LENGTHS[group], len(pairs), bleu, chrfpp, length_ratio(*texts)))
    return length_groups


def by_training_frequency(
    hypotheses: Sequence[str], references: Sequence[str], frequencies: Mapping[str, int]
) -> list[FrequencyGroup]:
    """F1 of the target words by their frequency in the training targets (as in compare-mt, Neubig 2019)."""
    in_reference, in_output, in_both = Counter[int](), Counter[int](), Counter[int]()
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        output, expected = Counter(words(hypothesis)), Counter(words(reference))
        for totals, counts in ((in_output, output), (in_reference, expected), (in_both, output & expected)):
            for word, number in counts.items():
                totals[_group_of(frequencies.get(word, 0), _FREQUENCIES)] += number
    return [
        FrequencyGroup(
            _FREQUENCIES[group],
            in_reference[group],
            in_output[group],
            200 * in_both[group] / (in_reference[group] + in_output[group]),
        )
        for group in sorted(in_reference | in_output)
    ]


def count_source_words(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    frequencies: Mapping[str, int] | None,
) -> SourceWords:
    """Count the source words, those that were copied, and those with no frequency in the training sources."""
    num = Counter[str]()
    for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True):
        output, expected = set(words(hypothesis)), set(words(reference))
        for word in words(source):
            if not any(map(str.isalnum, word)):
                continue
            is_unknown = frequencies is not None and not frequencies.get(word, 0)
            num["words"] += 1
            num["copied"] += word in output
            num["copied by reference"] += word in expected
            num["unknown"] += is_unknown
            num["unknown copied"] += is_unknown and word in output
    unknown = (num["unknown"], num["unknown copied"]) if frequencies is not None else (None, None)
    return SourceWords(num["words"], num["copied"], num["copied by reference"], *unknown)


def _group_of(number: int, groups: Iterable[int]) -> int:
    return max(smallest for smallest in groups if smallest <= number)


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
    """A sentence with the translations of two systems and their scores."""

    number: int
    """Its position in the test set, counted from 1."""
    source: str | None
    translations: tuple[str, str]
    reference: str
    chrfpp: tuple[float, float]


def worst_sentences(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], num: int
) -> list[ScoredSentence]:
    """The ``num`` sentences with the lowest chrF2++, the worst first; ties keep their order."""
    scores = sentence_scores(hypotheses, references)
    sentences = map(ScoredSentence, count(1), sources, hypotheses, references, scores)
    return sorted(sentences, key=lambda sentence: sentence.chrfpp)[:num]


def most_different_sentences(
    sources: Sequence[str] | None,
    hypotheses: tuple[Sequence[str], Sequence[str]],
    references: Sequence[str],
    num: int,
) -> list[SentenceOfTwo]:
    """At most ``num`` sentences whose chrF2++ differs most between two systems, and differs at all."""
    pairs = zip(*hypotheses, strict=True)
    scores = zip(*(sentence_scores(system, references) for system in hypotheses), strict=True)
    sentences = map(SentenceOfTwo, count(1), sources or repeat(None), pairs, references, scores)
    different = [sentence for sentence in sentences if sentence.chrfpp[0] != sentence.chrfpp[1]]
    return sorted(different, key=lambda sentence: -abs(sentence.chrfpp[0] - sentence.chrfpp[1]))[:num]


def sentence_scores(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF2++ of each sentence, which unlike BLEU is meaningful for short sentences."""
    metric = CHRF(word_order=2)
    pairs = zip(hypotheses, references, strict=True)
    return [metric.sentence_score(hypothesis, [reference]).score for hypothesis, reference in pairs]
