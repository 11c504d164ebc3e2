"""`mt config`: every option that a config can have."""

from typing import Annotated

import typer


def config(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[SECTION|OPTION]",
            help="A section such as schedule, or an option such as schedule.learning_rate. Default: all.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """List the options of a config file, each with its default and what it does.

    The output is YAML, so that lines of it can be copied into a config.
    """
    from mt.config.write import options_to_yaml

    typer.echo(options_to_yaml(name), nl=False)
