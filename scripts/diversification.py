"""Data diversification (Nguyen et al. 2020) of a recipe: ``scripts/reproduce NAME --diversify K``.

K models of each direction are trained with the seeds 1 to K and translate the training split; then the recipe
is trained on the split and its 2 K translated copies. All of it is done by commands of mt, which are printed,
and which docs/recipes.md explains. What was finished is not done again.

In runs/NAME-diversified: ``text/``, the splits as the recipe loads them; ``forward-1``, ``backward-1`` and so
on, runs beside their translations; and ``final``, the run to be evaluated.
"""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from mt.config.load import load_config
from mt.data.corpus import load_split
from mt.data.sources.source import SPLITS
from mt.files import write_atomically
from scripts.recipe import Header, RecipeError, mt, output_of_mt, train_and_evaluate

FINAL = "final"


def diversify(
    recipe: Path, header: Header, folder: Path, num_models: int, options: Sequence[str]
) -> dict[str, float]:
    """Train the models of both directions, translate, train the final model, and evaluate it.

    Args:
        recipe: The recipe.
        header: Its header.
        folder: Where all of it is written.
        num_models: Models of each direction.
        options: Options of `mt train` for every model.

    Raises:
        RecipeError: If there is no model, or the recipe mixes several sources already.
    """
    if num_models < 1:
        raise RecipeError(
            f"--diversify {num_models} must be at least 1: the number of models of each direction."
        )
    src, tgt = _write_text(recipe, folder / "text", options)
    text = [*options, *_set("data.path", folder / "text"), *_set("data.num_train_pairs", "null")]
    for key in ("name", "revision", "columns"):
        text += _set(f"data.{key}", "null")
    directions = {"forward": (src, tgt), "backward": (tgt, src)}
    mix = []
    for direction, (read, written) in directions.items():
        for seed in range(1, num_models + 1):
            run = folder / f"{direction}-{seed}"
            languages = [*_set("data.src", read), *_set("data.tgt", written), *_set("training.seed", seed)]
            _call("train", "--config", recipe, "--run", run, *text, *languages)
            translations = folder / f"{run.name}.{written}"
            if not translations.exists():
                lines = folder / "text" / f"train.{read}"
                source = ("translate", "--run", run, "--file", lines)
                words = (*source, "--beam", 5, "--min-length", 1, "--on-error", "empty")
                write_atomically(translations, _call(*words, to=translations))
            sides = {read: folder / "text" / f"train.{read}", written: translations}
            mix.append(f"{sides[src]},{sides[tgt]}")
    final = [*text, *_set("data.mix", "; ".join(mix))]
    return train_and_evaluate(recipe, header, folder / FINAL, final)


def _write_text(recipe: Path, folder: Path, options: Sequence[str]) -> tuple[str, str]:
    """Write all splits as parallel text, so that both directions have the same; the two languages."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--set", action="append", default=[])
    config = load_config(recipe, parser.parse_known_args(options)[0].set)
    if config.data.mix:
        raise RecipeError(f"{recipe} has a data.mix already. Diversify a recipe with one source.")
    folder.mkdir(parents=True, exist_ok=True)
    languages = {"src": config.data.src, "tgt": config.data.tgt}
    for split in SPLITS:
        pairs = load_split(config.data, split)
        for side, language in languages.items():
            lines = "".join(text.replace("\n", " ") + "\n" for text in pairs[side])
            write_atomically(folder / f"{split}.{language}", lines)
    return config.data.src, config.data.tgt


def _set(key: str, value: object) -> list[str]:
    return ["--set", f"{key}={value}"]


def _call(*words: object, to: Path | None = None) -> str:
    """Print a command of mt as one would type it, and run it; what it wrote, if that goes into a file."""
    command = [str(word) for word in words]
    print(f"$ mt {shlex.join(command)}{f' > {shlex.quote(str(to))}' if to else ''}", flush=True)
    if to is not None:
        return output_of_mt(*command)
    mt(*command)
    return ""
