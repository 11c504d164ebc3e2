"""`mt init`: a config for a corpus of the user, or one that is known to work."""

from pathlib import Path
from typing import Annotated

import typer

from mt.cli.logs import show_logs
from mt.config.sources import Delimiter
from mt.errors import ConfigError


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
            metavar="[NAME]", help="Print a config that is known to work; without a name, list them all."
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="SRC,TGT",
            help="Columns that are not named after the languages: english,german, or 1,2 without a header.",
        ),
    ] = None,
    delimiter: Annotated[
        Delimiter, typer.Option(help="What separates columns, if the header does not show it.")
    ] = "auto",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: SRC-TGT.yaml.")
    ] = None,
) -> None:
    """Look at a corpus and write a commented config file for it.

    Or print one of the configs that come with mt: mt init --recipe quickstart > quickstart.yaml
    """
    show_logs()
    if recipe is not None:
        if data or src or tgt or name or output:
            raise ConfigError("--recipe prints a finished config: give no other option with it.")
        _print_recipe(recipe)
        return
    if not (data and src and tgt):
        raise ConfigError(
            "give --data, --src and --tgt, such as: mt init --data my-corpus --src en --tgt de, "
            "or --recipe, for the configs that come with mt."
        )
    for option, value in (("--data", data), ("--src", src), ("--tgt", tgt), ("--name", name or "")):
        if not _is_unicode(value):
            raise ConfigError(f"{option} {value!r} is not UTF-8, which a config has to be. Rename it.")
    file = output or Path(f"{src}-{tgt}.yaml")
    if file.is_file() or file.is_dir():
        raise ConfigError(f"{file} exists already. Choose another file with --output.")
    if not file.parent.is_dir():
        raise ConfigError(f"There is no folder {file.parent} for {file.name}. Choose one with --output.")
    from mt.preflight.init import propose_config

    proposal = propose_config(data, src, tgt, name=name, columns=columns, delimiter=delimiter)
    from mt.atomic_files import write_output

    write_output(file, proposal)
    typer.echo(f"Wrote {file}. Train with it:  mt train --config {file}", err=True)


def _print_recipe(name: str) -> None:
    from mt.config.load import recipe_files, recipe_list

    if not name:
        typer.echo(recipe_list(), nl=False)
        typer.echo("Print one, and train with it:  mt init --recipe NAME > NAME.yaml", err=True)
        return
    files = recipe_files()
    file = files.get(name.removesuffix(".yaml"))
    if file is None:
        raise ConfigError(f"there is no recipe {name!r}. The recipes are {', '.join(files)}.")
    typer.echo(file.read_text(encoding="utf-8"), nl=False)


def _is_unicode(text: str) -> bool:
    """Whether a command-line argument was UTF-8; otherwise Python leaves surrogates in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
