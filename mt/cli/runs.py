"""`mt runs`: all runs as a table."""

import time
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from mt.cli.options import RUNS, named_run


def runs(
    paths: Annotated[
        list[Path] | None,
        Argument(metavar="PATH", help="Runs, or folders of runs.", show_default="runs/"),
    ] = None,
    json: Annotated[bool, Option("--json", help="Print JSON instead, with exact numbers.")] = False,
) -> None:
    """List the runs: whether each is running or finished, how far it has got, and its best BLEU.

    With two or more PATHS, it also shows the options in which the runs differ.

    BLEU is measured in validation. The age is the time since training last wrote metrics or a checkpoint,
    and the speed is in target tokens. A damaged run is listed with what is wrong with it.
    """
    from mt.reports.facts import RunFacts
    from mt.reports.runs import differences_table, differing_options, find_runs, runs_json, runs_table

    now = time.time()
    summaries = {
        str(run.path) if paths else run.path.name: RunFacts(run, now=now)
        for run in find_runs(map(named_run, paths or [RUNS]))
    }
    usable = {name: summary.config for name, summary in summaries.items() if summary.config}
    is_comparing = paths is not None and len(paths) > 1 and len(usable) > 1
    differing = differing_options(usable) if is_comparing else {}
    if json:
        echo(runs_json(summaries, differing))
        return
    echo(runs_table(summaries))
    if is_comparing:
        echo("\n" + differences_table(differing, usable))
