"""`mt runs`: summaries as a table, and as JSON; and how `mt show` and `mt report` write numbers."""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mt.display import one_line, size
from mt.reports.summary import RunSummary

UNKNOWN = "-"
_MAX_VALUE = 40


def short_count(number: float) -> str:
    """A number with about three digits, such as ``950``, ``12.3k`` and ``2.32M``."""
    rounded = float(f"{number:.3g}")
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rounded >= unit:
            return f"{rounded / unit:,g}{name}"
    return f"{rounded:g}"


def short_duration(seconds: float) -> str:
    """A duration in the largest fitting unit, such as ``40 s``, ``12 min``, ``5 h`` or ``31 d``."""
    for limit, unit, name in ((60, 1, "s"), (3600, 60, "min"), (48 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds // unit:.0f} {name}"
    return f"{seconds // 86400:,.0f} d"


# The title of each column, the field of a summary, and how it is written.
_COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("state", "state", str),
    ("step", "step", "{:,}".format),
    ("epochs", "epochs", "{:,}".format),
    ("target tokens", "num_target_tokens", short_count),
    ("best BLEU", "best_bleu", "{:.2f}".format),
    ("at step", "best_bleu_step", "{:,}".format),
    ("tokens/s", "tokens_per_second", "{:,.0f}".format),
    ("age", "age_seconds", short_duration),
    ("size", "num_bytes", size),
)


def terminal_table(rows: Sequence[Sequence[str]], *, num_texts: int) -> str:
    """Rows with aligned columns, the first ``num_texts`` to the left, the others to the right."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for index in range(len(rows[0])):
        table.add_column(justify="left" if index < num_texts else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    # Wider than any line: a table that is piped into another program must not be cut off.
    console = Console(file=io.StringIO(), width=100_000, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def runs_table(summaries: Sequence[RunSummary], names: Sequence[str]) -> str:
    """A header and one line for each run, then a sentence for each run that is training or damaged."""
    rows = [["name", *(title for title, _, _ in _COLUMNS)]]
    notes = []
    for name, summary in zip(map(one_line, names), summaries, strict=True):
        values = [(getattr(summary, field), form) for _, field, form in _COLUMNS]
        rows.append([name, *(UNKNOWN if value is None else form(value) for value, form in values)])
        if summary.detail is not None and summary.state in ("running", "damaged"):
            notes.append(f"{name}: {summary.state}, {one_line(summary.detail)}")
    return "\n".join([terminal_table(rows, num_texts=2), *([""] if notes else []), *notes])


def differences_table(differing: Mapping[str, Sequence[str]], names: Sequence[str]) -> str:
    """One line for each option, with its value in each run."""
    if not differing:
        return "no option differs"
    rows = [(key, *(one_line(value, _MAX_VALUE) for value in values)) for key, values in differing.items()]
    return terminal_table([("option", *map(one_line, names)), *rows], num_texts=1 + len(names))


def runs_json(
    summaries: Sequence[RunSummary], names: Sequence[str], differing: Mapping[str, Sequence[str]]
) -> str:
    """The same facts as JSON in ASCII, with exact numbers in base units."""
    fields = ["detail", *(field for _, field, _ in _COLUMNS)]
    runs = [
        {"name": name, "path": str(summary.run.path), **{field: getattr(summary, field) for field in fields}}
        for name, summary in zip(names, summaries, strict=True)
    ]
    return json.dumps({"runs": runs, "differing_options": differing}, indent=2)
