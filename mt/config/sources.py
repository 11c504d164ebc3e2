"""Where sentence pairs come from: one corpus, or one of several sources."""

import re
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from mt.config.section import Count, CountOrNone, Section, Text, TextOrNone, changeable

Delimiter = Literal["auto", "tab", "comma", "semicolon", "pipe"]

_LAST_WORD = re.compile(r"(?P<before>.*\S)\s+(?P<key>\w+)=(?P<value>\S*)")


def parse_columns(columns: str) -> tuple[str, str]:
    """The source's and the target's column: two names, or two numbers, counted from 1."""
    parts = [part.strip() for part in columns.split(",")]
    if len(parts) != 2 or not all(parts) or parts[0] == parts[1]:
        examples = "english,german, or 1,2 without a header"
        raise ValueError(
            f"data.columns must be two columns, the source's first ({examples}), not {columns!r}."
        )
    if are_positions(*parts) and not all(map(int, parts)):
        raise ValueError(f"data.columns ({columns}): columns are counted from 1.")
    return parts[0], parts[1]


def are_positions(*columns: str) -> bool:
    """Whether columns are given by their numbers, as those of a file without a header are."""
    return all(re.fullmatch("[0-9]{1,6}", column) for column in columns)


class WriterConfig(Section):
    """The run that writes a side of training pairs: it translates the other side."""

    run: Text = changeable(...)
    """The run, such as runs/de-en, or several of the same vocabularies as an ensemble: runs/a,runs/b."""

    beam: Count = 1
    """The size of the beam; 1 is greedy search."""

    temperature: float | None = Field(default=None, gt=0, le=1000)
    """Sample at this temperature instead, which is slower; null searches."""

    top_k: int = Field(default=0, ge=0)
    """Sample from this many of the likeliest tokens; 0: from all."""

    @model_validator(mode="after")
    def _check_search(self) -> Self:
        if self.temperature is not None and self.beam > 1:
            raise ValueError("a writer has a beam or samples at a temperature, not both.")
        if self.temperature is None and self.top_k:
            raise ValueError("top_k is for sampling: give the writer a temperature, such as 1.")
        return self


class CorpusConfig(Section):
    """Where sentence pairs come from: what ``data`` and each of ``data.sources`` say of it."""

    path: Text = changeable(...)
    """Folder, file, pattern (part-*.csv), two files (en.txt,de.txt), Hub id, or name of a built-in corpus."""

    name: str | None = None
    """The configuration of a Hub corpus that has several, such as en-it."""

    revision: TextOrNone = changeable(None)
    """The commit, branch or tag of a Hub corpus; null takes the newest and records its commit."""

    src: TextOrNone = None
    """The source language: the name of its column, or the extension of its file, as in train.en."""

    tgt: TextOrNone = None
    """The target language, likewise."""

    columns: str | None = changeable(None)
    """The two columns or extensions if not named after the languages, such as english,german; or 1,2."""

    delimiter: Delimiter = changeable("auto")
    """Column separator of .csv, .tsv and, unless auto, .txt files; auto detects it in the header line."""

    num_train_pairs: CountOrNone = None
    """Use its first N training pairs; null: all, or the usual number of a built-in corpus."""

    write_src: WriterConfig | None = None
    """Let a run write the sources of these training pairs: back-translation. Its keys: run, beam ..."""

    write_tgt: WriterConfig | None = None
    """Let a run write the targets, as for a student, likewise."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.columns is not None:
            parse_columns(self.columns)
        if self.write_src and self.write_tgt:
            raise ValueError("write_src and write_tgt exclude each other: one side is translated.")
        return self

    @property
    def writer(self) -> WriterConfig | None:
        """What writes a side of the training pairs."""
        return self.write_src or self.write_tgt

    @property
    def written_side(self) -> int:
        """Which side that is: 0 for the source, 1 for the target."""
        return 0 if self.write_src else 1


class SourceConfig(CorpusConfig):
    """More training pairs; ``src`` and ``tgt`` are those of ``data`` if it has none."""

    weight: float = Field(default=1.0, gt=0, le=1000)
    """How often an epoch shows each pair, on average."""

    tag: str | None = Field(default=None, pattern=r"^\w[\w-]*$")
    """Begin its sources with this tag, such as synthetic, which no text to translate has."""


def sources_of_mix(mix: str, src: object, tgt: object) -> dict[str, SourceConfig]:
    """The sources that the lines of ``data.mix`` mean in a run from ``src`` to ``tgt``."""
    sources: dict[str, SourceConfig] = {}
    for line in re.split(r"[\n;]", mix):
        if line.strip():
            sources[f"mix{len(sources) + 1}"] = _source_of(line.strip(), src, tgt)
    return sources


def _source_of(line: str, src: object, tgt: object) -> SourceConfig:
    """Read ``path key=value key=value``, the keys of a source after a path that may contain spaces."""
    path = line
    given: dict[str, str] = {}
    while word := _LAST_WORD.fullmatch(path):
        path, key, value = word.groups()
        given[key] = value
    try:
        source = SourceConfig.model_validate(given | {"path": path}, strict=False)
    except ValidationError as error:
        # That of two columns is of no key.
        key = str((*error.errors()[0]["loc"], "columns")[0])
        _, *keys = (key for key in CorpusConfig.model_fields if not key.startswith("write_"))
        raise ValueError(
            f"data.mix: in {line!r}, {key}={given.get(key)} cannot be used; the path can be followed by "
            f"weight=, {'=, '.join(keys)}=."
        ) from error
    columns = source.columns
    if not columns and (source.src or source.tgt):
        # They named columns: a mix has one direction.
        columns = f"{source.src or src},{source.tgt or tgt}"
    return source.model_copy(update={"columns": columns, "src": None, "tgt": None})
