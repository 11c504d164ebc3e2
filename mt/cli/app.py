"""The `mt` program: its list of commands, which are imported when called, and `mt config` and `mt schema`."""

import inspect
import json
import math
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

import mt
from mt.cli.logs import show_logs

# Each is the function of this name in the module of this name; `import_` for import.
COMMANDS = (
    "init check train translate evaluate compare score attention serve average export import runs show report"
)


class _Command(TyperCommand):
    def __init__(self, *args: Any, help: str | None = None, **more: Any) -> None:
        # Each paragraph on one line, which typer then wraps; lists, such as those of exit codes, as they are.
        paragraphs = inspect.cleandoc(help or "").split("\n\n")
        unwrapped = (text if "\n " in f"\n{text}" else text.replace("\n", " ") for text in paragraphs)
        super().__init__(*args, help="\n\n".join(unwrapped), **more)
        for option in self.params:
            # A flag is off unless it is given: it has no second name that begins with --no-.
            option.secondary_opts = []

    def _with_all_values(self, args: list[str]) -> list[str]:
        """``--against A B`` as ``--against A --against B``: a shell writes a pattern out as its files."""
        several = [name for option in self.params if "..." in str(option.metavar) for name in option.opts]
        repeated: list[str] = []
        option = ""
        for argument in args:
            if argument.startswith("-"):
                option = argument if argument in several else ""
            elif option and repeated[-1] != option:
                repeated.append(option)
            repeated.append(argument)
        return repeated

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse options that are empty or NaN, and repeated ones of which only the last would count."""
        args = self._with_all_values(args)
        values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for option in order:
            if values[str(option.name)] == "" and option.opts[0].startswith("-"):
                ctx.fail(f"{option.opts[0]} is empty: give it a value, or leave it out.")
            if order.count(option) > 1 and not option.multiple:
                ctx.fail(
                    f"{option.opts[0]} was given {order.count(option)} times, but can only have one value."
                )
        rest = super().parse_args(ctx, args)
        for option in order:
            value = ctx.params.get(option.name)
            # NaN is in every range.
            if isinstance(value, float) and not math.isfinite(value):
                ctx.fail(f"{option.opts[0]} must be a finite number.")
        return rest


class _Program(TyperGroup):
    def __init__(self, *, commands: Any, **more: Any) -> None:
        super().__init__(commands=dict.fromkeys(COMMANDS.split()) | commands, **more)

    def get_command(self, ctx: Any, name: str) -> Any:
        """The command of this name; one that is only a name yet is imported."""
        if name in self.commands and self.commands[name] is None:
            alone = typer.Typer(add_completion=False)
            name_in_python = f"{name}_" if iskeyword(name) else name
            alone.command(name, cls=_Command)(
                getattr(import_module(f"mt.cli.{name_in_python}"), name_in_python)
            )
            self.commands[name] = typer.main.get_command(alone)
        return self.commands.get(name)


app = typer.Typer(
    name="mt",
    cls=_Program,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_given: bool) -> None:
    if is_given:
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
    show_logs()


@app.command(cls=_Command)
def config(
    name: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME|WORDS",
            help="A section, an option, or words, such as schedule, clip_norm or early stopping.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """List the options of a config file, with their defaults and what they do.

    The output is YAML, so you can copy lines from it into a config.
    """
    from mt.config.write import options_to_yaml

    typer.echo(options_to_yaml(" ".join(name) if name else None), nl=False)


@app.command(cls=_Command)
def schema() -> None:
    """Print a JSON Schema of config files, with which editors complete and check options.

    Save it beside your configs: mt schema > mt.schema.json. Configs that mt init writes there refer to it.
    """
    from mt.config.config import Config

    typer.echo(json.dumps(Config.model_json_schema(), indent=2, ensure_ascii=False))
