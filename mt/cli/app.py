"""The `mt` program with its list of commands, and the two shortest commands, `mt config` and `mt schema`.

Each command imports what it needs when it is called, so that ``mt --help`` does not wait for torch.
"""

from typing import Annotated

import typer

import mt
from mt.cli.attention import attention
from mt.cli.average import average
from mt.cli.check import check
from mt.cli.compare import compare
from mt.cli.evaluate import evaluate
from mt.cli.export import export
from mt.cli.init import init
from mt.cli.report import report
from mt.cli.runs import runs
from mt.cli.score import score
from mt.cli.serve import serve
from mt.cli.show import show
from mt.cli.train import train
from mt.cli.translate import translate
from mt.cli.usage import Command

app = typer.Typer(
    name="mt",
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


def schema() -> None:
    """Print a JSON Schema of config files, with which editors complete and check options.

    Save it beside your configs: mt schema > mt.schema.json. Configs that mt init writes there refer to it.
    """
    import json

    from mt.config.schema import config_schema

    typer.echo(json.dumps(config_schema(), indent=2, ensure_ascii=False))


app.command(cls=Command)(init)
app.command(cls=Command)(check)
app.command(cls=Command)(train)
app.command(cls=Command)(translate)
app.command(cls=Command)(evaluate)
app.command(cls=Command)(compare)
app.command(cls=Command)(score)
app.command(cls=Command)(attention)
app.command(cls=Command)(serve)
app.command(cls=Command)(average)
app.command(cls=Command)(export)
app.command(cls=Command)(runs)
app.command(cls=Command)(show)
app.command(cls=Command)(report)
app.command(cls=Command)(config)
app.command(cls=Command)(schema)
