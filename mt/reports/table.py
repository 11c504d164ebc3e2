"""`mt runs`: summaries as an aligned table, and as JSON."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta

from mt.display import aligned, one_line, size
from mt.reports.summary import RunSummary

_HEAD = (
    "name",
    "state",
    "step",
    "epochs",
    "target tokens",
    "best BLEU",
    "at step",
    "tokens/s",
    "age",
    "size",
)
_NUM_TEXTS = 2  # The first columns, which are aligned left.
UNKNOWN = "-"
_MAX_VALUE = 40


def runs_table(summaries: Sequence[RunSummary], names: Sequence[str]) -> str:
    """A header and one line for each run, then a sentence for each run that is training or damaged."""
    rows = [(one_line(name), *_row(each)) for name, each in zip(names, summaries, strict=True)]
    notes = [
        f"{one_line(name)}: {each.state}, {one_line(each.detail)}"
        for name, each in zip(names, summaries, strict=True)
        if each.detail is not None and each.state in ("running", "damaged")
    ]
    return "\n".join([*aligned([_HEAD, *rows], num_texts=_NUM_TEXTS), *([""] if notes else []), *notes])


def differences_table(differing: Mapping[str, Sequence[str]], names: Sequence[str]) -> str:
    """One line for each option, with its value in each run."""
    if not differing:
        return "no option differs"
    rows = [(key, *(one_line(value, _MAX_VALUE) for value in values)) for key, values in differing.items()]
    head = ("option", *map(one_line, names))
    return "\n".join(aligned([head, *rows]))


def runs_json(
    summaries: Sequence[RunSummary], names: Sequence[str], differing: Mapping[str, Sequence[str]]
) -> str:
    """The same facts as JSON in ASCII, with exact numbers in base units."""
    runs = [
        {
            "name": name,
            "path": str(each.run.path),
            "state": each.state,
            "detail": each.detail,
            "step": each.step,
            "epochs": each.epochs,
            "num_target_tokens": each.num_target_tokens,
            "best_bleu": each.best_bleu,
            "best_bleu_step": each.best_bleu_step,
            "tokens_per_second": each.tokens_per_second,
            "age_seconds": None if each.age_seconds is None else round(each.age_seconds),
            "num_bytes": each.num_bytes,
        }
        for name, each in zip(names, summaries, strict=True)
    ]
    return json.dumps({"runs": runs, "differing_options": differing}, indent=2)


def _row(each: RunSummary) -> tuple[str, ...]:
    return (
        each.state,
        _count(each.step),
        _count(each.epochs),
        UNKNOWN if each.num_target_tokens is None else short_count(each.num_target_tokens),
        UNKNOWN if each.best_bleu is None else f"{each.best_bleu:.2f}",
        _count(each.best_bleu_step),
        UNKNOWN if each.tokens_per_second is None else f"{each.tokens_per_second:,.0f}",
        UNKNOWN if each.age_seconds is None else short_duration(each.age_seconds),
        size(each.num_bytes),
    )


def _count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def short_count(number: float) -> str:
    """A number with about three digits, such as ``950``, ``12.3k`` and ``2.32M``."""
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        # From here on, three digits of the next smaller unit are rounded up to 1,000.
        if abs(number) >= (0.9995 * unit if unit > 1e3 else unit):
            is_small = abs(number) < 999.5 * unit
            return f"{number / unit:.3g}{name}" if is_small else f"{number / unit:,.0f}{name}"
    return f"{number:g}"


def short_duration(seconds: float) -> str:
    """A duration in the largest fitting unit, such as ``40 s``, ``12 min``, ``5 h`` or ``31 d``."""
    span = timedelta(seconds=min(max(seconds, 0.0), 1e12))
    if span < timedelta(minutes=1):
        return f"{span.seconds} s"
    if span < timedelta(hours=1):
        return f"{span.seconds // 60} min"
    if span < timedelta(days=2):
        return f"{span // timedelta(hours=1)} h"
    return f"{span.days:,} d"
