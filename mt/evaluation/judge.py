"""Finds out what a model does with text as people write it, in test sets that are made of the test split."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import contains, ne
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics.bleu import BLEU

from mt.data.as_written import in_capitals, in_title_case, joined, with_typos, without_final_punctuation
from mt.data.corpus import evenly_spaced
from mt.errors import DataError
from mt.evaluation.analysis import words, worst_sentences
from mt.evaluation.behaviours import Behaviour, Behaviours, Example
from mt.evaluation.evaluate import translate_lines
from mt.evaluation.record import Score
from mt.evaluation.scores import score_with_confidence
from mt.evaluation.test_set import EvaluationSet
from mt.inference.bleu import bleu_tokenizer
from mt.inference.translator import Translator
from mt.seeding import derived_seed
from mt.sides import Sides

MOST_LINES, LEAST_LINES, NUM_WORST = 1000, 30, 3
_NUM_PUT_IN = 100
CLEAN = "as it is"
_NEGATIONS = {
    "en": r"\b(?:not|no|never|without)\b|n't\b",
    "de": r"\b(?:nicht|nie|niemals|ohne|kein(?:e[mnrs]?)?)\b",
    "fr": r"\b(?:ne|pas|jamais|sans)\b|\bn'",
    "es": r"\b(?:no|nunca|jamás|sin)\b",
    "it": r"\b(?:non|mai|senza)\b",
    "pt": r"\b(?:não|nunca|jamais|sem)\b",
    "nl": r"\b(?:niet|nooit|geen|zonder)\b",
}
_PUT_IN: dict[str, Sequence[str]] = {
    "names": ("Okonkwo", "Wojciechowska", "Nakamura", "Lindqvist", "Abernathy", "Quispe", "Yildirim"),
    "numbers": ("{}",),
    "emoji": "😀😂👍🎉🔥🚀🌍🐈",
    "web addresses": ("https://www.example.com/{}",),
    "e-mail addresses": ("anna{}@example.org",),
}


class _Kind(NamedTuple):
    """Lines of one kind of text."""

    name: str
    sources: list[str]
    wished: list[str]
    """Their references, or what is compared with each translation."""
    is_good: Callable[[str, str], bool] | None = None
    """Whether a translation and what is wished go together; None for BLEU."""


def find_behaviours(translator: Translator, test_set: EvaluationSet) -> Behaviours:
    """Translate text as people write it, greedily, made of at most `MOST_LINES` of a test set."""
    rows = evenly_spaced(len(test_set.sources), MOST_LINES).tolist()
    if len(rows) < LEAST_LINES:
        raise DataError(f"{test_set.where} has {len(rows)} lines, and behaviours need {LEAST_LINES} or more.")
    lines = Sides([test_set.sources[row] for row in rows], [test_set.references[row] for row in rows])
    direction = test_set.direction
    language = re.split("[-_]", direction.src.lower())[0]
    left_out = {}
    if language not in _NEGATIONS:
        left_out["a negation removed"] = f"there is no list of negations for {direction.src}"
    generator = np.random.default_rng(derived_seed("behaviours"))
    metrics = {"bleu": BLEU(tokenize=bleu_tokenizer(lines.tgt))}
    clean = translate_lines(translator, test_set, lines.src)
    best = score_with_confidence(clean, lines.tgt, metrics)["bleu"]
    behaviours = [_by_score(_Kind(CLEAN, *lines), clean, best, best)]
    for kind in (*_scored(lines, direction, generator), *_checked(lines.src, clean, language, generator)):
        if len(kind.sources) < LEAST_LINES:
            left_out[kind.name] = f"only {len(kind.sources)} lines"
        elif kind.sources == lines.src:
            left_out[kind.name] = "it changes none of these lines"
        else:
            translations = translate_lines(translator, test_set, kind.sources)
            if kind.is_good:
                behaviours.append(_by_share(kind, translations, kind.is_good))
                continue
            score = score_with_confidence(translations, kind.wished, metrics)["bleu"]
            behaviours.append(_by_score(kind, translations, score, best))
    worst = sorted(behaviours, key=lambda each: -each.drop)[:NUM_WORST]
    for behaviour in behaviours:
        if behaviour not in worst or behaviour.drop <= 0:
            behaviour.examples.clear()
    engine_and_precision = f"{translator.engine.name}, {translator.engine.precision}"
    return Behaviours(
        test_set.where,
        " to ".join(direction),
        translator.facts.checkpoint,
        engine_and_precision,
        best.signature,
        behaviours,
        left_out,
    )


def _scored(
    lines: Sides[list[str]], direction: Sides[str], generator: np.random.Generator
) -> Iterator[_Kind]:
    """The kinds of text that have references."""
    src, tgt = lines
    for name, change in (("capitals", in_capitals), ("title case", in_title_case)):
        sources = [change(line, direction.src) for line in src]
        yield _Kind(name, sources, [change(line, direction.tgt) for line in tgt])
    sources = [*map(without_final_punctuation, src)]
    yield _Kind("no final punctuation", sources, [*map(without_final_punctuation, tgt)])
    yield _Kind("typing errors", [with_typos(line, generator) for line in src], tgt)
    starts = range(0, len(src) - 1, 2)
    sources = [joined(src[start : start + 2]) for start in starts]
    yield _Kind("two lines joined", sources, [joined(tgt[start : start + 2]) for start in starts])
    longest = sorted(range(len(src)), key=lambda row: -len(words(src[row])))[: len(src) // 10]
    yield _Kind("longest tenth", [src[row] for row in longest], [tgt[row] for row in longest])


def _checked(
    src: list[str], clean: list[str], language: str, generator: np.random.Generator
) -> Iterator[_Kind]:
    """The kinds of text whose translations are as wished, or not."""
    for name, choices in _PUT_IN.items():
        lines, given = [], []
        for line in src[:_NUM_PUT_IN]:
            item = generator.choice([*choices]).format(generator.integers(100, 100_000))
            parts = line.split(" ")
            parts.insert(int(generator.integers(1, max(2, len(parts)))), item)
            lines.append(" ".join(parts))
            given.append(item)
        yield _Kind(name, lines, given, contains)
    last_words = [re.findall(r"[^\W\d_]{4,}", line)[-1:] for line in src]
    alone = [*dict.fromkeys(chain(*last_words))][:_NUM_PUT_IN]
    few = ["at most three words"] * len(alone)
    yield _Kind("one word alone", alone, few, lambda written, _: 0 < len(words(written)) <= 3)
    if language in _NEGATIONS:
        negation = re.compile(_NEGATIONS[language], re.IGNORECASE)
        without, before = [], []
        for line, translation in zip(src, clean, strict=True):
            if negation.search(line):
                without.append(" ".join(negation.sub("", line).split()))
                before.append(translation)
        yield _Kind("a negation removed", without, before, ne)


def _by_score(kind: _Kind, translations: list[str], score: Score, clean: Score) -> Behaviour:
    interval = score.interval or (score.value, score.value)
    drop = clean.value - score.value
    examples = []
    for worst in worst_sentences(kind.sources, translations, kind.wished, NUM_WORST):
        examples.append(Example(worst.source, worst.translation, worst.reference))
    return Behaviour(kind.name, len(kind.sources), "BLEU", score.value, interval, drop, examples)


def _by_share(kind: _Kind, translations: list[str], is_good: Callable[[str, str], bool]) -> Behaviour:
    bad = []
    for source, written, wished in zip(kind.sources, translations, kind.wished, strict=True):
        if not is_good(written, wished):
            bad.append(Example(source, written, wished))
    number = len(kind.sources)
    value = 100 * (1 - len(bad) / number)
    interval = _wilson(number - len(bad), number)
    return Behaviour(kind.name, number, "%", value, interval, 100 - value, bad[:NUM_WORST])


def _wilson(good: int, number: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927), in percent."""
    z = 1.96
    centre = (good + z * z / 2) / (number + z * z)
    half = z / (number + z * z) * math.sqrt(good * (number - good) / number + z * z / 4)
    return 100 * (centre - half), 100 * (centre + half)
