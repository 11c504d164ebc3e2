"""All facts about a run that `mt show` and `mt report` need, gathered once."""

from dataclasses import dataclass

from pydantic import TypeAdapter

from mt.config.write import all_options
from mt.data.corpus_report import CorpusReport
from mt.display import counted
from mt.evaluation.record import RecordedEvaluation, read_evaluations
from mt.reports.sessions import TrainingSession, read_sessions
from mt.reports.summary import RunSummary, or_problem, summarise
from mt.reports.table import short_duration
from mt.run_directory import RunDirectory


@dataclass(frozen=True)
class CorpusFacts(CorpusReport):
    """The contents of ``corpus.json``."""

    dropped_in_training: dict[str, int]
    """Pairs dropped when they were encoded, by reason."""
    vocabulary_sizes: dict[str, int]

    @property
    def dropped(self) -> dict[str, int]:
        """All training pairs dropped, by reason, the most frequent first."""
        counts = (self.splits.train.dropped | self.dropped_in_training).items()
        return {reason: count for reason, count in sorted(counts, key=lambda item: -item[1]) if count}

    @property
    def leak_sentences(self) -> list[str]:
        """How much of the evaluation data is also in the training data."""
        removed = "; the whole pairs were removed from training."
        return [
            f"Of {counted(leaks.pairs, 'pair')} in {split}, {counted(leaks.pair.normalised, 'whole pair')}, "
            f"{counted(leaks.source.normalised, 'source')} and {counted(leaks.target.normalised, 'target')} "
            f"are also in the training data{removed if self.leaks_removed and leaks.pair.normalised else '.'}"
            for split, leaks in self.leaks.items()
        ]


@dataclass(frozen=True)
class RunFacts:
    """A run; what could not be read is empty, and named in ``problems``."""

    summary: RunSummary
    options: dict[str, str]
    """The value of each option as YAML."""
    corpus: CorpusFacts | None
    sessions: list[TrainingSession]
    """From the first to the last."""
    evaluations: list[RecordedEvaluation]
    """From the oldest to the newest."""
    problems: list[str]

    @property
    def name(self) -> str:
        """The name of the run directory."""
        return self.summary.run.name or "/"

    @property
    def environment(self) -> dict[str, str | int]:
        """What made the newest checkpoint: versions, device, threads."""
        latest = self.summary.latest
        return latest.record.environment if latest and latest.record else {}

    @property
    def num_parameters(self) -> int | None:
        """Weights of the model."""
        best = self.summary.best
        return best.num_parameters if best else None

    @property
    def model(self) -> dict[str, str]:
        """The shape of the model, in words; empty if the config cannot be read."""
        if self.summary.config is None:
            return {}
        model, tokenizer = self.summary.config.model, self.summary.config.tokenizer
        sizes = self.corpus.vocabulary_sizes if self.corpus else {}
        entries = " and ".join(f"{count:,} ({side})" for side, count in sizes.items())
        return {
            "architecture": "Transformer, encoder and decoder (Vaswani et al. 2017)",
            "layers": f"{model.num_encoder_layers} encoder, {model.num_decoder_layers} decoder",
            "width": f"{model.d_model}, feed-forward {model.d_ff}, {counted(model.num_heads, 'head')}",
            "parameters": f"{self.num_parameters:,}" if self.num_parameters else "unknown",
            "tokenizer": tokenizer.kind + (f", {entries} entries" if entries else ""),
        }

    @property
    def progress(self) -> dict[str, str]:
        """How long it was trained, and why it ended."""
        summary, speed = self.summary, self.summary.tokens_per_second
        counts = {
            "steps": summary.step,
            "epochs completed": summary.epochs,
            "target tokens": summary.num_target_tokens,
        }
        return {
            "state": summary.state + (f": {summary.detail}" if summary.detail else ""),
            **{name: "unknown" if count is None else f"{count:,}" for name, count in counts.items()},
            "time": short_duration(summary.seconds) if summary.seconds else "unknown",
            "speed": f"{speed:,.0f} target tokens per second" if speed else "unknown",
        }

    def describe(self, session: TrainingSession) -> str:
        """How a session of this run began and ended, in words."""
        begun = f"resumed from step {session.first_step:,}" if session.first_step else "started"
        if session.first_step is None and session.outcome:
            begun = "did not begin"
        if session is self.sessions[-1] and self.summary.state == "running":
            return f"{begun}; still running"
        outcome = session.outcome or "nothing says how it ended, as after a kill"
        return f"{begun}; {outcome[0].lower()}{outcome[1:]}"


_CORPUS = TypeAdapter(CorpusFacts)


def gather_facts(run: RunDirectory, *, now: float) -> RunFacts:
    """Read everything that a run has recorded about itself; ``now`` is in seconds since 1970."""
    summary = summarise(run, now=now)
    problems = list(summary.problems)
    return RunFacts(
        summary,
        all_options(summary.config) if summary.config else {},
        or_problem(problems, run.corpus_file, lambda: _CORPUS.validate_json(run.read_corpus_report())),
        or_problem(problems, run.sessions_file, lambda: read_sessions(run)) or [],
        or_problem(problems, run.evaluations_file, lambda: read_evaluations(run)) or [],
        problems,
    )
