"""A typed report on a loaded corpus: the part of a run's ``corpus.json`` that describes the text."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from mt.data.sources.source import Split
from mt.display import aligned, counted


@dataclass(frozen=True)
class SourceReport:
    """One source of the corpus, as the config names it."""

    path: str
    kind: str
    name: str | None
    src: str
    tgt: str
    revision: str | None


@dataclass(frozen=True)
class MixedSourceReport(SourceReport):
    """A source and its training pairs."""

    weight: float
    pairs: int
    fingerprint: str


@dataclass(frozen=True)
class SplitReport:
    """One split: its origin and its contents."""

    origin: Literal["given", "generated", "carved"]
    parts: Annotated[list[str], Field(alias="from")]
    pairs: int
    dropped: dict[str, int]
    fingerprint: str


@dataclass(frozen=True)
class TrainingSplitReport(SplitReport):
    """The training split, the only one that is cleaned."""

    examples: dict[str, list[list[str]]]
    """Source and target, shortened, of the first pairs dropped for each reason."""
    rewritten: int
    """Pairs whose text was changed by Unicode normalisation."""


@dataclass(frozen=True)
class SplitReports:
    """The three splits."""

    train: TrainingSplitReport
    validation: SplitReport
    test: SplitReport

    def by_name(self) -> dict[Split, SplitReport]:
        """All three, by their names in the config and in corpus.json."""
        return {"train": self.train, "validation": self.validation, "test": self.test}


@dataclass(frozen=True)
class LeakCounts:
    """Texts of an evaluation split that are also in the training split."""

    exact: int
    normalised: int
    """Likewise, without case, punctuation and spaces."""


@dataclass(frozen=True)
class LeakReport:
    """How much of an evaluation split is also in the training split."""

    pairs: int
    source: LeakCounts
    target: LeakCounts
    pair: LeakCounts


@dataclass(frozen=True)
class CorpusReport(SourceReport):
    """The whole corpus; the inherited fields are those of ``data.path``."""

    sources: list[MixedSourceReport]
    """``data.path``, then each source of ``data.mix``."""
    splits: SplitReports
    leaks: dict[str, LeakReport]
    leaks_removed: bool


_REPORT = TypeAdapter(CorpusReport)


def to_json(report: CorpusReport) -> dict[str, Any]:
    """The report in plain JSON types, under the keys of ``corpus.json``."""
    content: dict[str, Any] = _REPORT.dump_python(report, mode="json", by_alias=True)
    return content


def from_json(content: bytes) -> CorpusReport:
    """The report that `to_json` has written."""
    return _REPORT.validate_json(content)


def recorded_fingerprints(content: bytes) -> dict[Split, str]:
    """The fingerprint of each split, from the content of a ``corpus.json`` of any version."""
    try:
        return {name: split["fingerprint"] for name, split in json.loads(content)["splits"].items()}
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no fingerprints of its splits ({error})") from error


def cleaning_table(train: TrainingSplitReport, dropped_later: Mapping[str, int]) -> str:
    """What was dropped from training, when it was read and later, one line for each reason, or nothing."""
    counts = train.dropped | {reason: count for reason, count in dropped_later.items() if count}
    if not counts:
        return ""
    num_rows = train.pairs + sum(train.dropped.values())
    total = sum(counts.values())
    rows = [("reason", "pairs", "share")]
    rows += [
        (reason, f"{n:,}", f"{n / num_rows:.2%}") for reason, n in [*counts.items(), ("all of these", total)]
    ]
    examples = [" ||| ".join(train.examples.get(reason, [[]])[0]) for reason in counts]
    lines = zip(aligned(rows, num_texts=1), ["example", *examples, ""], strict=True)
    table = "\n".join("  ".join(line).rstrip() for line in lines)
    return f"of {num_rows:,} training pairs, {total:,} were dropped:\n{table}"


def leak_sentence(report: CorpusReport) -> tuple[str, bool]:
    """One line on the leaks, and whether to warn because a whole pair has leaked and was not removed."""
    found = [
        f"{counted(leaks.pair.normalised, 'pair')} ({leaks.pair.exact:,} exactly), "
        f"{counted(leaks.source.normalised, 'source')} and {counted(leaks.target.normalised, 'target')} "
        f"of {leaks.pairs:,} in {split}"
        for split, leaks in report.leaks.items()
    ]
    if any(leaks.pair.normalised for leaks in report.leaks.values()):
        removes = (
            "the pairs were removed"
            if report.leaks_removed
            else "cleaning.remove_leaks: true removes the pairs"
        )
        return f"also in training: {'; '.join(found)}; {removes} from training", not report.leaks_removed
    return f"also in training: {'; '.join(found)}", False
