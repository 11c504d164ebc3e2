"""The prompt of `mt translate`, which reads from a terminal with line editing and a history."""

import contextlib
import io
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from mt.cli.lines import LineTranslator
from mt.cli.logs import say
from mt.errors import DataError, MtError

LINES_KEPT = 1000


def prompt(lines: LineTranslator) -> None:
    """Translate what is typed, line by line; an error in one is reported, and the next one is read."""
    say("Type a sentence and press Enter. Ctrl-C discards it, or stops its translation. Ctrl-D ends.")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    numbers = itertools.count(1)
    with _history():
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
    lines.write(block.translations, number)
    lines.count(block)
    for warning in lines.warnings():
        say(f"warning: {warning}")


@contextlib.contextmanager
def _history() -> Iterator[None]:
    """Let the arrow keys and Ctrl-R recall the lines of earlier sessions, from a file only the user may read.

    Where the file cannot be used, or Python was built without readline, lines are not kept.
    """
    try:
        import readline
    except ImportError:
        yield
        return
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    file = state / "mt" / "translate_history"
    readline.set_history_length(LINES_KEPT)
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        readline.read_history_file(file)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            readline.write_history_file(file)
