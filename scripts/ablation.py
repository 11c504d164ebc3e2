"""The variants of a recipe beside each other: ``scripts/reproduce NAME --ablation``.

They are in configs/ablation/NAME.yaml: options for all of them, such as a shorter run, and for each its own.

    all variants:
      training.max_steps: 2875
    baseline:
      training.r_drop: 0
    R-Drop: {}

They are trained into runs/NAME-ablation/VARIANT, one after another; the same command resumes what was
interrupted. They are compared on the validation split, with the search of the recipe's header: settings are
not chosen on the test split.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from mt.evaluation.scores import paired_bootstrap
from scripts.recipe import CONFIGS, Header, RecipeError, end_of_training, evaluate, mt, scores

VARIANTS = CONFIGS / "ablation"
FOR_ALL = "all variants"
COLUMNS = ("BLEU", "literature BLEU", "chrF2++")


def print_ablation(recipe: Path, header: Header, runs: Path, options: Sequence[str]) -> None:
    """Train and evaluate the variants of a recipe, and print them as a table.

    Args:
        recipe: The recipe.
        header: Its header, for the options of `mt evaluate`.
        runs: The folder of the runs.
        options: Options of `mt train` that come after those of all variants.

    Raises:
        RecipeError: If the recipe has no variants, or they cannot be understood.
    """
    variants = read_variants(VARIANTS / recipe.name)
    found = {}
    for name, settings in variants.items():
        run = runs / name.replace(" ", "-")
        mt("train", "--config", str(recipe), "--run", str(run), *settings, *options)
        found[name] = evaluate(run, header, "--split", "validation") | end_of_training(run)
    print("\n".join(["", *table(found)]))


def read_variants(file: Path) -> dict[str, list[str]]:
    """The options of `mt train` for each variant, by name.

    Raises:
        RecipeError: If there is no such file, or it is not as above.
    """
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        there = ", ".join(sorted(each.stem for each in file.parent.glob("*.yaml"))) or "none"
        raise RecipeError(
            f"there is no {file}, which would list variants; there are those of {there}."
        ) from None
    except yaml.YAMLError as error:
        raise RecipeError(f"{file} is not YAML: {error}") from None
    if not isinstance(content, dict) or not all(isinstance(each, dict) for each in content.values()):
        raise RecipeError(
            f"{file} must give options such as 'training.r_drop: 0' under the name of each variant."
        )
    for_all = content.pop(FOR_ALL, {})
    if not content:
        raise RecipeError(f"{file} lists no variant.")
    return {
        str(name): [
            word
            for key, value in {**for_all, **own}.items()
            for word in ("--set", f"{key}={'null' if value is None else value}")
        ]
        for name, own in content.items()
    }


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    """A row of Markdown for each variant; differences and p (paired bootstrap) are from the first."""
    first, *_ = found
    rows = [
        f"| variant | target tokens | minutes | BLEU | literature BLEU | chrF2++ | BLEU - {first} | p |",
        "|---|---|---|---|---|---|---|---|",
    ]
    translations, references = (_lines(found[first][f"{kind}_file"]) for kind in ("hypotheses", "references"))
    for name, each in found.items():
        points = scores(each)
        compared = " | "
        if name != first:
            bleu = paired_bootstrap(translations, _lines(each["hypotheses_file"]), references)["bleu"]
            compared = f"{bleu.gain:+.2f} | {bleu.p_value:.3f}"
        shown = [f"{points[measure]:.2f}" if measure in points else "" for measure in COLUMNS]
        length = f"{each['num_target_tokens']:,} | {each['minutes']:.1f}"
        rows.append(f"| {name} | {length} | {' | '.join(shown)} | {compared} |")
    return rows


def _lines(file: str) -> list[str]:
    return Path(file).read_text(encoding="utf-8").split("\n")[:-1]
