"""What a training text shows about lines to translate: its abbreviations, and lines without letters."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mt.data.chunks import tables_of
from mt.data.text_form import shows_nothing

if TYPE_CHECKING:
    import datasets

_LINES_LOOKED_AT, _MOST_ABBREVIATIONS = 50_000, 500


def line_facts(pairs: "datasets.Dataset") -> dict[str, object]:
    """The abbreviations in sources that are spread evenly, and how many of these have no letters."""
    chosen = pairs.select(range(0, len(pairs), len(pairs) // _LINES_LOOKED_AT + 1)).select_columns(["src"])
    lines = [line for table in tables_of(chosen) for line in table["src"].to_pylist()]
    return {"abbreviations": abbreviations(lines), "lines_without_letters": sum(map(has_no_letters, lines))}


def abbreviations(lines: Sequence[str]) -> list[str]:
    """The words before a full stop inside lines, the most frequent first, unless they also end lines.

    Where a line has several sentences, the words before its stops end other lines as well.
    """
    inside, at_end = Counter[str](), Counter[str]()
    for line in lines:
        words = line.split()
        inside.update(word for word in words[:-1] if word.endswith("."))
        at_end.update(words[-1:])
    # The more stops there are inside lines, the more often a word is there, and at no end, by chance.
    fewest = 3 + 5 * inside.total() / max(1, len(lines))
    common = (word for word, count in inside.most_common() if count >= fewest * (1 + at_end[word]))
    return [word.removesuffix(".") for word in common if not has_no_letters(word)][:_MOST_ABBREVIATIONS]


def has_no_letters(line: str) -> bool:
    """Whether a line shows something, but no letter: numbers, signs or emoji."""
    return not any(map(str.isalpha, line)) and not shows_nothing(line)
