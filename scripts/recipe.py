"""What a recipe of ``configs/`` promises in its header, and the commands of mt that train and evaluate it.

The header is the comment that a config begins with. Five lines of it are read here, the rest is for people:

    # average:   last 10
    # evaluate:  --split test --beam 5 --literature
    # reaches:   literature BLEU 35.92, BLEU 35.44 (seed 1; greedy 34.54 and 34.12)
    # at least:  literature BLEU 35.4
    # takes:     7.4 minutes on two CPU cores (AVX-512)

Without ``average`` the best checkpoint is evaluated; with ``last 5 if better`` the average is evaluated only
where it has more BLEU on the validation split. ``evaluate`` holds options of `mt evaluate`. Text in brackets
or after a semicolon is a remark. Who has not measured writes ``reaches: not measured``, whatever follows, and
no ``at least``. A line continues on the next one if that is indented as far as its text.
"""

import contextlib
import io
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mt.__main__ import main as mt_main

CONFIGS = Path("configs")
# More is better of all of these.
MEASURES = ("BLEU", "chrF2++", "literature BLEU", "exact sentences")

FIELD = re.compile(r"# (average|evaluate|reaches|at least|takes):\s+(\S.*)")
CONTINUATION = re.compile(r"#\s{8,}(\S.*)")
FIGURE = re.compile(r"(?P<measure>[A-Za-z].*?) +(?P<value>\d+(\.\d+)?)( %)?")
AVERAGE = re.compile(r"(last|best) ([1-9]\d*)( if better)?")


class RecipeError(Exception):
    """What is wrong with a recipe, in a sentence."""


@dataclass(frozen=True)
class Header:
    """What the comment at the beginning of a recipe promises.

    Attributes:
        average: Options of `mt average`; none where nothing is averaged.
        if_better: Whether the average must have more BLEU on the validation split than the best checkpoint.
        evaluate: Options of `mt evaluate`.
        reaches: The measured scores, as written.
        expected: The scores in it by measure; none where nothing was measured.
        at_least: The scores below which the recipe has failed.
        takes: How long, and on what.
    """

    average: list[str]
    if_better: bool
    evaluate: list[str]
    reaches: str
    expected: dict[str, float]
    at_least: dict[str, float]
    takes: str


def names_of_recipes() -> list[str]:
    return sorted(file.stem for file in CONFIGS.glob("*.yaml"))


def read_header(recipe: Path) -> Header:
    """The header of a recipe.

    Raises:
        RecipeError: If it lacks a line, has one twice, or says something that cannot be understood.
    """
    found: dict[str, str] = {}
    last = ""
    for line in _header_lines(recipe):
        if field := FIELD.fullmatch(line):
            last, text = field.groups()
            if last in found:
                raise RecipeError(f"{recipe}: '{last}:' appears twice in its header.")
            found[last] = text
        elif last and (more := CONTINUATION.fullmatch(line)):
            found[last] += " " + more[1]
        else:
            last = ""
    measured = not found.get("reaches", "").startswith("not measured")
    needed = ["evaluate", "reaches", "takes", *(["at least"] if measured else [])]
    if missing := [name for name in needed if name not in found]:
        raise RecipeError(f"{recipe}: its header lacks the line '# {missing[0]}:'.")
    if not measured and "at least" in found:
        raise RecipeError(f"{recipe}: 'at least:' needs a score that was seen, and 'reaches:' has none.")
    average = AVERAGE.fullmatch(found.get("average", ""))
    if "average" in found and average is None:
        raise RecipeError(
            f"{recipe}: 'average: {found['average']}' must be such as 'last 10', 'best 5' or "
            "'last 5 if better'."
        )
    header = Header(
        average=[f"--{average[1]}", average[2]] if average else [],
        if_better=average is not None and average[3] is not None,
        evaluate=found["evaluate"].split(),
        reaches=found["reaches"],
        expected=_figures(recipe, "reaches", found["reaches"]) if measured else {},
        at_least=_figures(recipe, "at least", found["at least"]) if measured else {},
        takes=found["takes"],
    )
    if "literature BLEU" in header.at_least and "--literature" not in header.evaluate:
        raise RecipeError(
            f"{recipe}: 'at least:' asks for literature BLEU, so 'evaluate:' needs --literature."
        )
    return header


def _header_lines(recipe: Path) -> Iterator[str]:
    for line in recipe.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            return
        yield line.rstrip()


def _figures(recipe: Path, name: str, text: str) -> dict[str, float]:
    """The scores in ``BLEU 35.4, exact sentences 4.1 %; a remark`` by measure."""
    figures = {}
    for part in re.split(r";|\s\(", text)[0].split(","):
        figure = FIGURE.fullmatch(part.strip())
        if figure is None or figure["measure"] not in MEASURES:
            measures = ", ".join(MEASURES)
            raise RecipeError(f"{recipe}: '{name}: {part.strip()}' must be one of {measures}, and a number.")
        figures[figure["measure"]] = float(figure["value"])
    return figures


def mt(*words: str) -> None:
    """Run a command of mt in this process, so that it gets the signals.

    Raises:
        SystemExit: With its exit code, if that is not 0.
    """
    sys.argv = ["mt", *words]
    try:
        mt_main()
    except SystemExit as end:
        if end.code:
            raise


def output_of_mt(*words: str) -> str:
    """What a command of mt writes to stdout.

    Raises:
        SystemExit: With its exit code, if that is not 0.
    """
    with contextlib.redirect_stdout(io.StringIO()) as written:
        mt(*words)
    return written.getvalue()


def train_and_evaluate(recipe: Path, header: Header, run: Path, options: Sequence[str]) -> dict[str, float]:
    """Train, average where the header asks for it, and evaluate; the scores by measure."""
    mt("train", "--config", str(recipe), "--run", str(run), *options)
    checkpoint = "best"
    if header.average:
        averaged = Path(output_of_mt("average", "--run", str(run), *header.average).strip()).name
        checkpoint = _better_on_validation(run, header, averaged) if header.if_better else averaged
    return scores(evaluate(run, header, "--checkpoint", checkpoint))


def _better_on_validation(run: Path, header: Header, averaged: str) -> str:
    """The average or ``best``, whichever has more BLEU on the validation split with the header's search."""
    best, average = (
        scores(evaluate(run, header, "--split", "validation", "--checkpoint", checkpoint))["BLEU"]
        for checkpoint in ("best", averaged)
    )
    chosen = averaged if average > best else "best"
    print(f"on validation: best BLEU {best:.2f}, {averaged} {average:.2f}; evaluating {chosen}")
    return chosen


def evaluate(run: Path, header: Header, *options: str) -> dict[str, Any]:
    """What `mt evaluate --json` finds with the options of the header, of which these replace some."""
    file = run / "reproduce.json"
    kept = list(header.evaluate)
    for option in options[::2]:
        if option in kept:
            start = kept.index(option)
            del kept[start : start + 2]
    mt("evaluate", "--run", str(run), "--scores-only", *kept, *options, "--json", str(file))
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def scores(found: dict[str, Any]) -> dict[str, float]:
    """The scores of an evaluation by measure."""
    values = {score["name"]: score["value"] for score in found["scores"].values()}
    return values | {"exact sentences": found["exact"]}


def end_of_training(run: Path) -> dict[str, float]:
    """The last figures of a run: ``minutes`` and ``num_target_tokens``, those before a resume included."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    figures: dict[str, float] = json.loads(lines[-1])
    return figures
