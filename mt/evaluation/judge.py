"""Finds out what a model does with text as people write it, in test sets that are made of the test split."""

import math
import re
from collections.abc import Callable, Iterator
from operator import contains, ne
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics.bleu import BLEU

from mt.data.as_written import in_capitals, in_title_case, joined, with_typos, without_final_punctuation
from mt.data.corpus import evenly_spaced
from mt.errors import DataError
from mt.evaluation.analysis import words, worst_sentences
from mt.evaluation.evaluate import translate_lines
from mt.evaluation.record import Behaviour, Behaviours, Example, Score
from mt.evaluation.scores import score_with_confidence
from mt.evaluation.test_set import EvaluationSet
from mt.inference.bleu import bleu_tokenizer
from mt.inference.translator import Translator
from mt.seeding import derived_seed
from mt.sides import Sides

MOST_LINES = 1000
LEAST_LINES = 30
NUM_WORST = 3
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
# What is put into lines, where {} is a number.
_PUT_IN = {
    "names": "Okonkwo Wojciechowska Nakamura Lindqvist Abernathy Quispe Szymborska Yildirim",
    "numbers": "{}",
    "emoji": "😀 😂 👍 🎉 🔥 🚀 🌍 🐈",
    "web addresses": "https://www.example.com/{}",
    "e-mail addresses": "anna{}@example.org",
}


class _Kind(NamedTuple):
    """Lines of one kind of text."""

    name: str
    pairs: list[tuple[str, str]]
    """Each line with its reference, or with what is compared with its translation."""
    is_good: Callable[[str, str], bool] | None = None
    """Whether a translation and what is wished go together; None for BLEU."""


def find_behaviours(translator: Translator, test_set: EvaluationSet) -> Behaviours:
    """Translate text as people write it, greedily, made of at most `MOST_LINES` of a test set."""
    rows = evenly_spaced(len(test_set.sources), MOST_LINES).tolist()
    if len(rows) < LEAST_LINES:
        raise DataError(f"{test_set.where} has {len(rows)} lines, and behaviours need {LEAST_LINES} or more.")
    pairs = [(test_set.sources[row], test_set.references[row]) for row in rows]
    src, tgt = (list(lines) for lines in zip(*pairs, strict=True))
    direction = test_set.direction
    language = re.split("[-_]", direction.src.lower())[0]
    left_out = {}
    if language not in _NEGATIONS:
        left_out["a negation removed"] = f"there is no list of negations for {direction.src}"
    generator = np.random.default_rng(derived_seed("behaviours"))
    metrics = {"bleu": BLEU(tokenize=bleu_tokenizer(tgt))}
    clean = translate_lines(translator, test_set, src)
    best = score_with_confidence(clean, tgt, metrics)["bleu"]
    behaviours = [_by_score(_Kind(CLEAN, pairs), clean, best, best)]
    for kind in (*_scored(pairs, direction, generator), *_checked(src, clean, language, generator)):
        sources = [source for source, _ in kind.pairs]
        if len(sources) < LEAST_LINES:
            left_out[kind.name] = f"only {len(sources)} lines"
        elif sources == src:
            left_out[kind.name] = "it changes none of these lines"
        else:
            translations = translate_lines(translator, test_set, sources)
            if kind.is_good:
                behaviours.append(_by_share(kind, translations))
                continue
            references = [reference for _, reference in kind.pairs]
            score = score_with_confidence(translations, references, metrics)["bleu"]
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
    pairs: list[tuple[str, str]], direction: Sides[str], generator: np.random.Generator
) -> Iterator[_Kind]:
    """The kinds of text that have references."""
    for name, change in (("capitals", in_capitals), ("title case", in_title_case)):
        yield _Kind(name, [(change(src, direction.src), change(tgt, direction.tgt)) for src, tgt in pairs])
    without = without_final_punctuation
    yield _Kind("no final punctuation", [(without(src), without(tgt)) for src, tgt in pairs])
    yield _Kind("typing errors", [(with_typos(src, generator), tgt) for src, tgt in pairs])
    two = []
    for both in zip(pairs[::2], pairs[1::2], strict=False):
        sources, references = zip(*both, strict=True)
        two.append((joined(sources), joined(references)))
    yield _Kind("two lines joined", two)
    by_length = sorted(pairs, key=lambda pair: -len(words(pair[0])))
    yield _Kind("longest tenth", by_length[: len(pairs) // 10])


def _checked(
    src: list[str], clean: list[str], language: str, generator: np.random.Generator
) -> Iterator[_Kind]:
    """The kinds of text whose translations are as wished, or not."""
    for name, choices in _PUT_IN.items():
        pairs = []
        for line in src[:_NUM_PUT_IN]:
            item = generator.choice(choices.split()).format(generator.integers(100, 100_000))
            parts = line.split(" ")
            parts.insert(int(generator.integers(1, max(2, len(parts)))), item)
            pairs.append((" ".join(parts), item))
        yield _Kind(name, pairs, contains)
    alone = {}
    for line in src:
        for word in re.findall(r"[^\W\d_]{4,}", line)[-1:]:
            alone[word] = "at most three words"
    single = [*alone.items()][:_NUM_PUT_IN]
    yield _Kind("one word alone", single, lambda written, _: 0 < len(words(written)) <= 3)
    if language in _NEGATIONS:
        negation = re.compile(_NEGATIONS[language], re.IGNORECASE)
        pairs = []
        for line, translation in zip(src, clean, strict=True):
            if negation.search(line):
                pairs.append((" ".join(negation.sub("", line).split()), translation))
        yield _Kind("a negation removed", pairs, ne)


def _by_score(kind: _Kind, translations: list[str], score: Score, clean: Score) -> Behaviour:
    interval = score.interval or (score.value, score.value)
    drop = clean.value - score.value
    examples = []
    sources, references = zip(*kind.pairs, strict=True)
    for worst in worst_sentences(sources, translations, references, NUM_WORST):
        examples.append(Example(worst.source, worst.translation, worst.reference))
    return Behaviour(kind.name, len(kind.pairs), "BLEU", score.value, interval, drop, examples)


def _by_share(kind: _Kind, translations: list[str]) -> Behaviour:
    bad = []
    for (source, wished), written in zip(kind.pairs, translations, strict=True):
        if not (kind.is_good and kind.is_good(written, wished)):
            bad.append(Example(source, written, wished))
    number = len(kind.pairs)
    value = 100 * (1 - len(bad) / number)
    interval = _wilson(number - len(bad), number)
    return Behaviour(kind.name, number, "%", value, interval, 100 - value, bad[:NUM_WORST])


def _wilson(good: int, number: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927), in percent."""
    z = 1.96
    centre = (good + z * z / 2) / (number + z * z)
    half = z / (number + z * z) * math.sqrt(good * (number - good) / number + z * z / 4)
    return 100 * (centre - half), 100 * (centre + half)
