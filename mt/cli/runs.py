"""`mt runs`: all runs as a table."""

import math
import shutil
import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from mt.cli.logs import say
from mt.cli.options import RUNS, check_excludes, check_needs, named_run
from mt.cli.tables import FormatOption, JsonFlag, print_json, print_table
from mt.errors import ConfigError


def runs(
    paths: Annotated[
        list[Path] | None,
        Argument(metavar="PATH", help="Runs, or folders of runs.", show_default="runs/"),
    ] = None,
    sort: Annotated[
        str | None, Option(metavar="COLUMN", help="Sort by a column or option, such as 'test BLEU'.")
    ] = None,
    table: FormatOption = None,
    scores: Annotated[
        list[str] | None,
        Option(metavar="COLUMN=FILE", help="With --format: scores in this file of each run, as by COMET."),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """List the runs: whether each is running or finished, how far it has got, its BLEU, and its settings.

    Options in which the runs differ are further columns, on a terminal as far as there is room. Of runs
    that differ in their seed only, the mean of the scores is added; with --format, they are one row.

    The best BLEU is that of validation, the test BLEU that of the newest mt evaluate. Tokens and speed are
    those of targets.
    """
    check_excludes("--json", json, format=table)
    check_needs("a table: add --format text", table is not None, scores=scores)
    from mt.reports.facts import RunFacts
    from mt.reports.runs import (
        differing_options,
        find_runs,
        notes_on_tests,
        runs_table,
        settings_table,
        sorted_by,
    )

    summaries = {
        str(run.path) if paths else run.path.name: RunFacts(run)
        for run in find_runs(map(named_run, paths or [RUNS]))
    }
    differing = differing_options(summaries)
    if sort is not None:
        summaries = sorted_by(sort, summaries, differing)
    if json:
        rows = []
        for name, facts in summaries.items():
            options = {option: of_runs.get(name) for option, of_runs in differing.items()}
            rows.append({"name": name, **facts.summary, "options": options})
        print_json(rows)
    elif table is not None:
        files = {}
        for text in scores or []:
            title, _, file = text.partition("=")
            if not (title and file):
                raise ConfigError(f"--scores {text}: the form is COLUMN=FILE, such as COMET=comet.json.")
            files[title] = Path(file)
        print_table(*settings_table(summaries, differing, files), table)
        for note in notes_on_tests(summaries.values()):
            say(note)
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else math.inf
        echo(runs_table(summaries, differing, width=width))
