"""`mt average`: average several checkpoints into one."""

from shlex import quote
from typing import Annotated

from typer import Option, echo

from mt.cli.logs import say
from mt.cli.options import RunOption, check_excludes, find_run


def average(
    run: RunOption = None,
    last: Annotated[
        int | None, Option(min=1, metavar="K", help="The last K checkpoints. Default: 5.")
    ] = None,
    best: Annotated[
        int | None, Option(min=1, metavar="K", help="The K checkpoints with the best validation score.")
    ] = None,
) -> None:
    """Average the weights of several checkpoints into one, which often translates better.

    To use the average, give its name to mt translate or mt evaluate with --checkpoint.

    The option checkpoint.keep of the config sets how many checkpoints there are to average.
    """
    check_excludes("--last", last, best=best)
    directory = find_run(run)
    from mt.training.average import average_checkpoints

    made = average_checkpoints(directory, best or last or 5, best=best is not None)
    echo(f"{made.folder}")
    name = quote(str(directory.path))
    say(
        f"Score it:  mt evaluate --run {name} --checkpoint {made.name} --split validation\n"
        f"Is it better than the best?  mt compare {name} {quote(str(made.folder))} --split validation"
    )
