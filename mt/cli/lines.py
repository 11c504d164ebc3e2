"""The lines that commands read, as they arrive, and write: one out for one in, with warnings at the end."""

import json
import os
import queue
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar
from unicodedata import normalize

from mt.cli.logs import STDIN, print_input_hint
from mt.cli.options import on_one_line
from mt.cli.tables import print_json
from mt.data.sources.text import GZIP, STDIN_NAME, lines_of, why_not_text
from mt.display import counted, one_line, progress, shown
from mt.errors import DataError, LinesError

if TYPE_CHECKING:
    from mt.inference.segments import Translation
    from mt.inference.translator import Translator

MOST_LINES_AT_ONCE = 4000
NUM_NAMED = 5
# Of a translation, in JSON.
_WRITTEN = ("text", "score", "log_prob", "unknown", "copied")
MOST_CHARACTERS = 40

ItemT = TypeVar("ItemT")


def count_lines(file: Path) -> int | None:
    """Count the ends of lines in a file; None for a pipe, which can be read only once, gzip, or no file."""
    if not file.is_file():
        return None
    with file.open("rb") as stream:
        if stream.peek(2).startswith(GZIP):
            return None
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


def read_dictionary(file: Path) -> dict[str, str]:
    """Read a dictionary from lines of ``source<TAB>target``; empty lines are skipped."""
    entries: dict[str, str] = {}
    for number, line in enumerate(lines_of(file, "pairs"), start=1):
        parts = [" ".join(part.split()) for part in line.split("\t")]
        if not any(parts):
            continue
        if len(parts) != 2 or not all(parts):
            raise DataError(f"{shown(file)}, line {number} is not a word, a tab and its translation.")
        source = normalize("NFC", parts[0])
        target = parts[1]
        if entries.setdefault(source, target) != target:
            raise DataError(
                f"{shown(file)}, line {number} translates {source!r} differently from an earlier line."
            )
    return entries


def arriving(lines: Iterator[ItemT]) -> Iterator[list[ItemT]]:
    """Read ahead in a thread and yield blocks of what has arrived: one typed line, or much of a file.

    An empty block says that nothing has arrived yet, so that what was begun can be finished.
    """
    # Each item in a list; the last thing to arrive is None, or what ended the reading.
    arrived: queue.Queue[list[ItemT] | Exception | None] = queue.Queue(maxsize=10 * MOST_LINES_AT_ONCE)

    def read() -> None:
        try:
            for line in lines:
                arrived.put([line])
            arrived.put(None)
        except Exception as error:
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        block: list[ItemT] = []
        if arrived.empty():
            yield block
        item = arrived.get()
        while isinstance(item, list):
            block += item
            if len(block) == MOST_LINES_AT_ONCE or arrived.empty():
                break
            item = arrived.get()
        if block:
            yield block
        if isinstance(item, Exception):
            raise item
        if item is None:
            return


class Input(NamedTuple):
    """Sentences, the lines of a file, or the lines of standard input."""

    sentences: list[str] | None
    file: Path | None

    @property
    def name(self) -> str:
        """The name of the input, for messages."""
        return "the command line" if self.sentences else str(self.file or STDIN_NAME)

    @property
    def is_typed(self) -> bool:
        """Whether a prompt reads it, because input and output are on a terminal."""
        return not self.sentences and self.file is None and os.isatty(STDIN) and sys.stdout.isatty()

    def page(self) -> str:
        """All of the file, or of standard input."""
        raw = sys.stdin.buffer.read() if self.file is None else self.file.read_bytes()
        text = raw.decode(errors="surrogateescape")
        for number, line in enumerate(text.split("\n"), start=1):
            if reason := why_not_text(line, self.name, number):
                raise DataError(reason)
        return text

    def progress(
        self, total: int | None = None, unit: str = "lines"
    ) -> AbstractContextManager[Callable[[int], object]]:
        """A progress bar for a file, unless the translations themselves appear on the terminal."""
        if self.file is None or sys.stdout.isatty():
            return nullcontext(lambda num_lines: None)
        return progress(total or count_lines(self.file), unit=unit, description="translating")

    def blocks(self) -> Iterator[list[str]]:
        """Yield the lines in blocks, as they arrive."""
        if self.sentences:
            return iter([on_one_line(self.sentences)])
        if self.file is None:
            print_input_hint("Type a sentence and press Enter;")
        return arriving(lines_of(self.file, keep_bad=True))


class Block(NamedTuple):
    """Lines that were translated together."""

    translations: "list[list[Translation]]"
    """The translations of each line, the best first."""
    reasons: Mapping[int, str]
    """Why lines were not translated, by number."""
    sources: list[str]
    """The lines, empty where one was not translated."""


@dataclass
class LineTranslator:
    """Translates lines with the options of the command, and counts what was unusual."""

    translator: "Translator"
    options: dict[str, Any]
    """The arguments of `Translator.n_best` that are the same for all lines."""
    name: str
    """That of the input, for messages."""
    prefix: str = ""
    on_error: Literal["stop", "empty"] | None = None
    """For a bad line: write an empty line in its place, or leave it and what follows, as by default.

    If stop is given, a line is also bad if something that must stay is not in its translation.
    """
    as_json: bool = False
    """Whether the translations of a line are written as an object."""
    with_alignment: bool = False
    """Whether that has the pairs of words that belong together."""
    _num: Counter[str] = field(default_factory=Counter)
    """How many lines were bad or cut, and how many words were unknown, left out or lost."""
    _first: dict[str, list[str]] = field(default_factory=dict)
    """The first different ones of each, one more than are named; of bad lines, why."""

    def translate(
        self,
        lines: Sequence[str],
        first_line: int,
        check: Callable[[], None] = lambda: None,
        advance: Callable[[int], object] = lambda num_lines: None,
    ) -> Block:
        """Translate all lines, or those before the one to stop at; ``check`` may raise to stop earlier."""
        named = ((n, why_not_text(line, self.name, n)) for n, line in enumerate(lines, first_line))
        reasons = {number: reason for number, reason in named if reason}
        end = len(lines)
        while True:
            if self.on_error != "empty" and reasons:
                end = min(reasons) - first_line
            # A bad line is replaced with an empty one, so that the lines after it keep their numbers.
            sources = ["" if n in reasons else line for n, line in enumerate(lines[:end], first_line)]
            try:
                translations = self.translator.n_best(
                    sources,
                    prefixes=[self.prefix if source else "" for source in sources],
                    join_lines=True,
                    first_line=first_line,
                    before_each_step=check,
                    advance=advance,
                    **self.options,
                )
                break
            except LinesError as error:
                reasons |= {line: f"{self.name}, {reason}" for line, reason in error.reasons.items()}
        losses = (n for n, (best, *_) in enumerate(translations) if best.lost and self.on_error == "stop")
        if (first := next(losses, None)) is not None:
            number = first_line + first
            lost = _named(translations[first][0].lost)
            reasons[number] = f"{self.name}, line {number}: {lost} must stay, but is not in its translation."
            del translations[first:], sources[first:]
        return Block(translations, reasons, sources)

    def write(self, block: Block, first_line: int, pairs: IO[bytes] | None = None) -> None:
        """Write the best translation of each line; for n-best lists all, numbered and scored, or as JSON.

        If there is a file of ``pairs``, they go there with their sources, if both sides have text.
        """
        if pairs is not None:
            facts = self.translator.facts
            for source, (best, *_) in zip(block.sources, block.translations, strict=True):
                if source.strip() and best.text.strip():
                    pair = {facts.src: source, facts.tgt: best.text}
                    pairs.write(f"{json.dumps(pair, ensure_ascii=False)}\n".encode())
            return
        for line, best_first in enumerate(block.translations, first_line):
            if self.as_json:
                source = block.sources[line - first_line]
                engine = self.translator.engine_for(self.options["strategy"])
                translations: list[dict[str, object]] = []
                for best in best_first:
                    translations.append({name: getattr(best, name) for name in _WRITTEN})
                if self.with_alignment:
                    alignments = self.translator.align(source, best_first)
                    for fields, alignment in zip(translations, alignments, strict=True):
                        fields["alignment"] = alignment
                about = {"line": line, "source": source, "engine": engine.name, "precision": engine.precision}
                print_json({**about, "translations": translations})
            elif self.options["with_scores"]:
                for best in best_first:
                    sys.stdout.write(f"{line}\t{best.score:.4f}\t{best.log_prob:.4f}\t{best.text}\n")
            else:
                sys.stdout.write(f"{best_first[0].text}\n")
        sys.stdout.flush()

    def count(self, block: Block) -> None:
        """Count the bad lines, those with a sentence in parts, and the unknown words of a written block."""
        if self.on_error == "empty":
            self._add("bad", [block.reasons[line] for line in sorted(block.reasons)])
        for best, *_ in block.translations:
            self._num["cut"] += best.is_cut
            self._add("unknown", best.unknown)
            self._add("left out", [*(Counter(best.unknown) - Counter(best.copied)).elements()])
            self._add("lost", best.lost)

    def _add(self, kind: str, found: Sequence[str]) -> None:
        self._num[kind] += len(found)
        known = self._first.get(kind, [])
        self._first[kind] = [*dict.fromkeys([*known, *found])][: NUM_NAMED + 1]

    def warnings(self) -> Iterator[str]:
        """The warnings about what was counted, and begin to count from 0 again."""
        num, first = self._num, self._first
        self._num, self._first = Counter(), {}
        if num["unknown"]:
            fate = "They are copied into the translation."
            if not self.translator.facts.copies_words or self.options["keep_unk"]:
                fate = "Their translations are guesses."
            elif left_out := first["left out"]:
                num_copied = num["unknown"] - num["left out"]
                fate = f"{num_copied:,} of them are copied into the translation, not {_named(left_out)}."
            number = counted(num["unknown"], "word")
            yield f"the model does not know {number}: {_named(first['unknown'])}. {fate}"
        if num["lost"]:
            number = counted(num["lost"], "part")
            yield f"lost, although it must stay: {number}, {_named(first['lost'])}."
        if num["cut"]:
            yield self.translator.facts.cut_warning(num["cut"])
        if num["bad"]:
            bad = counted(num["bad"], "line")
            yield f"{bad} could not be translated: left empty. The first: {first['bad'][0]}"


def _named(words: Sequence[str]) -> str:
    names = ", ".join(one_line(word, MOST_CHARACTERS) for word in words[:NUM_NAMED])
    return f"{names} and others" if words[NUM_NAMED:] else names
