"""Translations of the same validation sentences over time, saved in a file and shown as tables."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple, TextIO

from mt.display import markdown_table, markdown_text
from mt.files import read_bytes, write_atomically

_MAX_BYTES = 2**30


class Sample(NamedTuple):
    """A validation sentence with its translation."""

    source: str
    translation: str
    reference: str


class Samples(NamedTuple):
    """The samples of one validation."""

    step: int
    samples: list[Sample]


def read_samples(file: Path) -> list[Samples]:
    """The samples in a file, if it exists, without lines that are incomplete or something else."""
    if not file.exists():
        return []
    found = []
    for text in read_bytes(file, max_bytes=_MAX_BYTES).split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError):
            line = json.loads(text)
            rows = [Sample(**row) for row in line["samples"]]
            if type(line["step"]) is int and all(isinstance(text, str) for row in rows for text in row):
                samples = Samples(line["step"], rows)
                # A ValueError for half of a surrogate pair, which could not be written again.
                _line(samples).encode()
                found.append(samples)
    return found


def forget_samples(file: Path, first_again: int) -> Samples | None:
    """Remove the samples of this step and later ones from the file; return the newest that are left."""
    kept = [each for each in read_samples(file) if each.step < first_again]
    if file.exists():
        write_atomically(file, "".join(map(_line, kept)))
    return kept[-1] if kept else None


def append_samples(file: TextIO, samples: Samples) -> None:
    """Add the samples of a validation."""
    file.write(_line(samples))
    file.flush()


def _line(samples: Samples) -> str:
    rows = [row._asdict() for row in samples.samples]
    return json.dumps({"step": samples.step, "samples": rows}, ensure_ascii=False) + "\n"


def sample_table(samples: Sequence[Sample], before: Samples | None) -> str:
    """A Markdown table of samples, with all text escaped.

    Args:
        samples: The rows.
        before: The samples of the previous validation; None if there was none.
    """
    change = "change" if before is None else f"change since step {before.step:,}"
    known = {} if before is None else {each.source: each.translation for each in before.samples}
    rows = [
        (
            *map(markdown_text, (each.source, each.reference, each.translation)),
            _change(known, each),
        )
        for each in samples
    ]
    return markdown_table(("source", "reference", "translation", change), rows)


def _change(known: Mapping[str, str], sample: Sample) -> str:
    """The words that were replaced, removed and added, in Markdown; new words are bold."""
    if sample.source not in known:
        return "new"
    old, new = known[sample.source].split(), sample.translation.split()
    edits = []
    # Without autojunk, which would ignore frequent words in long sentences.
    for kind, old_start, old_end, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        gone, come = (markdown_text(" ".join(words)) for words in (old[old_start:old_end], new[start:end]))
        if kind != "equal":
            edits.append(f"{gone or '∅'} → {f'**{come}**' if come else '∅'}")
    return "; ".join(edits) or "none"
