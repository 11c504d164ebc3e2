"""Train a recipe of ``configs/``, evaluate it, and hold its scores against those in the recipe's header.

    scripts/reproduce NAME [--seeds N] [options of mt train]

An option of mt train is for example --set data.path=FOLDER. scripts/recipe.py says what a header is.

With ``--seeds 3`` the recipe is trained three times, with training.seed 1 to 3, in run directories that end
in -seed1 to -seed3, and ``at least`` is for the mean of their scores.

Exit codes: 0 reached, or nothing to hold it against; 1 short of ``at least``; 2 no such recipe, or a broken
header. Where a command of mt ends with another code than 0, that one; the same command again resumes the run.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.recipe import (
    CONFIGS,
    MEASURES,
    Header,
    RecipeError,
    end_of_training,
    names_of_recipes,
    read_header,
    train_and_evaluate,
)


def report(header: Header, scores: Sequence[dict[str, float]]) -> bool:
    """Print the scores beside those of the header; whether none is too low.

    Args:
        header: The recipe's.
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
        score, bar = round(statistics.mean(here), 2), header.at_least.get(measure)
        expected = header.expected.get(measure)
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
        epilog="All other options are those of mt train. Recipes: " + ", ".join(names_of_recipes()),
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
        if arguments.name not in names_of_recipes():
            raise RecipeError(f"there is no recipe {arguments.name!r}, only {', '.join(names_of_recipes())}.")
        header = read_header(recipe)
        runs = _runs(run, arguments.seeds, options)
        scores = [train_and_evaluate(recipe, header, each, [*options, *more]) for each, more in runs.items()]
    except RecipeError as error:
        print(f"scripts/reproduce: {error}", file=sys.stderr)
        return 2
    reached = report(header, scores)
    minutes = " + ".join(f"{end_of_training(each)['minutes']:.1f}" for each in runs)
    print(f"\ntraining took {minutes} minutes; expected: {header.takes}{' each' if len(runs) > 1 else ''}")
    if not header.expected:
        print(f"There is no measured score to hold this against. {recipe} says: {header.reaches}")
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


if __name__ == "__main__":
    sys.exit(main())
