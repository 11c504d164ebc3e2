"""`mt show`: what happened in one run."""

from pathlib import Path
from typing import Annotated

from typer import Argument, echo

from mt.cli.options import RUNS, complete_runs, named_run
from mt.cli.tables import JsonFlag, print_json
from mt.run_directory import as_run, newest_run


def show(
    run: Annotated[
        Path | None,
        Argument(
            help="The run: its name, path or hub:org/name.",
            show_default="the newest in runs/",
            autocompletion=complete_runs,
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Show one run: its corpus and vocabulary, its curves, its interruptions, and its scores.

    Also lists the checkpoints, and the results of mt evaluate with signatures and intervals.
    """
    directory = newest_run(RUNS, with_checkpoint=False) if run is None else as_run(named_run(run)).require()
    from mt.reports.facts import RunFacts
    from mt.reports.show import describe, to_json

    facts = RunFacts(directory)
    if json:
        print_json(to_json(facts))
    else:
        echo(describe(facts))
