"""`mt runs`: summaries as a table, and as JSON; and how `mt show` and `mt report` write numbers."""

import io
import json
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mt.display import one_line, size
from mt.reports.summary import RunSummary

_HEAD = (
    *("name", "state", "step", "epochs", "target tokens", "best BLEU", "at step", "tokens/s", "age", "size"),
)
UNKNOWN = "-"
_MAX_VALUE = 40


def terminal_table(rows: Iterable[Sequence[str]], *, num_texts: int) -> str:
    """Rows with aligned columns, the first ``num_texts`` to the left, the others to the right."""
    rows = list(rows)
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
    named = [(one_line(name), summary) for name, summary in zip(names, summaries, strict=True)]
    notes = [
        f"{name}: {summary.state}, {one_line(summary.detail)}"
        for name, summary in named
        if summary.detail is not None and summary.state in ("running", "damaged")
    ]
    table = terminal_table([_HEAD, *((name, *_row(summary)) for name, summary in named)], num_texts=2)
    return "\n".join([table, *([""] if notes else []), *notes])


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
    runs = [
        {
            "name": name,
            "path": str(summary.run.path),
            "state": summary.state,
            "detail": summary.detail,
            "step": summary.counters.step if summary.counters else None,
            "epochs": summary.counters.epoch if summary.counters else None,
            "num_target_tokens": summary.counters.num_target_tokens if summary.counters else None,
            "best_bleu": summary.best_bleu[0] if summary.best_bleu else None,
            "best_bleu_step": summary.best_bleu[1] if summary.best_bleu else None,
            "tokens_per_second": summary.tokens_per_second,
            "age_seconds": None if summary.age_seconds is None else round(summary.age_seconds),
            "num_bytes": summary.num_bytes,
        }
        for name, summary in zip(names, summaries, strict=True)
    ]
    return json.dumps({"runs": runs, "differing_options": differing}, indent=2)


def _row(summary: RunSummary) -> tuple[str, ...]:
    counters, best, speed, age = (
        summary.counters, summary.best_bleu, summary.tokens_per_second, summary.age_seconds,
    )  # fmt: skip
    return (
        summary.state,
        f"{counters.step:,}" if counters else UNKNOWN,
        f"{counters.epoch:,}" if counters else UNKNOWN,
        short_count(counters.num_target_tokens) if counters else UNKNOWN,
        f"{best[0]:.2f}" if best else UNKNOWN,
        f"{best[1]:,}" if best else UNKNOWN,
        UNKNOWN if speed is None else f"{speed:,.0f}",
        UNKNOWN if age is None else short_duration(age),
        size(summary.num_bytes),
    )


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
