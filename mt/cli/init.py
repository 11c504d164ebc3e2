"""`mt init`: write a config for the user's corpus, or print one that is known to work."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from mt.cli.logs import say, show_logs
from mt.cli.options import check_at_most_one
from mt.config.sources import Delimiter
from mt.errors import ConfigError
from mt.files import is_utf8, write_atomically

# Larger values are mistakes, and the arithmetic of longer runs would overflow.
MOST_MINUTES, MOST_TARGET_TOKENS = 10_000_000, 10**15


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
    minutes: Annotated[
        float | None,
        typer.Option(metavar="M", help="Minutes for the whole run on this machine, from start to last step."),
    ] = None,
    target_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_TARGET_TOKENS,
            metavar="N",
            help="Train on this many target tokens, instead of --minutes.",
        ),
    ] = None,
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
        if (data, src, tgt, name, columns, minutes, target_tokens, delimiter, output) != _NOTHING_ELSE:
            raise ConfigError("--recipe prints a finished config: give no other option with it.")
        _print_recipe(recipe)
        return
    if not (data and src and tgt):
        raise ConfigError(
            "give --data, --src and --tgt, such as: mt init --data my-corpus --src en --tgt de, "
            "or --recipe, for the configs that come with mt."
        )
    for option in (data, src, tgt, name or ""):
        if not is_utf8(option):
            raise ConfigError(f"{option!r} is not UTF-8, but a config must be. Rename it.")
    check_at_most_one(minutes=minutes is not None, target_tokens=target_tokens)
    if minutes is not None and not 0 < minutes <= MOST_MINUTES:
        raise ConfigError(f"--minutes {minutes:g}: give a number above 0 and up to {MOST_MINUTES:,}.")
    file = _new_file(output or Path(f"{src}-{tgt}.yaml"))
    from mt.preflight.budget import Budget
    from mt.preflight.init import propose_config

    budget = Budget(minutes, target_tokens)
    proposal = propose_config(data, src, tgt, name=name, columns=columns, delimiter=delimiter, budget=budget)

    # Another one may have been written in the meantime.
    write_atomically(_new_file(file), _modeline(file) + proposal.yaml)
    for line in proposal.summary:
        say(line)
    say(f"Wrote {file}. Train with it:  mt train --config {quote(str(file))}")


_NOTHING_ELSE = (None, None, None, None, None, None, None, "auto", None)


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
    for height, parent in enumerate([folder, *above]):
        if (parent / SCHEMA_FILE).is_file():
            return f"# yaml-language-server: $schema={'../' * height}{SCHEMA_FILE}\n"
    return ""
