"""Train a recipe of ``configs/``, evaluate it, and hold its scores against those in the recipe's header.

    scripts/reproduce NAME [--seeds N] [options of mt train]

An option of mt train is for example --set data.path=FOLDER. The header is the comment that a config begins
with. Five lines of it are read here, the rest is for people:

    # average:   last 10
    # evaluate:  --split test --beam 5 --literature
    # reaches:   literature BLEU 35.92, BLEU 35.44 (seed 1; greedy 34.54 and 34.12)
    # at least:  literature BLEU 35.4
    # takes:     7.4 minutes on two CPU cores (AVX-512)

Without ``average`` the best checkpoint is evaluated. ``evaluate`` holds options of `mt evaluate`. Text in
brackets or after a semicolon is a remark. Who has not measured writes ``reaches: not measured``, whatever
follows, and no ``at least``. A line continues on the next one if that is indented as far as its text.

With ``--record`` a row for the table of records in docs/performance.md is printed at the end.

With ``--seeds 3`` the recipe is trained three times, with training.seed 1 to 3, in run directories that end
in -seed1 to -seed3, and ``at least`` is for the mean of their scores.

Exit codes: 0 reached, or nothing to hold it against; 1 short of ``at least``; 2 no such recipe, or a broken
header. Where a command of mt ends with another code than 0, that one; the same command again resumes the run.
"""

import argparse
import contextlib
import io
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mt.__main__ import main as mt_main
from scripts.benchmark.machine import processor

CONFIGS = Path("configs")
# More is better of all of these.
MEASURES = ("BLEU", "chrF2++", "literature BLEU", "exact sentences")

FIELD = re.compile(r"^# (average|evaluate|reaches|at least|takes):\s+(\S.*(?:\n#\s{8,}\S.*)*)", re.MULTILINE)
FIGURE = re.compile(r"(?P<measure>[A-Za-z].*?) +(?P<value>\d+(\.\d+)?)( %)?")


class RecipeError(Exception):
    """What is wrong with a recipe, in a sentence."""


@dataclass(frozen=True)
class Header:
    """What the comment at the beginning of a recipe promises."""

    average: list[str]
    """Options of `mt average`; none where nothing is averaged."""
    evaluate: list[str]
    """Options of `mt evaluate`."""
    reaches: str
    expected: dict[str, float]
    """The scores in ``reaches`` by measure; none where nothing was measured."""
    at_least: dict[str, float]
    """The scores below which the recipe has failed."""
    takes: str


def read_header(recipe: Path) -> Header:
    """The header of a recipe."""
    comment = re.split(r"^(?!#)", recipe.read_text(encoding="utf-8"), maxsplit=1, flags=re.MULTILINE)[0]
    lines = {name: re.sub(r"\n#\s+", " ", text.rstrip()) for name, text in FIELD.findall(comment)}
    measured = not lines.get("reaches", "").startswith("not measured")
    for name in ("evaluate", "reaches", "takes", *(["at least"] if measured else [])):
        if name not in lines:
            raise RecipeError(f"{recipe}: its header lacks the line '# {name}:'.")
    average = re.fullmatch(r"(last|best) ([1-9]\d*)", lines.get("average", ""))
    if "average" in lines and average is None:
        raise RecipeError(f"{recipe}: 'average: {lines['average']}' must be such as 'last 10' or 'best 5'.")
    return Header(
        average=[f"--{average[1]}", average[2]] if average else [],
        evaluate=lines["evaluate"].split(),
        reaches=lines["reaches"],
        expected=_figures(recipe, "reaches", lines["reaches"]) if measured else {},
        at_least=_figures(recipe, "at least", lines["at least"]) if measured else {},
        takes=lines["takes"],
    )


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


def mt(*words: str) -> str:
    """What a command of mt writes to stdout; in this process, so that it gets the signals."""
    sys.argv = ["mt", *words]
    with contextlib.redirect_stdout(io.StringIO()) as written:
        try:
            mt_main()
        except SystemExit as end:
            if end.code:
                raise
    return written.getvalue()


def train_and_evaluate(recipe: Path, header: Header, run: Path, options: Sequence[str]) -> dict[str, float]:
    """Train, average where the header asks for it, and evaluate; the scores by measure."""
    mt("train", "--config", str(recipe), "--run", str(run), *options)
    checkpoint = "best"
    if header.average:
        checkpoint = Path(mt("average", "--run", str(run), *header.average).strip()).name
    evaluate = ["evaluate", "--run", str(run), "--scores-only", *header.evaluate]
    [report] = json.loads(mt(*evaluate, "--checkpoint", checkpoint, "--json"))
    for score in report["scores"].values():
        print(f"{score['name']} {score['value']:.2f}  ({score['signature']})")
    scores = {score["name"]: score["value"] for score in report["scores"].values()}
    return scores | {"exact sentences": report["exact"]}


def report(header: Header, scores: Sequence[dict[str, float]]) -> bool:
    """Print the scores of each run, and the mean of several, beside the header's; whether none is too low."""
    several = len(scores) > 1
    names = [*(f"seed {seed}" for seed in range(1, len(scores) + 1)), "mean", "sd"] if several else ["here"]
    print("  ".join([f"\n{'':15}", *(f"{name:>7}" for name in names), "expected", "at least"]))
    reached = True
    for measure in [measure for measure in MEASURES if measure in scores[0]]:
        here = [each[measure] for each in scores]
        # As it is printed, so that nobody reads 35.40 and "short of 35.40" on one line.
        score, bar = round(statistics.mean(here), 2), header.at_least.get(measure)
        columns = [
            f"{value:8.2f}" if value is not None else " " * 8 for value in (header.expected.get(measure), bar)
        ]
        short = bar is not None and score < bar
        reached = reached and not short
        verdict = "" if bar is None else "  SHORT" if short else "  reached"
        figures = [*here, score, statistics.stdev(here)] if several else [score]
        columns = [f"{figure:7.2f}" for figure in figures] + columns
        print("  ".join([f"{measure:15}", *columns]).rstrip() + verdict)
    return reached


def record(run: Path, bleu: float, minutes: float) -> str:
    """A row of the table of records: what was reached when, where, and the weights to compare with."""
    folder = run / "checkpoints" / (run / "checkpoints" / "best").read_text(encoding="utf-8").strip()
    checkpoint = json.loads((folder / "checkpoint.json").read_text(encoding="utf-8"))
    environment = checkpoint["environment"]
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=False
    )
    machine = f"{environment['num_threads']} threads of {processor()}, {environment['precision']}"
    versions = ", ".join(f"{name} {environment[name]}" for name in ("python", "torch", "numpy", "tokenizers"))
    weights = checkpoint["checksums"]["model.safetensors"][:12]
    cells = [f"{minutes:.2f}", f"{bleu:.2f}", f"{checkpoint['step']:,}", commit.stdout.strip()]
    return f"| {' | '.join([*cells, machine, versions, f'`{weights}`'])} |"


def main() -> int:
    """Reproduce the recipe that the command line names; the exit code."""
    names = sorted(file.stem for file in CONFIGS.glob("*.yaml"))
    parser = argparse.ArgumentParser(
        prog="scripts/reproduce",
        description=(__doc__ or "").split("\n")[0],
        epilog="All other options are those of mt train. Recipes: " + ", ".join(names),
        allow_abbrev=False,
    )
    parser.add_argument("name", choices=names, metavar="NAME", help="a file of configs/, without .yaml")
    parser.add_argument("--run", type=Path, help="the run directory (default: runs/ and the name)")
    parser.add_argument("--seeds", type=int, choices=range(2, 100), metavar="N", help="train seeds 1 to N")
    parser.add_argument("--record", action="store_true", help="print a row for the table of records")
    arguments, options = parser.parse_known_args()
    recipe = CONFIGS / f"{arguments.name}.yaml"
    run = arguments.run or Path("runs", arguments.name)
    runs: dict[Path, list[str]] = {run: []}
    if arguments.seeds:
        seeds = range(1, arguments.seeds + 1)
        runs = {Path(f"{run}-seed{seed}"): ["--set", f"training.seed={seed}"] for seed in seeds}
    try:
        header = read_header(recipe)
    except RecipeError as error:
        print(f"scripts/reproduce: {error}", file=sys.stderr)
        return 2
    scores = [train_and_evaluate(recipe, header, each, [*options, *more]) for each, more in runs.items()]
    reached = report(header, scores)
    ends = [json.loads((each / "metrics.jsonl").read_text("utf-8").splitlines()[-1]) for each in runs]
    minutes = " + ".join(f"{end['minutes']:.1f}" for end in ends)
    print(f"\ntraining took {minutes} minutes; expected: {header.takes}{' each' if len(runs) > 1 else ''}")
    if arguments.record:
        print("\n| minutes | BLEU | steps | commit | machine | versions | weights |")
        for each, score, end in zip(runs, scores, ends, strict=True):
            print(record(each, score["BLEU"], end["minutes"]))
    if not header.expected:
        print(f"There is no measured score to hold this against. {recipe} says: {header.reaches}")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
