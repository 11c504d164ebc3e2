"""The lines that `mt translate` reads: one out for one in, with warnings about unusual ones at the end."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mt.cli.logs import invite_typing
from mt.cli.options import on_one_line
from mt.display import counted, one_line, progress
from mt.errors import LinesError
from mt.inference.arriving_lines import (
    STDIN,
    STDIN_NAME,
    arriving,
    count_lines,
    lines_of,
    why_not_text,
)

if TYPE_CHECKING:
    from pathlib import Path

    from mt.inference.segments import Translation
    from mt.inference.translator import Translator

NUM_NAMED = 5
MOST_CHARACTERS = 40


class Input(NamedTuple):
    """Sentences, the lines of a file, or the lines of standard input."""

    sentences: list[str] | None
    file: "Path | None"

    @property
    def name(self) -> str:
        """The name of the input, for messages."""
        return "the command line" if self.sentences else str(self.file or STDIN_NAME)

    @property
    def is_typed(self) -> bool:
        """Whether a prompt reads it, because input and output are on a terminal."""
        return not self.sentences and self.file is None and os.isatty(STDIN) and sys.stdout.isatty()

    def progress(self) -> AbstractContextManager[Callable[[int], object]]:
        """A progress bar for a file, unless the translations themselves appear on the terminal."""
        is_needed = self.file is not None and not sys.stdout.isatty()
        total = count_lines(self.file) if self.file and is_needed else None
        return progress(total, unit="lines", description="translating", shown=is_needed)

    def blocks(self) -> Iterator[list[str]]:
        """Yield the lines in blocks, as they arrive."""
        if self.sentences:
            return iter([on_one_line(self.sentences)])
        if self.file is None:
            invite_typing("Type a sentence and press Enter;")
        return arriving(lines_of(self.file, keep_bad=True))

    def how_to_go_on(self, line: int) -> str:
        """Say how to continue after translating has stopped at this line."""
        if self.sentences:
            return ""
        return (
            f" All lines before it are translated. Continue after it with tail -n +{line + 1}, or do not "
            "stop at such lines with --on-error empty."
        )


class Block(NamedTuple):
    """Lines that were translated together."""

    sources: Sequence[str]
    """What was translated; a bad line is replaced with an empty one."""
    translations: "list[list[Translation]]"
    """The translations of each line, the best first."""
    reasons: Mapping[int, str]
    """Why lines were not translated, by number."""


@dataclass
class LineTranslator:
    """Translates lines with the options of the command, and counts what was unusual."""

    translator: "Translator"
    options: dict[str, Any]
    """The arguments of `Translator.n_best` that are the same for all lines."""
    name: str
    """The name of the input, for messages."""
    prefix: str = ""
    """The prefix of every translation."""
    on_error: Literal["stop", "empty"] = "stop"
    """For a bad line: leave it and what follows, or write an empty line in its place."""
    num_bad: int = 0
    first_reason: str = ""
    num_unknown: int = 0
    unknown: list[str] = field(default_factory=list)

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
            if self.on_error == "stop" and reasons:
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
        return Block(sources, translations, reasons)

    def write(self, translations: "list[list[Translation]]", first_line: int) -> None:
        """Write the best translation of each line; for n-best lists all of them, numbered and scored."""
        for line, best_first in enumerate(translations, first_line):
            if self.options["with_scores"]:
                for best in best_first:
                    sys.stdout.write(f"{line}\t{best.score:.4f}\t{best.log_prob:.4f}\t{best.text}\n")
            else:
                sys.stdout.write(f"{best_first[0].text}\n")
        sys.stdout.flush()

    def count(self, block: Block) -> None:
        """Count the bad lines and the unknown words of a block that was written."""
        if block.reasons and self.on_error != "stop":
            self.first_reason = self.first_reason or block.reasons[min(block.reasons)]
            self.num_bad += len(block.reasons)
        unknown = [
            token.text
            for best, *_ in block.translations
            for segment, _ in best.parts
            for token in segment.tokens
            if token.is_unknown and token.text
        ]
        self.num_unknown += len(unknown)
        self.unknown = list(dict.fromkeys([*self.unknown, *unknown]))[: NUM_NAMED + 1]

    def warnings(self) -> Iterator[str]:
        """The warnings about what was counted, and begin to count from 0 again."""
        if self.num_unknown:
            words = ", ".join(one_line(word, MOST_CHARACTERS) for word in self.unknown[:NUM_NAMED])
            copies = self.translator.facts.copies_words and not self.options["keep_unk"]
            yield (
                f"the model does not know {counted(self.num_unknown, 'word')}: {words}"
                f"{' and others' if len(self.unknown) > NUM_NAMED else ''}. "
                f"{'They are copied into the translation.' if copies else 'Their translations are guesses.'}"
            )
        if self.num_bad:
            bad = counted(self.num_bad, "line")
            yield f"{bad} could not be translated: left empty. The first: {self.first_reason}"
        self.num_bad = self.num_unknown = 0
        self.unknown = []
