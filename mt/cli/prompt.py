"""The prompt of `mt translate`, which reads from a terminal with line editing and a history."""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from mt.cli.logs import say
from mt.cli.options import LARGEST_BEAM
from mt.cli.remedies import sentence
from mt.cli.unusual_lines import Pairs, Search, UnknownWords
from mt.display import counted, in_precision
from mt.errors import ConfigError, DataError, MtError
from mt.files import append_line, read_text, write_atomically
from mt.inference.arriving_lines import why_not_text

if TYPE_CHECKING:
    from mt.inference.segments import Translation
    from mt.search.strategy import Strategy

PROMPT = "> "
INVITATION = "Type a sentence and press Enter. :help lists the commands, Ctrl-D ends."
COMMANDS = """\
:beam N    Set the beam size; 1 is greedy search.
:nbest N   Show the N best translations, with line number, score and log-probability; 1 shows the best alone.
:help      Show this list.
:quit      Quit, like Ctrl-D. Ctrl-C discards a line, or stops its translation."""

# The limits of the history: lines kept between sessions, and characters per line.
MOST_LINES = 1000
MOST_CHARACTERS = 2000
# What a session adds is trimmed at the start of the next one; UTF-8 has at most four bytes per character.
_MOST_BYTES = 8 * MOST_LINES * MOST_CHARACTERS

Read = Callable[[list[str], int], tuple[Pairs, Mapping[int, str]]]
"""Takes lines and the number of the first; returns pairs, and why some lines are not text, by number."""
Write = Callable[["Sequence[Sequence[Translation]]", int | None], None]
"""Takes the translations of lines, and the number of the first line if it is to be written with scores."""


class Prompt:
    """Translates what is typed, line by line. An error in one line is reported, and the next one is read."""

    def __init__(
        self,
        search: Search,
        read: Read,
        write: Write,
        unknown_words: UnknownWords,
        strategy: "Strategy",
        num_best: int | None,
        precision: str,
    ) -> None:
        """Create a prompt.

        Args:
            search: Translates lines with the options of the command; the commands replace some of them.
            read: Splits a line into source and prefix.
            write: Writes the translations of a line.
            unknown_words: Warns about words that the model does not know, here after each line.
            strategy: The decoding strategy to begin with.
            num_best: The translations of each line to begin with; None for the best one without scores.
            precision: What the scores are computed in.
        """
        from mt.search.strategy import Beam, Sampling

        self._search, self._read, self._write = search, read, write
        self._unknown_words = unknown_words
        self._sampling = strategy if isinstance(strategy, Sampling) else None
        self._beam = strategy if isinstance(strategy, Beam) else Beam(1)
        self._num_best = num_best
        self._precision = precision
        self._next_line = 1

    def run(self) -> NoReturn:
        """Read and translate lines until the end of the input, or until ``:quit``."""
        print(INVITATION, file=sys.stderr)
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
        history = History()
        while True:
            try:
                typed = input(PROMPT)
            except KeyboardInterrupt:
                print()
                continue
            except EOFError:
                print()
                raise typer.Exit from None
            history.add(typed)
            # Text that is pasted may have several lines.
            for line in typed.split("\n"):
                self._answer(line)

    def _answer(self, line: str) -> None:
        try:
            if line.startswith(":"):
                self._obey(line)
            elif line.strip():
                self._translate(line)
        except MtError as error:
            say(f"mt: {sentence(error)}")
        except KeyboardInterrupt:
            print(file=sys.stderr)

    def _translate(self, line: str) -> None:
        number = self._next_line
        self._next_line += 1
        [(source, prefix)], reasons = self._read([line], number)
        if reasons:
            raise DataError(reasons[number])
        found = self._search(
            [source],
            prefixes=[prefix],
            first_line=number,
            strategy=self._strategy,
            num_best=self._num_best or 1,
            with_scores=self._num_best is not None,
        )
        self._write(found, None if self._num_best is None else number)
        self._unknown_words.count([(source, prefix)], found)
        if warning := self._unknown_words.warning():
            say(f"warning: {warning}")
        self._unknown_words.clear()

    @property
    def _strategy(self) -> "Strategy":
        return self._sampling or (None if self._beam.size == 1 else self._beam)

    def _obey(self, line: str) -> None:
        match line[1:].split():
            case ["help"]:
                print(COMMANDS, file=sys.stderr)
            case ["quit"]:
                raise typer.Exit
            case ["beam" | "nbest" as name, number]:
                self._set(name, _size(name, number))
            case _:
                raise ConfigError(
                    f"there is no command {line.strip()!r}: the commands are :beam N, :nbest N, :help and "
                    ":quit. To translate a line that begins with a colon, type a space before it."
                )

    def _set(self, name: str, size: int) -> None:
        if self._sampling is not None:
            raise ConfigError(f":{name} is for beam search: start mt translate without --sample.")
        if name == "nbest":
            if size > self._beam.size:
                raise ConfigError(
                    f":nbest {size} needs a beam of at least that size: give :beam {size} first."
                )
            self._num_best = None if size == 1 else size
        else:
            if size < (self._num_best or 1):
                raise ConfigError(f":beam {size} is smaller than the n-best list: give :nbest {size} first.")
            self._beam = replace(self._beam, size=size)
        shown = counted(self._num_best or 1, "translation")
        scores = in_precision(self._precision) if self._num_best else ""
        print(f"beam {self._beam.size}, {shown} of each line{scores}", file=sys.stderr)


def _size(name: str, number: str) -> int:
    # Ten digits are enough; int() refuses thousands of them with an error of its own.
    if not (number.isascii() and number.isdigit() and 1 <= int(number[:10]) <= LARGEST_BEAM):
        raise ConfigError(f":{name} takes a whole number from 1 to {LARGEST_BEAM}, such as :{name} 5.")
    return int(number[:10])


class History:
    """The lines typed in this and earlier sessions, for the arrow keys and Ctrl-R.

    They are in a file that only its owner may read, because sentences may be private. Where the file cannot
    be used, or Python was built without readline, lines are not kept.
    """

    def __init__(self) -> None:
        """Recall the lines of earlier sessions, and remove all but the newest `MOST_LINES` from the file."""
        self._file = history_file()
        self._is_kept = True
        try:
            import readline
        except ImportError:
            self._is_kept = False
            return
        with self._use_of_file():
            self._file.parent.mkdir(parents=True, exist_ok=True)
            lines = read_text(self._file, max_bytes=_MOST_BYTES).split("\n") if self._file.exists() else []
            kept = [line for line in lines if line and "\0" not in line][-MOST_LINES:]
            for line in kept:
                readline.add_history(line)
            if len(lines) > MOST_LINES + 1:
                write_atomically(self._file, "".join(f"{line}\n" for line in kept))

    def add(self, typed: str) -> None:
        """Append what was typed to the file, except for lines that are very long or not UTF-8."""
        for line in typed.split("\n"):
            if not (line.strip() and len(line) <= MOST_CHARACTERS and why_not_text(line, "", 1) is None):
                continue
            if self._is_kept:
                with self._use_of_file():
                    append_line(self._file, line)

    @contextlib.contextmanager
    def _use_of_file(self) -> Iterator[None]:
        """Make new files and folders private; if something fails, warn once and keep nothing from then on."""
        before = os.umask(0o077)
        try:
            yield
        except OSError as error:
            self._is_kept = False
            why = f"{self._file}: {error.strerror or error}"
            say(f"warning: what you type is not kept for the next session. {why}.")
        finally:
            os.umask(before)


def history_file() -> Path:
    """``mt/translate_history`` in ``$XDG_STATE_HOME`` or in ``~/.local/state``."""
    # The XDG specification says to ignore relative paths.
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        try:
            state = Path.home() / ".local" / "state"
        except RuntimeError:  # Without a home directory, use a path that cannot be written.
            state = Path(os.devnull)
    return state / "mt" / "translate_history"
