"""A typed report on a loaded corpus: the part of a run's ``corpus.json`` that describes the text."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from mt.data.sources.source import Split
from mt.display import aligned, counted
from mt.sides import Sides

Origin = Literal["given", "generated", "carved"]
# The first runs have the number of exact ones as well.
LeakCount = Annotated[int, BeforeValidator(lambda n: n.get("normalised") if isinstance(n, dict) else n)]


@dataclass(frozen=True)
class SplitReport:
    """One split: its origin and its contents. Only the training split is cleaned."""

    origin: Origin
    parts: Annotated[list[str], Field(alias="from")]
    pairs: int
    fingerprint: str
    dropped: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[list[str]]] = field(default_factory=dict)
    """Source and target, shortened, of the first pairs dropped for each reason."""

    @property
    def where_from(self) -> str:
        """The origin in words for the user: "carved" in ``corpus.json`` means held out."""
        return "held out" if self.origin == "carved" else self.origin


@dataclass(frozen=True)
class SourceReport:
    """One source of the corpus, as the config names it, and its training pairs."""

    path: str
    kind: str
    name: str | None
    src: str
    tgt: str
    revision: str | None
    weight: float
    pairs: int
    fingerprint: str
    held_out: dict[Split, SplitReport] = field(default_factory=dict)
    """Of a source of another direction, what was held out for the splits that it lacks."""
    key: str | None = None
    """Its name in the config."""
    tag: str | None = None
    written: dict[str, Any] | None = None
    """What wrote a side, if a model did: the checksums of its weights, its languages and its search."""

    @property
    def direction(self) -> Sides[str]:
        """Its languages."""
        return Sides(self.src, self.tgt)

    @property
    def written_by(self) -> str:
        """Which side other runs wrote, to be read after its path; nothing if none did."""
        if self.written is None:
            return ""
        names = []
        for run in self.written["runs"].split(","):
            names.append(Path(run.strip()).name)
        _, language = self.written["direction"]
        return f", whose {language} was written by {', '.join(names)}"


@dataclass(frozen=True)
class LeakReport:
    """How much of an evaluation split is also in the training split, but for case, punctuation and spaces."""

    pairs: int
    source: LeakCount
    target: LeakCount
    pair: LeakCount


class CorpusReport(BaseModel):
    """The whole corpus."""

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)

    sources: list[SourceReport]
    """``data.path``, then ``data.sources``."""
    temperature: float = 1.0
    splits: dict[Split, SplitReport]
    leaks: dict[str, LeakReport]
    leaks_removed: bool

    @property
    def has_leaked(self) -> bool:
        """Whether whole pairs of evaluation data are also in the training data, and were not removed."""
        return not self.leaks_removed and any(leaks.pair for leaks in self.leaks.values())

    @property
    def leak_sentence(self) -> str:
        """How much of the evaluation data is also in the training data."""
        counts = [
            f"{counted(leaks.pair, 'pair')}, {counted(leaks.source, 'source')} and "
            f"{counted(leaks.target, 'target')} of {leaks.pairs:,} in {split}"
            for split, leaks in self.leaks.items()
        ]
        if self.leaks_removed:
            counts.append("these pairs were removed from training")
        elif self.has_leaked:
            counts.append("cleaning.remove_leaks: true removes the pairs from training")
        return f"also in training: {'; '.join(counts)}"


def recorded_fingerprints(content: bytes) -> dict[Split, str]:
    """The fingerprint of each split, from the content of a ``corpus.json`` of any version."""
    try:
        return {name: split["fingerprint"] for name, split in json.loads(content)["splits"].items()}
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no fingerprints of its splits ({error})") from error


def cleaning_table(train: SplitReport, dropped_later: Mapping[str, int]) -> str:
    """What was dropped from training, when it was read and later, one line for each reason, or nothing."""
    counts = train.dropped | {reason: count for reason, count in dropped_later.items() if count}
    if not counts:
        return ""
    num_rows = train.pairs + sum(train.dropped.values())
    total = sum(counts.values())
    rows = [("reason", "pairs", "share")]
    for reason, count in [*counts.items(), ("all of these", total)]:
        rows.append((reason, f"{count:,}", f"{count / num_rows:.2%}"))
    examples = [" ||| ".join(train.examples.get(reason, [[]])[0]) for reason in counts]
    lines = zip(aligned(rows, num_texts=1), ["example", *examples, ""], strict=True)
    table = "\n".join("  ".join(line).rstrip() for line in lines)
    return f"of {num_rows:,} training pairs, {total:,} were dropped:\n{table}"
