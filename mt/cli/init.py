"""`mt init`: write a config for the user's corpus, or print one that is known to work."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from mt.cli.logs import say, show_logs
from mt.config.sources import Delimiter
from mt.errors import ConfigError
from mt.files import is_utf8

# Larger values are mistakes, and the arithmetic of longer runs would overflow.
MOST_MINUTES, MOST_TARGET_TOKENS = 10_000_000, 10**15

Minutes = Annotated[
    float | None,
    typer.Option(metavar="M", help="Minutes for the whole run on this machine, from start to last step."),
]
TargetTokens = Annotated[
    int | None, typer.Option(metavar="N", help="Train on this many target tokens, instead of --minutes.")
]


def _complete_recipes() -> list[str]:
    from mt.config.load import recipe_files

    return list(recipe_files())


def init(
    data: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="A folder, a file, two as in en.txt,de.txt, a Hub id, or builtin:primer."
        ),
    ] = None,
    src: Annotated[
        str | None, typer.Option(metavar="LANGUAGE", help="The language to translate from, such as en.")
    ] = None,
    tgt: Annotated[
        str | None, typer.Option(metavar="LANGUAGE", help="The language to translate to, such as de.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The configuration of a Hub corpus that has several.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="[NAME]",
            help="Print a config that is known to work; without a name, list all of them.",
            autocompletion=_complete_recipes,
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="SRC,TGT",
            help="The columns, if not named after the languages: english,german, or 1,2 without a header.",
        ),
    ] = None,
    minutes: Minutes = None,
    target_tokens: TargetTokens = None,
    delimiter: Annotated[
        Delimiter, typer.Option(help="The column separator, if the header line does not show it.")
    ] = "auto",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: SRC-TGT.yaml.")
    ] = None,
) -> None:
    """Inspect a corpus, time a few training steps, and write a commented config for your budget.

    Or print one of the configs that come with mt: mt init --recipe quickstart > quickstart.yaml
    """
    show_logs()
    if recipe is not None:
        others = (data, src, tgt, name, columns, minutes, target_tokens, output)
        if delimiter != "auto" or any(other is not None for other in others):
            raise ConfigError("--recipe prints a finished config: give no other option with it.")
        _print_recipe(recipe)
        return
    if not (data and src and tgt):
        raise ConfigError(
            "give --data, --src and --tgt, such as: mt init --data my-corpus --src en --tgt de, "
            "or --recipe, for the configs that come with mt."
        )
    _refuse_other_encodings({"--data": data, "--src": src, "--tgt": tgt, "--name": name or ""})
    _refuse_budget(minutes, target_tokens)
    file = _new_file(output or Path(f"{src}-{tgt}.yaml"))
    from mt.preflight.budget import Budget
    from mt.preflight.init import propose_config

    budget = Budget(minutes, target_tokens)
    proposal = propose_config(data, src, tgt, name=name, columns=columns, delimiter=delimiter, budget=budget)
    from mt.files import write_atomically

    # Another one may have been written in the meantime.
    write_atomically(_new_file(file), _modeline(file) + proposal)
    say(f"Wrote {file}. Train with it:  mt train --config {quote(str(file))}")


def _print_recipe(name: str) -> None:
    from mt.config.load import recipe_files, recipe_list

    if not name:
        typer.echo(recipe_list(), nl=False)
        say("Print one, and train with it:  mt init --recipe NAME > NAME.yaml")
        return
    files = recipe_files()
    file = files.get(name.removesuffix(".yaml"))
    if file is None:
        raise ConfigError(f"there is no recipe {name!r}. The recipes are {', '.join(files)}.")
    typer.echo(file.read_text(encoding="utf-8"), nl=False)


def _refuse_budget(minutes: float | None, target_tokens: int | None) -> None:
    if minutes is not None and target_tokens is not None:
        raise ConfigError("--minutes and --target-tokens are two ways to give a budget: choose one.")
    if minutes is not None and not 0 < minutes <= MOST_MINUTES:
        raise ConfigError(
            f"--minutes {minutes:g}: give a number of minutes above 0 and up to {MOST_MINUTES:,}, such as 30."
        )
    if target_tokens is not None and not 0 < target_tokens <= MOST_TARGET_TOKENS:
        raise ConfigError(
            f"--target-tokens {target_tokens}: give a number above 0 and up to {MOST_TARGET_TOKENS:,}, "
            "such as 2000000."
        )


def _new_file(file: Path) -> Path:
    if file.is_file() or file.is_dir():
        raise ConfigError(f"{file} exists already. Choose another file with --output.")
    if not file.parent.is_dir():
        raise ConfigError(f"There is no folder {file.parent} for {file.name}. Choose one with --output.")
    return file


def _modeline(file: Path) -> str:
    """The comment that points editors to the schema written by `mt schema`; empty if there is no schema.

    The schema is looked for beside the config, and in the folders above it up to the current one.
    """
    from mt.config.schema import SCHEMA_FILE

    folder = file.resolve().parent
    above = [parent for parent in folder.parents if parent.is_relative_to(Path.cwd())]
    for height, place in enumerate([folder, *above]):
        if (place / SCHEMA_FILE).is_file():
            return f"# yaml-language-server: $schema={'../' * height}{SCHEMA_FILE}\n"
    return ""


def _refuse_other_encodings(values: dict[str, str]) -> None:
    for option, value in values.items():
        if not is_utf8(value):
            raise ConfigError(f"{option} {value!r} is not UTF-8, but a config must be. Rename it.")
