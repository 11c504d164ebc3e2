"""The prompt of `mt translate`, which reads from a terminal with line editing and a history."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from mt.cli.lines import LineTranslator
from mt.cli.logs import say
from mt.cli.options import LARGEST_BEAM
from mt.display import counted, in_precision
from mt.errors import ConfigError, DataError, MtError

INVITATION = "Type a sentence and press Enter. :help lists the commands, Ctrl-D ends."
COMMANDS = """\
:beam N    Set the beam size; 1 is greedy search.
:nbest N   Show the N best translations, with line number, score and log-probability; 1 shows the best alone.
:help      Show this list.
:quit      Quit, like Ctrl-D. Ctrl-C discards a line, or stops its translation."""
LINES_KEPT = 1000


class Prompt:
    """Translates what is typed, line by line. An error in one line is reported, and the next one is read."""

    def __init__(self, lines: LineTranslator) -> None:
        """Create a prompt, whose commands replace options of ``lines``."""
        self._lines = lines
        self._next_line = 1

    def run(self) -> None:
        """Read and translate lines until the end of the input, or until ``:quit``."""
        say(INVITATION)
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
        with _history():
            while True:
                try:
                    typed = input("> ")
                except KeyboardInterrupt:
                    print()
                    continue
                except EOFError:
                    print()
                    return
                # Text that is pasted may have several lines.
                for line in typed.split("\n"):
                    if line.strip() == ":quit":
                        return
                    self._answer(line)

    def _answer(self, line: str) -> None:
        try:
            if line.startswith(":"):
                self._execute(line)
            elif line.strip():
                self._translate(line)
        except MtError as error:
            say(f"mt: {error}")
        except KeyboardInterrupt:
            say("")

    def _translate(self, line: str) -> None:
        number = self._next_line
        self._next_line += 1
        block = self._lines.translate([line], number)
        if block.reasons:
            raise DataError(block.reasons[number])
        self._lines.write(block.translations, number)
        self._lines.count(block)
        for warning in self._lines.warnings():
            say(f"warning: {warning}")

    def _execute(self, line: str) -> None:
        match line[1:].split():
            case ["help"]:
                say(COMMANDS)
            case ["beam" | "nbest" as name, number] if number.isdecimal() and len(number) < 10:
                self._set(name, int(number))
            case _:
                raise ConfigError(
                    f"there is no command {line.strip()!r}: the commands are :beam N, :nbest N, :help and "
                    ":quit. To translate a line that begins with a colon, type a space before it."
                )

    def _set(self, name: str, size: int) -> None:
        from mt.search.strategy import Beam, Sampling

        options = self._lines.options
        strategy = options["strategy"] or Beam(1)
        if isinstance(strategy, Sampling):
            raise ConfigError(f":{name} is for beam search: start mt translate without --sample.")
        beam, num_best = (size, options["num_best"]) if name == "beam" else (strategy.size, size)
        if not 1 <= num_best <= beam <= LARGEST_BEAM:
            raise ConfigError(
                f":{name} {size} is not possible: the beam has 1 to {LARGEST_BEAM} hypotheses, and at least "
                "as many as :nbest shows."
            )
        options |= {"num_best": num_best, "strategy": replace(strategy, size=beam)}
        if name == "nbest":
            options["with_scores"] = num_best > 1
        scores = in_precision(self._lines.translator.precision) if options["with_scores"] else ""
        say(f"beam {beam}, {counted(num_best, 'translation')} of each line{scores}")


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
