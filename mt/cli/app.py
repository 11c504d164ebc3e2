"""The `mt` program with its list of commands, and the two shortest commands, `mt config` and `mt schema`.

Only the module of the command that is called is imported, and each command imports what it needs when it is
called, so that nothing waits for the libraries of something else.
"""

from collections import UserDict
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperGroup

import mt
from mt.cli.usage import Command

# Each is the function of this name in the module of this name.
COMMANDS = "init check train translate evaluate compare score attention serve average export runs show report"


class _Commands(UserDict[str, Any]):
    """The commands by their names; one that is only a name yet is imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        if self.data[name] is None:
            alone = typer.Typer(add_completion=False)
            alone.command(cls=Command)(getattr(import_module(f"mt.cli.{name}"), name))
            self.data[name] = typer.main.get_command(alone)
        return self.data[name]


class _Program(TyperGroup):
    def __init__(self, *, commands: Any, **more: Any) -> None:
        commands = _Commands(dict.fromkeys(COMMANDS.split()) | commands)
        super().__init__(commands=commands, **more)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names alone."""
        return list(self.commands)


app = typer.Typer(
    name="mt",
    cls=_Program,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mt {mt.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Train a Transformer for machine translation from a parallel corpus and one YAML file.

    To start: mt init --data FOLDER --src en --tgt de. Every command has --help.
    """


def _options() -> list[str]:
    """Completions for the shell: sections, and options with their sections."""
    from mt.config.explain import SECTIONS

    return [*SECTIONS, *(f"{section}.{key}" for section, fields in SECTIONS.items() for key in fields)]


@app.command(cls=Command)
def config(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="SECTION|OPTION",
            help="A section such as schedule, or an option such as schedule.learning_rate. Default: all.",
            show_default=False,
            autocompletion=_options,
        ),
    ] = None,
) -> None:
    """List the options of a config file, with their defaults and what they do.

    The output is YAML, so you can copy lines from it into a config.
    """
    from mt.config.write import options_to_yaml

    typer.echo(options_to_yaml(name), nl=False)


@app.command(cls=Command)
def schema() -> None:
    """Print a JSON Schema of config files, with which editors complete and check options.

    Save it beside your configs: mt schema > mt.schema.json. Configs that mt init writes there refer to it.
    """
    import json

    from mt.config.schema import config_schema

    typer.echo(json.dumps(config_schema(), indent=2, ensure_ascii=False))
