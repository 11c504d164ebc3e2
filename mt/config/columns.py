"""``data.columns`` and ``data.delimiter``: where a table holds the pairs, if not where one would expect."""

import re
from typing import Literal, get_args

Delimiter = Literal["auto", "tab", "comma", "semicolon", "pipe"]
DELIMITERS: tuple[Delimiter, ...] = get_args(Delimiter)


def parse_columns(columns: str) -> tuple[str, str]:
    """The source's and the target's column: two names, or two numbers from 1 on.

    Raises:
        ValueError: If ``columns`` is something else; the message is for the user.
    """
    parts = [part.strip() for part in columns.split(",")]
    if len(parts) != 2 or not all(parts) or parts[0] == parts[1]:
        raise ValueError(
            f"data.columns must be two columns with a comma between them, the source's first, such as "
            f"english,german (or 1,2 where the file has no header), not {columns!r}."
        )
    if are_positions(*parts) and not all(map(int, parts)):
        raise ValueError(f"data.columns ({columns}): columns are counted from 1.")
    return parts[0], parts[1]


def are_positions(*columns: str) -> bool:
    """Whether columns are given by their numbers, as those of a file without a header are."""
    return all(re.fullmatch("[0-9]{1,6}", column) for column in columns)
