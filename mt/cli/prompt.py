"""The prompt of `mt translate`, which reads from a terminal."""

import itertools
from contextlib import suppress

from mt.cli.lines import LineTranslator
from mt.cli.logs import say
from mt.errors import DataError, MtError


def prompt(lines: LineTranslator) -> None:
    """Translate what is typed, line by line; an error in one is reported, and the next one is read."""
    say("Type a sentence and press Enter. Ctrl-C discards it, or stops its translation. Ctrl-D ends.")
    with suppress(ImportError):
        import readline  # noqa: F401 - input() then edits the line and recalls earlier ones.
    numbers = itertools.count(1)
    while True:
        try:
            # Text that is pasted may have several lines.
            for line in filter(str.strip, input("> ").split("\n")):
                _answer(lines, line, next(numbers))
        except KeyboardInterrupt:
            print()
        except EOFError:
            print()
            return


def _answer(lines: LineTranslator, line: str, number: int) -> None:
    try:
        block = lines.translate([line], number)
        if block.reasons:
            raise DataError(block.reasons[number])
    except MtError as error:
        say(f"mt: {error}")
        return
    lines.write(block, number)
    lines.count(block)
    for warning in lines.warnings():
        say(f"warning: {warning}")
