"""Tables for a terminal, a paper or a program, and JSON."""

import csv
import json
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from typer import Option, echo

from mt.display import aligned, markdown_table

TableForm = Literal["text", "md", "latex", "csv"]
FormatOption = Annotated[TableForm | None, Option("--format", help="Print only a table, in this form.")]
JsonFlag = Annotated[bool, Option("--json", help="Print JSON, and nothing else, on stdout.")]
PLUS_MINUS = " ± "
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], form: TableForm) -> None:
    """Print a table whose first column is text; in CSV, standard deviations are columns of their own."""
    if form == "csv":
        columns = []
        for title, *cells in zip(head, *rows, strict=True):
            parts = [cell.partition(PLUS_MINUS) for cell in cells]
            columns.append([title, *(mean for mean, _, _ in parts)])
            if any(deviation for _, _, deviation in parts):
                columns.append([f"{title} sd", *(deviation for _, _, deviation in parts)])
        csv.writer(sys.stdout, lineterminator="\n").writerows(zip(*columns, strict=True))
    elif form == "md":
        escaped = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
        echo(markdown_table(escaped[0], escaped[1:]))
    elif form == "latex":
        lines = [f"{' & '.join(map(_latex, row))} \\\\" for row in (head, *rows)]
        table = [rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", "\\toprule", lines[0], "\\midrule"]
        # With \usepackage{booktabs}.
        echo("\n".join([*table, *lines[1:], "\\bottomrule", "\\end{tabular}"]))
    else:
        echo("\n".join(aligned([head, *rows], num_texts=1)))


def _latex(text: str) -> str:
    return re.sub(r"[\\~^±&%$#_{}]", lambda found: _LATEX.get(found[0], f"\\{found[0]}"), text)


def print_json(value: Any) -> None:
    """Print a value as JSON on one line, with null for NaN, which JSON does not have."""
    finite = json.loads(json.dumps(value, default=str), parse_constant=lambda name: None)
    sys.stdout.write(f"{json.dumps(finite, ensure_ascii=False)}\n")
