"""`mt init`: write a config for the user's corpus, or print one that is known to work."""

import os
import re
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from typer import Option, echo

from mt.cli.logs import say
from mt.cli.options import InitFromOption, check_excludes, check_output, parse_origin
from mt.config.sources import Delimiter
from mt.errors import ConfigError, MtError
from mt.files import write_atomically
from mt.run_directory import as_run

if TYPE_CHECKING:
    from mt.config.data import DataConfig

# Larger values are mistakes, and the arithmetic of longer runs would overflow.
MOST_MINUTES = 10_000_000
SCHEMA_FILE = "mt.schema.json"
# An option of the config that is one of this command, too; and what precedes a pair of columns or files.
_KEY = re.compile(r"\bdata\.(path|src|tgt|name|columns|delimiter)\b(=|: (?=[^ ]+,[^ ]))?")


def init(
    data: Annotated[
        str | None, Option(help="A folder, a file, two as in en.txt,de.txt, a Hub id, or builtin:primer.")
    ] = None,
    src: Annotated[
        str | None, Option(help="The language to translate from, such as en, or several, as in de,fr.")
    ] = None,
    tgt: Annotated[
        str | None, Option(help="The language to translate to, such as de, or several, as in de,fr.")
    ] = None,
    both_ways: Annotated[
        bool, Option(help="Learn the reversed directions as well, in the same model.")
    ] = False,
    name: Annotated[str | None, Option(help="The configuration of a Hub corpus that has several.")] = None,
    recipe: Annotated[
        str | None,
        Option(metavar="NAME", help="Print a config that is known to work. --recipe list names all of them."),
    ] = None,
    columns: Annotated[
        str | None,
        Option(metavar="SRC,TGT", help="The columns: names, or numbers such as 1,2 without a header."),
    ] = None,
    minutes: Annotated[
        float | None,
        Option(
            min=0.001,
            max=MOST_MINUTES,
            help="Minutes of the whole run, from the start of mt train to its end.",
        ),
    ] = None,
    delimiter: Annotated[
        Delimiter, Option(help="The column separator, if the header line does not show it.")
    ] = "auto",
    init_from: InitFromOption = None,
    student_of: Annotated[
        str | None,
        Option(metavar="RUN[,RUN]", help="A small, fast model that learns what these runs write for --data."),
    ] = None,
    output: Annotated[Path | None, Option("--output", "-o", help="Default: SRC-TGT.yaml.")] = None,
) -> None:
    """Inspect a corpus, time a few training steps, and write a commented config for your budget.

    Or print one of the configs that come with mt: mt init --recipe quickstart > quickstart.yaml
    """
    options = {"path": data, "src": src, "tgt": tgt, "name": name, "columns": columns}
    options["delimiter"] = None if delimiter == "auto" else delimiter
    given = {key: value for key, value in options.items() if value is not None}
    if recipe is not None:
        if given or minutes or output or init_from or student_of or both_ways:
            raise ConfigError("--recipe prints a finished config: give no other option with it.")
        from mt.config.load import recipe_text

        echo(recipe_text(recipe), nl=False)
        return
    from mt.preflight.directions import asked_directions

    check_excludes("--student-of", student_of, init_from=init_from)
    directions = asked_directions(data, src, tgt, both_ways=both_ways)
    if init_from is None and student_of is None and not (data and directions):
        if data and not (src or tgt):
            raise ConfigError(
                f"there is no folder {data} with folders such as en-de, named after directions: give --src "
                "and --tgt."
            )
        raise ConfigError(
            "give --data, --src and --tgt, such as: mt init --data my-corpus --src en --tgt de, "
            "or --recipe list, for the configs that come with mt."
        )
    languages = dict.fromkeys(chain(*directions))
    usual = "adapted" if init_from else "student" if student_of else "-".join(languages)
    file = output or Path(f"{usual}.yaml")
    if file.exists():
        raise ConfigError(f"{file} exists already. Choose another file with --output.")
    check_output(file)
    from mt.data.sources.find import check_sources

    try:
        origin = None if init_from is None else parse_origin(init_from)
        of_run = student_of.split(",")[0].strip() if student_of else origin and origin.run
        corpus = _corpus(given, Path(of_run) if of_run else None, both_ways=both_ways)
        check_sources(corpus)
        # After the checks above, because importing torch is slow.
        if student_of is not None:
            from mt.preflight.student import propose_student

            proposal = propose_student(student_of, corpus, minutes)
        elif origin is None:
            from mt.preflight.init import propose_config

            proposal = propose_config(corpus, minutes)
        else:
            from mt.preflight.adapt import propose_adaptation

            proposal = propose_adaptation(origin, corpus, minutes)
    except MtError as error:
        error.args = (_KEY.sub(_option, str(error)),)
        raise
    yaml = proposal.yaml
    if Path(SCHEMA_FILE).is_file():
        yaml = f"# yaml-language-server: $schema={os.path.relpath(SCHEMA_FILE, file.parent)}\n{yaml}"
    write_atomically(file, yaml)
    for line in proposal.summary:
        say(line)
    say(f"Wrote {file}. Train with it:  mt train --config {quote(str(file))}")


def _option(key: re.Match[str]) -> str:
    """The option of this command for one of the config, which errors name."""
    return f"--{key[1].replace('path', 'data')}{' ' if key[2] else ''}"


def _corpus(given: dict[str, str], origin: Path | None, *, both_ways: bool) -> "DataConfig":
    """The corpus that the options describe; what they leave out is as in the run to begin from."""
    from mt.config.data import DataConfig
    from mt.config.sources import parse_columns
    from mt.preflight.directions import asked_directions, data_of_directions

    try:
        parse_columns(given.get("columns", "src,tgt"))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    old = None
    if origin is not None:
        from mt.config.load import load_config

        old = load_config(as_run(origin).require().config_file).data
        given = {"path": old.path, "src": old.src, "tgt": old.tgt} | given
    directions = asked_directions(given["path"], given.get("src"), given.get("tgt"), both_ways=both_ways)
    if old and Path(given["path"]).resolve() == Path(old.path).resolve() and directions == old.directions[:1]:
        return old.model_copy(update=given)
    return DataConfig.model_validate(data_of_directions(given, directions))
