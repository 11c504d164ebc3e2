"""All facts about a run that `mt show` and `mt report` need, gathered once."""

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, TypeAdapter

from mt.config.config import Config
from mt.config.load import load_config
from mt.config.write import all_options
from mt.evaluation.record import RecordedEvaluation, read_evaluations
from mt.reports.checkpoints import Checkpoints, read_checkpoints
from mt.reports.curves import Curves, read_curves
from mt.reports.log import Log, read_log
from mt.reports.summary import RunSummary, or_problem, summary_of
from mt.run_directory import RunDirectory

Count = Annotated[int, Field(ge=0, lt=10**18)]


@dataclass(frozen=True)
class SourceFacts:
    """A source of the corpus."""

    path: str
    kind: str = ""
    revision: str | None = None
    pairs: Count | None = None
    """Its training pairs."""
    weight: float = 1.0


@dataclass(frozen=True)
class SplitFacts:
    """One split."""

    pairs: Count
    fingerprint: str = ""
    """Digest of all texts, in order."""
    origin: str = ""
    """given, generated, or carved from the training text."""
    dropped: dict[str, Count] = field(default_factory=dict)
    """Rows dropped by cleaning, by reason."""


@dataclass(frozen=True)
class LeakCounts:
    """Texts that are also in the training split, ignoring case, punctuation and spaces."""

    normalised: Count


@dataclass(frozen=True)
class LeakFacts:
    """How much of an evaluation split is also in the training split."""

    pairs: Count
    """Pairs of the evaluation split."""
    source: LeakCounts
    target: LeakCounts
    pair: LeakCounts


@dataclass(frozen=True)
class CorpusFacts:
    """The contents of ``corpus.json``; older versions wrote less."""

    path: str
    src: str
    tgt: str
    splits: dict[str, SplitFacts]
    kind: str = ""
    revision: str | None = None
    sources: list[SourceFacts] = field(default_factory=list)
    leaks: dict[str, LeakFacts] = field(default_factory=dict)
    leaks_removed: bool = False
    dropped_in_training: dict[str, Count] = field(default_factory=dict)
    """Pairs dropped when they were encoded, by reason."""
    vocabulary_sizes: dict[str, Count] = field(default_factory=dict)

    @property
    def dropped(self) -> dict[str, int]:
        """All training pairs dropped, by reason."""
        by_cleaning = self.splits["train"].dropped if "train" in self.splits else {}
        return {reason: count for reason, count in (by_cleaning | self.dropped_in_training).items() if count}


@dataclass(frozen=True)
class RunFacts:
    """A run; what could not be read is empty, and named in ``problems``."""

    run: RunDirectory
    summary: RunSummary
    config: Config | None
    options: dict[str, str]
    """The value of each option as YAML."""
    corpus: CorpusFacts | None
    curves: Curves
    checkpoints: Checkpoints
    log: Log
    evaluations: list[RecordedEvaluation]
    """From the oldest to the newest."""
    problems: list[str]

    @property
    def name(self) -> str:
        """The name of the run directory; bytes in it that are not UTF-8 are escaped."""
        return (self.run.name or "/").encode(errors="backslashreplace").decode()

    @property
    def environment(self) -> dict[str, str | int]:
        """What made the newest checkpoint: versions, device, threads."""
        latest = self.checkpoints.latest
        return latest.record.environment if latest and latest.record else {}

    @property
    def num_parameters(self) -> int | None:
        """Weights of the model."""
        best = self.checkpoints.best
        return best.num_parameters if best else None

    @property
    def minutes(self) -> float | None:
        """Time of training and validation up to the newest figure."""
        return self.curves.newest.figures.get("minutes") if self.curves.newest else None


_CORPUS = TypeAdapter(CorpusFacts)


def gather_facts(run: RunDirectory, *, now: float) -> RunFacts:
    """Read everything that a run has recorded about itself.

    Args:
        run: The run.
        now: The time, in seconds since 1970.
    """
    problems: list[str] = []
    config = or_problem(problems, run.config_file.name, lambda: load_config(run.config_file), None)
    curves = or_problem(
        problems, run.metrics_file.name, lambda: read_curves(run.metrics_file), Curves([], [])
    )
    checkpoints = read_checkpoints(run)
    summary = summary_of(run, config, checkpoints, curves, problems, now=now)
    return RunFacts(
        run,
        summary,
        config,
        all_options(config) if config else {},
        or_problem(
            problems, run.corpus_file.name, lambda: _CORPUS.validate_json(run.read_corpus_report()), None
        ),
        curves,
        checkpoints,
        or_problem(problems, run.log_file.name, lambda: read_log(run.log_file), Log()),
        or_problem(problems, run.evaluations_file.name, lambda: read_evaluations(run), []),
        problems,
    )
