"""Pairs of which a model wrote a side, kept with the run: another processor would write others.

They are written in parts of fixed rows, each of which appears whole or not at all: a process that is killed
loses one part, and the next one writes it again.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mt.display import progress
from mt.errors import RunError
from mt.files import make_folder, read_text, sha256, write_atomically
from mt.sides import Sides

PART_ROWS = 1000
_RECORD = "written.json"
# The text of the corpus, where another was translated; no language has such a name.
_ORIGINAL = "corpus has"
_MOST_BYTES = 2**31


class Writer(NamedTuple):
    """What translates the side that is there."""

    record: dict[str, Any]
    """The checksums of its weights, and how it searches: what it writes depends on these."""
    translate: Callable[[Sequence[str], int], list[str | None]]
    """Translate texts, of which the first has this number; None for what is no whole sentence."""


@dataclass(frozen=True)
class WrittenSide:
    """The folder of what was written of one source."""

    folder: Path

    @property
    def record(self) -> dict[str, Any] | None:
        """What writes here, and how many rows; None if nothing does yet."""
        file = self.folder / _RECORD
        if not file.is_file():
            return None
        record: dict[str, Any] = json.loads(read_text(file, max_bytes=_MOST_BYTES))
        return record

    @property
    def is_complete(self) -> bool:
        """Whether all rows were written."""
        record = self.record
        return record is not None and all(part.is_file() for part in self._parts(record["num_rows"]))

    def write(
        self, texts: Sequence[str], direction: Sides[str], writer: Writer, originals: Sequence[str] = ()
    ) -> None:
        """Write the parts that are missing; ``originals`` are the texts of the corpus, if not these."""
        record = {**writer.record, "num_rows": len(texts)}
        if self.record is None:
            make_folder(self.folder)
            write_atomically(self.folder / _RECORD, json.dumps(record, indent=2))
        elif (self.record | {"runs": ""}) != (record | {"runs": ""}):
            raise RunError(
                f"{self.folder} was begun by another model, with another search or from other text. Remove "
                "that folder to write it again, or use another --run PATH."
            )
        with progress(len(texts), unit="lines", description=f"writing {self.folder.name}") as advance:
            for number, part in enumerate(self._parts(len(texts))):
                start = number * PART_ROWS
                given = texts[start : start + PART_ROWS]
                if not part.is_file():
                    lines, in_corpus = [], originals[start : start + PART_ROWS] or given
                    translations = writer.translate(given, start + 1)
                    for text, translation, original in zip(given, translations, in_corpus, strict=True):
                        pair = {direction.src: text, direction.tgt: translation}
                        if text != original:
                            pair[_ORIGINAL] = original
                        lines.append(json.dumps(pair, ensure_ascii=False) + "\n")
                    write_atomically(part, "".join(lines))
                advance(len(given))

    def rows(self) -> Iterator[tuple[str, str, str | None]]:
        """Each text as the corpus has it, as it was translated, and its translation, if it is whole."""
        for part in self._written_parts():
            # Not splitlines, which also ends lines at characters that text may contain.
            for line in read_text(part, max_bytes=_MOST_BYTES).removesuffix("\n").split("\n"):
                pair = json.loads(line)
                original = pair.pop(_ORIGINAL, None)
                text, translation = pair.values()
                yield text if original is None else original, text, translation

    def checksums(self) -> list[str]:
        """The SHA-256 of each part."""
        return [sha256(part) for part in self._written_parts()]

    def _parts(self, num_rows: int) -> list[Path]:
        return [self.folder / f"{start // PART_ROWS:05}.jsonl" for start in range(0, num_rows, PART_ROWS)]

    def _written_parts(self) -> list[Path]:
        record = self.record
        if record is None or not self.is_complete:
            raise RunError(
                f"{self.folder} has lost what a model wrote for this run: restore it, or start over with "
                "--restart."
            )
        return self._parts(record["num_rows"])
