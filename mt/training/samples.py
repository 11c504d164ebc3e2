"""Translations of the same validation sentences over time, saved in a file and shown as tables."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

from mt.display import markdown_table, markdown_text
from mt.files import read_bytes
from mt.training.metrics_file import MAX_BYTES


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
    """The samples in a file, if it exists, without a line that a crash cut off."""
    if not file.exists():
        return []
    history = []
    for text in read_bytes(file, max_bytes=MAX_BYTES).split(b"\n"):
        with contextlib.suppress(ValueError, TypeError, KeyError):
            line = json.loads(text)
            history.append(Samples(int(line["step"]), [Sample(**row) for row in line["samples"]]))
    return history


def json_line(samples: Samples) -> str:
    """The samples as a line of the file."""
    rows = [row._asdict() for row in samples.samples]
    return json.dumps({"step": samples.step, "samples": rows}, ensure_ascii=False) + "\n"


def sample_table(samples: Sequence[Sample], before: Samples | None) -> str:
    """A Markdown table of samples, all text escaped, with what changed since the validation before."""
    change = "change" if before is None else f"change since step {before.step:,}"
    old = {} if before is None else {row.source: row.translation for row in before.samples}
    rows = [
        (*map(markdown_text, (row.source, row.reference, row.translation)), _change(old, row))
        for row in samples
    ]
    return markdown_table(("source", "reference", "translation", change), rows)


def _change(earlier: Mapping[str, str], sample: Sample) -> str:
    """The words that were replaced, removed and added, in Markdown; new words are bold."""
    if sample.source not in earlier:
        return "new"
    old, new = earlier[sample.source].split(), sample.translation.split()
    edits = []
    # Without autojunk, which would ignore frequent words in long sentences.
    for kind, old_start, old_end, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            removed = markdown_text(" ".join(old[old_start:old_end])) or "∅"
            added = markdown_text(" ".join(new[start:end]))
            edits.append(f"{removed} → {f'**{added}**' if added else '∅'}")
    return "; ".join(edits) or "none"
