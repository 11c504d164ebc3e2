"""Finds out what a model does with text as people write it, in test sets that are made of the test split."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from sacrebleu.metrics.bleu import BLEU

from mt.config.load import load_config
from mt.data.as_written import in_capitals, in_title_case, joined, with_typos, without_final_punctuation
from mt.data.corpus import evenly_spaced
from mt.data.sources.source import Split
from mt.display import progress
from mt.errors import DataError
from mt.evaluation.analysis import words, worst_sentences
from mt.evaluation.behaviours import Behaviour, Behaviours, Example, to_json
from mt.evaluation.scores import in_form, on_one_line, score_with_confidence
from mt.evaluation.test_set import load_evaluation_set
from mt.files import write_atomically
from mt.inference.bleu import bleu_tokenizer
from mt.inference.translator import EngineChoice, Translator
from mt.run_directory import RunDirectory, as_run
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
_NAMES = (
    "Okonkwo",
    "Wojciechowska",
    "Nakamura",
    "Lindqvist",
    "Abernathy",
    "Quispe",
    "Szymborska",
    "Yildirim",
)
_PUT_IN: dict[str, Callable[[np.random.Generator], str]] = {
    "names": lambda generator: _NAMES[generator.integers(len(_NAMES))],
    "numbers": lambda generator: str(generator.integers(100, 100_000)),
    "emoji": lambda generator: "😀😂👍🎉🔥🚀🌍🐈"[generator.integers(8)],
    "web addresses": lambda generator: f"https://www.example.com/{generator.integers(10_000)}",
    "e-mail addresses": lambda generator: f"anna{generator.integers(10_000)}@example.org",
}


def run_behaviours(
    run: str | Path | RunDirectory,
    *,
    tgt: str | None = None,
    src: str | None = None,
    split: Split = "test",
    checkpoint: str = "best",
    data_path: str | None = None,
    data_name: str | None = None,
    device: str = "auto",
    engine: EngineChoice = "auto",
) -> Behaviours:
    """Translate text as people write it as `mt translate` does, and write what is found into the run.

    The arguments are those of `run_evaluation`. Of a test set, at most `MOST_LINES` are taken.
    """
    run = as_run(run).require()
    config = load_config(run.config_file)
    test_set = load_evaluation_set(config, split, path=data_path, name=data_name, direction=(src, tgt))
    translator = Translator.from_run(run, checkpoint=checkpoint, device=device, engine=engine)
    if translator.facts.directions:
        translator = translator.into(test_set.direction.tgt, test_set.direction.src)
    rows = evenly_spaced(len(test_set.sources), MOST_LINES).tolist()
    if len(rows) < LEAST_LINES:
        raise DataError(f"{test_set.where} has {len(rows)} lines, and behaviours need {LEAST_LINES} or more.")
    lines = Sides([test_set.sources[row] for row in rows], [test_set.references[row] for row in rows])

    def translate(texts: Sequence[str]) -> list[str]:
        with progress(len(texts), unit="sentences", description="translating") as advance:
            found = translator.translate(texts, join_lines=True, advance=advance)
        return in_form(test_set.form, [on_one_line(text) for text in found])

    judge = _Judge(lines, test_set.direction, translate)
    judge.scores()
    judge.shares()
    found = Behaviours(
        test_set.where,
        " to ".join(test_set.direction),
        translator.facts.checkpoint,
        f"{translator.engine.name}, {translator.engine.precision}",
        judge.signature,
        _with_examples(judge),
        judge.left_out,
    )
    write_atomically(run.behaviours_file, to_json(found))
    return found


def _with_examples(judge: "_Judge") -> list[Behaviour]:
    """The behaviours, the worst of them with examples."""
    worst = sorted(judge.behaviours, key=lambda each: -each.drop)[:NUM_WORST]
    behaviours = []
    for behaviour in judge.behaviours:
        examples = judge.worst_lines[behaviour.name] if behaviour in worst and behaviour.drop > 0 else []
        behaviours.append(replace(behaviour, examples=examples))
    return behaviours


class _Judge:
    """Changes lines, has them translated, and keeps what it finds."""

    def __init__(
        self, lines: Sides[list[str]], direction: Sides[str], translate: Callable[[Sequence[str]], list[str]]
    ) -> None:
        self._lines = lines
        self._direction = direction
        self._translate = translate
        self._generator = np.random.default_rng(derived_seed("behaviours"))
        self._metric = BLEU(tokenize=bleu_tokenizer(lines.tgt))
        self._clean: dict[str, str] = {}
        self._clean_score = 0.0
        self.signature = ""
        self.behaviours: list[Behaviour] = []
        self.left_out: dict[str, str] = {}
        self.worst_lines: dict[str, list[Example]] = {}

    def scores(self) -> None:
        """The behaviours that have references."""
        (src, tgt), of = self._lines, self._direction
        self._score(CLEAN, src, tgt)
        if in_capitals("".join(src), of.src) == "".join(src).lower():
            self.left_out["capitals, title case"] = "the script of the source has no capitals"
        else:
            for name, change in (("capitals", in_capitals), ("title case", in_title_case)):
                sources = [change(line, of.src) for line in src]
                references = [change(line, of.tgt) for line in tgt]
                self._score(name, sources, references)
        sources = [*map(without_final_punctuation, src)]
        references = [*map(without_final_punctuation, tgt)]
        self._score("no final punctuation", sources, references)
        sources = [with_typos(line, self._generator) for line in src]
        self._score("typing errors", sources, tgt)
        starts = range(0, len(src) - 1, 2)
        sources = [joined(src[start : start + 2]) for start in starts]
        references = [joined(tgt[start : start + 2]) for start in starts]
        self._score("two lines joined", sources, references)
        by_length = sorted(range(len(src)), key=lambda row: -len(words(src[row])))
        longest = by_length[: len(src) // 10]
        self._score("longest tenth", [src[row] for row in longest], [tgt[row] for row in longest])

    def _score(self, name: str, sources: list[str], references: list[str]) -> None:
        if len(sources) < LEAST_LINES:
            self.left_out[name] = f"only {len(sources)} lines"
            return
        translations = self._translate(sources)
        score = score_with_confidence(translations, references, {"bleu": self._metric})["bleu"]
        if name == CLEAN:
            self._clean = dict(zip(sources, translations, strict=True))
            self._clean_score = score.value
            self.signature = score.signature
        interval = score.interval or (score.value, score.value)
        drop = self._clean_score - score.value
        self.behaviours.append(Behaviour(name, len(sources), "BLEU", score.value, interval, drop))
        self.worst_lines[name] = []
        for worst in worst_sentences(sources, translations, references, NUM_WORST):
            self.worst_lines[name].append(Example(worst.source, worst.translation, worst.reference))

    def shares(self) -> None:
        """The behaviours whose outputs are as wished, or not."""
        src = self._lines.src
        for name, draw in _PUT_IN.items():
            given = [draw(self._generator) for _ in src[:_NUM_PUT_IN]]
            lines = [self._with(item, line) for item, line in zip(given, src, strict=False)]
            self._share(name, lines, given, lambda item, _, written: item in written)
        alone = [re.findall(r"[^\W\d_]{4,}", line) for line in src]
        single = [*dict.fromkeys(found[-1] for found in alone if found)][:_NUM_PUT_IN]
        self._share(
            "one word alone",
            single,
            ["at most three words"] * len(single),
            lambda *of: 0 < len(words(of[2])) <= 3,
        )
        pattern = _NEGATIONS.get(re.split("[-_]", self._direction.src.lower())[0])
        if pattern is None:
            self.left_out["a negation removed"] = f"there is no list of negations for {self._direction.src}"
            return
        negation = re.compile(pattern, re.IGNORECASE)
        negated = [line for line in src if negation.search(line)]
        without = [" ".join(negation.sub("", line).split()) for line in negated]
        before = [self._clean[line] for line in negated]
        self._share("a negation removed", without, before, lambda item, _, written: item != written)

    def _with(self, item: str, line: str) -> str:
        """A line with something put between two of its words."""
        parts = line.split(" ")
        at = int(self._generator.integers(1, max(2, len(parts))))
        return " ".join([*parts[:at], item, *parts[at:]])

    def _share(
        self, name: str, lines: list[str], wished: list[str], is_good: Callable[[str, str, str], bool]
    ) -> None:
        if len(lines) < LEAST_LINES:
            self.left_out[name] = f"only {len(lines)} lines"
            return
        translations = self._translate(lines)
        bad = []
        for line, wish, written in zip(lines, wished, translations, strict=True):
            if not is_good(wish, line, written):
                bad.append(Example(line, written, wish))
        value = 100 * (1 - len(bad) / len(lines))
        interval = _wilson(len(lines) - len(bad), len(lines))
        self.behaviours.append(Behaviour(name, len(lines), "%", value, interval, 100 - value))
        self.worst_lines[name] = bad[:NUM_WORST]


def _wilson(good: int, number: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927), in percent."""
    z = 1.96
    centre = (good + z * z / 2) / (number + z * z)
    half = z / (number + z * z) * math.sqrt(good * (number - good) / number + z * z / 4)
    return 100 * (centre - half), 100 * (centre + half)
