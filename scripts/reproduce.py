"""Train a recipe of ``configs/``, evaluate it, and hold its scores against those in the recipe's head.

    scripts/reproduce NAME [--seeds N] [options of mt train, such as --set data.path=FOLDER]

The head is the comment that a config begins with. Five lines of it are read here, the rest is for people:

    # average:   last 10
    # evaluate:  --split test --beam 5 --literature
    # reaches:   literature BLEU 35.92, BLEU 35.44 (seed 1; greedy 34.54 and 34.12)
    # at least:  literature BLEU 35.4
    # takes:     7.4 minutes on two CPU cores (AVX-512)

Without ``average`` the best checkpoint is evaluated; ``evaluate`` holds options of `mt evaluate`. What stands
in brackets or after a semicolon is a remark. Who has not measured writes ``reaches: not measured``, whatever
follows, and no ``at least``. A line goes on in the next where that is indented as far as its text.

With ``--seeds 3`` the recipe is trained three times, with training.seed 1 to 3, in run directories that end
in -seed1 to -seed3, and ``at least`` is for the mean of their scores.

Exit codes: 0 reached, or nothing to hold it against; 1 short of ``at least``; 2 no such recipe, or a broken
head. Where a command of mt ends with another code than 0, that one; the same command again resumes the run.
"""

import argparse
import contextlib
import io
import json
import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mt.__main__ import main as mt_main

CONFIGS = Path("configs")
# More is better of all of these.
MEASURES = ("BLEU", "chrF2++", "literature BLEU", "exact sentences")

FIELD = re.compile(r"# (average|evaluate|reaches|at least|takes):\s+(\S.*)")
CONTINUATION = re.compile(r"#\s{8,}(\S.*)")
FIGURE = re.compile(r"(?P<measure>[A-Za-z].*?) +(?P<value>\d+(\.\d+)?)( %)?")
AVERAGE = re.compile(r"(last|best) ([1-9]\d*)")


class RecipeError(Exception):
    """What is wrong with a recipe, in a sentence."""


@dataclass(frozen=True)
class Head:
    """What the comment at the beginning of a recipe promises.

    Attributes:
        average: Options of `mt average`; none where nothing is averaged.
        evaluate: Options of `mt evaluate`.
        reaches: What was seen, as it stands there.
        expected: The scores in it by measure; none where nothing was measured.
        at_least: The scores below which the recipe has failed.
        takes: How long, and on what.
    """

    average: list[str]
    evaluate: list[str]
    reaches: str
    expected: dict[str, float]
    at_least: dict[str, float]
    takes: str


def read_head(recipe: Path) -> Head:
    """The head of a recipe.

    Raises:
        RecipeError: If it lacks a line, has one twice, or says something that cannot be understood.
    """
    found: dict[str, str] = {}
    last = ""
    for line in _head_lines(recipe):
        if field := FIELD.fullmatch(line):
            last, text = field.groups()
            if last in found:
                raise RecipeError(f"{recipe}: '{last}:' stands twice in its head.")
            found[last] = text
        elif last and (more := CONTINUATION.fullmatch(line)):
            found[last] += " " + more[1]
        else:
            last = ""
    measured = not found.get("reaches", "").startswith("not measured")
    needed = ["evaluate", "reaches", "takes", *(["at least"] if measured else [])]
    if missing := [name for name in needed if name not in found]:
        raise RecipeError(f"{recipe}: its head lacks the line '# {missing[0]}:'.")
    if not measured and "at least" in found:
        raise RecipeError(f"{recipe}: 'at least:' needs a score that was seen, and 'reaches:' has none.")
    average = AVERAGE.fullmatch(found.get("average", ""))
    if "average" in found and average is None:
        raise RecipeError(f"{recipe}: 'average: {found['average']}' must be such as 'last 10' or 'best 5'.")
    head = Head(
        average=[f"--{average[1]}", average[2]] if average else [],
        evaluate=found["evaluate"].split(),
        reaches=found["reaches"],
        expected=_figures(recipe, "reaches", found["reaches"]) if measured else {},
        at_least=_figures(recipe, "at least", found["at least"]) if measured else {},
        takes=found["takes"],
    )
    if "literature BLEU" in head.at_least and "--literature" not in head.evaluate:
        raise RecipeError(
            f"{recipe}: 'at least:' asks for literature BLEU, so 'evaluate:' needs --literature."
        )
    return head


def _head_lines(recipe: Path) -> Iterator[str]:
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


def train_and_evaluate(recipe: Path, head: Head, run: Path, options: Sequence[str]) -> dict[str, float]:
    """Train, average where the head asks for it, and evaluate; the scores by measure."""
    mt("train", "--config", str(recipe), "--run", str(run), *options)
    checkpoint = []
    if head.average:
        with contextlib.redirect_stdout(io.StringIO()) as folder:
            mt("average", "--run", str(run), *head.average)
        checkpoint = ["--checkpoint", Path(folder.getvalue().strip()).name]
    file = run / "reproduce.json"
    mt("evaluate", "--run", str(run), *checkpoint, "--scores-only", *head.evaluate, "--json", str(file))
    found = json.loads(file.read_text(encoding="utf-8"))
    scores = [*found["scores"].values(), *([found["literature"]] if found["literature"] else [])]
    return {score["name"]: score["value"] for score in scores} | {"exact sentences": found["exact"]}


def minutes_of_training(run: Path) -> float:
    """The minutes that a run was trained for, those before a resume included."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return float(json.loads(lines[-1])["minutes"])


def report(head: Head, scores: Sequence[dict[str, float]]) -> bool:
    """Print the scores beside those of the head; whether none is too low.

    Args:
        head: The recipe's.
        scores: The scores by measure of each run; of several runs the mean and the standard deviation are
            printed too, and the mean is what must not be too low.
    """
    several = len(scores) > 1
    names = [*(f"seed {seed}" for seed in range(1, len(scores) + 1)), "mean", "sd"] if several else ["here"]
    print("  ".join([f"\n{'':15}", *(f"{name:>7}" for name in names), "expected", "at least"]))
    reached = True
    for measure in MEASURES:
        if measure not in scores[0]:
            continue
        here = [each[measure] for each in scores]
        # As it is printed, so that nobody reads 35.40 and "short of 35.40" on one line.
        score, bar = round(statistics.mean(here), 2), head.at_least.get(measure)
        expected = head.expected.get(measure)
        columns = [f"{value:8.2f}" if value is not None else " " * 8 for value in (expected, bar)]
        short = bar is not None and score < bar
        reached = reached and not short
        verdict = "" if bar is None else "  SHORT" if short else "  reached"
        figures = [*here, score, statistics.stdev(here)] if several else [score]
        columns = [f"{figure:7.2f}" for figure in figures] + columns
        print("  ".join([f"{measure:15}", *columns]).rstrip() + verdict)
    return reached


def main() -> int:
    """Reproduce the recipe that the command line names; the exit code."""
    parser = argparse.ArgumentParser(
        prog="scripts/reproduce",
        description=(__doc__ or "").split("\n")[0],
        epilog="All other options are those of mt train. Recipes: " + ", ".join(_names()),
        allow_abbrev=False,
    )
    parser.add_argument("name", help="a file of configs/, without .yaml")
    parser.add_argument("--run", type=Path, help="the run directory (default: runs/ and the name)")
    parser.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        help="train with the seeds 1 to N, in run directories that end in -seed1 and so on",
    )
    arguments, options = parser.parse_known_args()
    recipe = CONFIGS / f"{arguments.name}.yaml"
    run = arguments.run or Path("runs", arguments.name)
    try:
        if arguments.name not in _names():
            raise RecipeError(f"there is no recipe {arguments.name!r}, only {', '.join(_names())}.")
        head = read_head(recipe)
        runs = _runs(run, arguments.seeds, options)
    except RecipeError as error:
        print(f"scripts/reproduce: {error}", file=sys.stderr)
        return 2
    scores = [train_and_evaluate(recipe, head, each, [*options, *more]) for each, more in runs.items()]
    reached = report(head, scores)
    minutes = " + ".join(f"{minutes_of_training(each):.1f}" for each in runs)
    print(f"\ntraining took {minutes} minutes; expected: {head.takes}{' each' if len(runs) > 1 else ''}")
    if not head.expected:
        print(f"There is no measured score to hold this against. {recipe} says: {head.reaches}")
    return 0 if reached else 1


def _runs(run: Path, num_seeds: int | None, options: Sequence[str]) -> dict[Path, list[str]]:
    """The directory of each run, with its own options of `mt train`.

    Raises:
        RecipeError: If there is no standard deviation of so few seeds, or the options have a seed already.
    """
    if num_seeds is None:
        return {run: []}
    if num_seeds < 2:
        raise RecipeError(f"--seeds {num_seeds} must be at least 2. Leave it out for a single run.")
    if any("training.seed=" in option for option in options):
        raise RecipeError(f"--seeds {num_seeds} sets training.seed itself. Leave one of the two out.")
    return {Path(f"{run}-seed{seed}"): ["--set", f"training.seed={seed}"] for seed in range(1, num_seeds + 1)}


def _names() -> list[str]:
    return sorted(file.stem for file in CONFIGS.glob("*.yaml"))


if __name__ == "__main__":
    sys.exit(main())
