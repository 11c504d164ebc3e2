"""`mt runs`: all runs as a table."""

import math
import shutil
import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from mt.cli.options import RUNS, named_run


def runs(
    paths: Annotated[
        list[Path] | None,
        Argument(metavar="PATH", help="Runs, or folders of runs.", show_default="runs/"),
    ] = None,
    sort: Annotated[
        str | None, Option(metavar="COLUMN", help="Sort by a column or option, such as 'test BLEU'.")
    ] = None,
) -> None:
    """List the runs: whether each is running or finished, how far it has got, its BLEU, and its settings.

    Options in which the runs differ are further columns, on a terminal as far as there is room. Of runs
    that differ in their seed only, the mean of the scores is added.

    The best BLEU is that of validation, the test BLEU that of the newest mt evaluate. Tokens and speed are
    those of targets.
    """
    from mt.reports.facts import RunFacts
    from mt.reports.runs import differing_options, find_runs, runs_table, sorted_by

    summaries = {
        str(run.path) if paths else run.path.name: RunFacts(run)
        for run in find_runs(map(named_run, paths or [RUNS]))
    }
    differing = differing_options(summaries)
    if sort is not None:
        summaries = sorted_by(sort, summaries, differing)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else math.inf
    echo(runs_table(summaries, differing, width=width))
