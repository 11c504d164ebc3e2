"""Which words a system gets right: by their frequency in training, by sentence length, copied, unknown.

A word is what BLEU takes for one (sacreBLEU's 13a tokens, case kept); punctuation marks are words too, but
for the statistics of the source, which count only those with a letter or digit.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from mt.display import track
from mt.metrics.scores import metrics_of_evaluation, score_by
from mt.metrics.scripts_without_blanks import split_letters

# The first number of each group but the lowest, which begins at 0.
LENGTH_EDGES = (10, 20, 30, 40, 60)
FREQUENCY_EDGES = (1, 2, 5, 10, 100, 1000)

_TOKENIZE: Callable[[str], str] = Tokenizer13a()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class LengthGroup:
    """The scores of the sentences whose sources have so many words."""

    source_words: str
    num_sentences: int
    bleu: float
    chrfpp: float
    length_ratio: float
    """Words of the translations by words of the references."""


@dataclass(frozen=True)
class FrequencyGroup:
    """How well the target words are found that stand so often in the training text."""

    training_frequency: str
    num_reference_words: int
    num_output_words: int
    f1: float
    """Harmonic mean of precision and recall in percent; a word is found as often as both sides have it."""


@dataclass(frozen=True)
class SourceWords:
    """What becomes of the words of the source; counts are of running words."""

    num_words: int
    num_copied: int
    """Those that stand in the translation of their sentence as they are."""
    num_copied_by_reference: int
    """Those that stand in its reference as they are."""
    num_unknown: int | None
    """Those that never stand in the training sources; None where these could not be read."""
    num_unknown_copied: int | None


def words(line: str) -> list[str]:
    """The words of a line, as BLEU counts them; of a script without blanks the letters."""
    return _TOKENIZE(split_letters(line)).split()


def count_words(lines: Iterable[str], wanted: Iterable[str]) -> Counter[str]:
    """How often each word that stands in the lines ``wanted`` stands in ``lines``; shows progress."""
    counts = dict.fromkeys((word for line in wanted for word in words(line)), 0)
    for line in track(lines, "counting words", unit="lines"):
        for word in words(line):
            if word in counts:
                counts[word] += 1
    return Counter(counts)


def length_ratio(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Words of the translations by words of the references; BLEU punishes less than 1."""
    return _num_words(hypotheses) / max(1, _num_words(references))


def by_source_length(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
) -> list[LengthGroup]:
    """Scores apart for short and long sentences; groups without a sentence are left out."""
    groups: dict[int, list[tuple[str, str]]] = {}
    for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True):
        group = _group_of(len(words(source)), LENGTH_EDGES)
        groups.setdefault(group, []).append((hypothesis, reference))
    metrics = metrics_of_evaluation(references)
    found = []
    for group, pairs in sorted(groups.items()):
        outputs, wanted = [hypothesis for hypothesis, _ in pairs], [reference for _, reference in pairs]
        bleu, chrfpp = (score_by(metrics[key], outputs, wanted).value for key in ("bleu", "chrfpp"))
        label = _label(group, LENGTH_EDGES)
        found.append(LengthGroup(label, len(pairs), bleu, chrfpp, length_ratio(outputs, wanted)))
    return found


def by_training_frequency(
    hypotheses: Sequence[str], references: Sequence[str], frequencies: Mapping[str, int]
) -> list[FrequencyGroup]:
    """F1 of the target words, in groups by how often they stand in training (as compare-mt, Neubig 2019).

    Args:
        hypotheses: The translations.
        references: What they should be.
        frequencies: How often each word of these stands in the training targets; 0 where it is missing.
    """
    in_reference, in_output, in_both = Counter[int](), Counter[int](), Counter[int]()
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        output, wanted = Counter(words(hypothesis)), Counter(words(reference))
        for totals, counts in ((in_output, output), (in_reference, wanted), (in_both, output & wanted)):
            for word, count in counts.items():
                totals[_group_of(frequencies.get(word, 0), FREQUENCY_EDGES)] += count
    return [
        FrequencyGroup(
            _label(group, FREQUENCY_EDGES),
            in_reference[group],
            in_output[group],
            200 * in_both[group] / (in_reference[group] + in_output[group]),
        )
        for group in sorted(in_reference | in_output)
    ]


def look_at_source_words(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    frequencies: Mapping[str, int] | None,
) -> SourceWords:
    """Count the source words that were copied, and those that training never saw.

    Args:
        sources: What was translated.
        hypotheses: The translations.
        references: What they should be.
        frequencies: How often each source word stands in the training sources, where that is known.
    """
    num = Counter[str]()
    for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True):
        output, wanted = set(words(hypothesis)), set(words(reference))
        for word in words(source):
            if not any(map(str.isalnum, word)):
                continue
            is_unknown = frequencies is not None and not frequencies.get(word, 0)
            num["words"] += 1
            num["copied"] += word in output
            num["copied by reference"] += word in wanted
            num["unknown"] += is_unknown
            num["unknown copied"] += is_unknown and word in output
    unknown = (num["unknown"], num["unknown copied"]) if frequencies is not None else (None, None)
    return SourceWords(num["words"], num["copied"], num["copied by reference"], *unknown)


def _num_words(lines: Sequence[str]) -> int:
    return sum(len(words(line)) for line in lines)


def _group_of(number: int, edges: Sequence[int]) -> int:
    return sum(number >= edge for edge in edges)


def _label(group: int, edges: Sequence[int]) -> str:
    """``0``, ``2-4``, ``60+``: the numbers of a group."""
    first = edges[group - 1] if group else 0
    if group == len(edges):
        return f"{first}+"
    last = edges[group] - 1
    return str(first) if first == last else f"{first}-{last}"
