"""All facts about a run that `mt show` and `mt report` need, gathered once."""

from dataclasses import dataclass

from pydantic import TypeAdapter

from mt.checkpoint.directory import CheckpointDirectory
from mt.data.corpus_report import CorpusReport
from mt.display import counted
from mt.evaluation.record import read_evaluations
from mt.reports.checkpoints import inspect_checkpoint
from mt.reports.sessions import STILL_RUNNING, read_sessions
from mt.reports.summary import RunSummary, short_duration, written
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


_CORPUS = TypeAdapter(CorpusFacts)


class RunFacts(RunSummary):
    """What `mt show` and `mt report` show: everything that a run has recorded about itself."""

    def __init__(self, run: RunDirectory, *, now: float) -> None:
        super().__init__(run, now=now)
        # An imported run has none.
        self.corpus = self.read(
            run.corpus_file,
            lambda: None if self.imported_from else _CORPUS.validate_json(run.read_corpus_report()),
        )
        self.sessions = self.read(run.sessions_file, lambda: read_sessions(run)) or []
        if self.sessions and self.state == "running":
            self.sessions[-1].outcome = STILL_RUNNING
        # From the oldest to the newest.
        self.evaluations = self.read(run.evaluations_file, lambda: read_evaluations(run)) or []
        store = CheckpointDirectory(run.checkpoints_dir)
        folders = [store.directory / name for name in (*store.names(), *store.averages())]
        # Training removes old ones.
        self.checkpoints = [inspect_checkpoint(folder) for folder in folders if folder.is_dir()]

    @property
    def environment(self) -> dict[str, str | int]:
        """What made the newest checkpoint: versions, device, threads."""
        return self.latest.record.environment if self.latest and self.latest.record else {}

    @property
    def model(self) -> dict[str, str]:
        """The shape of the model, in words; empty if the config cannot be read."""
        if self.config is None:
            return {}
        model, kind = self.config.model, self.config.tokenizer.kind
        sizes = self.corpus.vocabulary_sizes if self.corpus else {}
        entries = " and ".join(f"{count:,} ({side})" for side, count in sizes.items())
        num_parameters = self.best.num_parameters if self.best else None
        origin, frozen = self.config.init_from, self.config.training.freeze
        return {
            "architecture": "Transformer, encoder and decoder (Vaswani et al. 2017)",
            "layers": f"{model.num_encoder_layers} encoder, {model.num_decoder_layers} decoder",
            "width": f"{model.d_model}, feed-forward {model.d_ff}, {counted(model.num_heads, 'head')}",
            "parameters": written(num_parameters, "{:,}"),
            "tokenizer": f"{kind}, {entries} entries" if entries else kind,
            **({"begun from": f"{origin.run}@{origin.checkpoint}"} if origin.run else {}),
            **({"frozen": frozen} if frozen else {}),
        }

    @property
    def progress(self) -> dict[str, str]:
        """How long it was trained, and why it ended."""
        return {
            "state": f"{self.state}: {self.detail}" if self.detail else self.state,
            "steps": written(self.step, "{:,}"),
            "epochs completed": written(self.epochs, "{:,}"),
            "target tokens": written(self.num_target_tokens, "{:,}"),
            "time": short_duration(self.seconds) if self.seconds else "unknown",
            "speed": written(self.tokens_per_second, "{:,.0f} target tokens per second"),
        }
