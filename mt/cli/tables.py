"""Tables for a terminal, a paper or a program, and JSON."""

import csv
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic_core import to_json
from typer import Option, echo

from mt.display import aligned, markdown_table

TableForm = Literal["text", "md", "latex", "csv"]
FormatOption = Annotated[TableForm | None, Option("--format", help="Print only a table, in this form.")]
JsonFlag = Annotated[bool, Option("--json", help="Print JSON, and nothing else, on stdout.")]
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
_LATEX |= {character: f"\\{character}" for character in "&%$#_{}"}
Rows = Sequence[Sequence[str]]


def print_table(head: Sequence[str], rows: Rows, form: TableForm) -> None:
    """Print a table whose first column is text: for a terminal, in Markdown, for LaTeX's booktabs, or as CSV.

    In CSV, a column with standard deviations, as in ``33.10 ± 0.20``, is two.
    """
    if form == "text":
        for line in aligned([head, *rows], num_texts=1):
            echo(line)
    elif form == "md":
        echo(markdown_table(head, rows))
    elif form == "latex":
        echo(f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}")
        echo("\\toprule")
        for row in (head, *rows):
            cells = ["".join(_LATEX.get(letter, letter) for letter in cell) for cell in row]
            echo(f"{' & '.join(cells)} \\\\")
            if row is head:
                echo("\\midrule")
        echo("\\bottomrule")
        echo("\\end{tabular}")
    else:
        columns: list[list[str]] = []
        for title, *cells in zip(head, *rows, strict=True):
            means = [title]
            deviations = [f"{title} sd"]
            for cell in cells:
                mean, _, deviation = cell.partition(" ± ")
                means.append(mean)
                deviations.append(deviation)
            columns.append(means)
            if any(deviations[1:]):
                columns.append(deviations)
        csv.writer(sys.stdout, lineterminator="\n").writerows(zip(*columns, strict=True))


def print_json(value: Any) -> None:
    """Print a value as JSON on one line, with null for NaN, which JSON does not have."""
    sys.stdout.write(f"{to_json(value, inf_nan_mode='null', fallback=str).decode()}\n")
