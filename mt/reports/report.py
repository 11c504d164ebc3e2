"""The contents of a report, typed; the page and the model card are two ways to render it."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from mt.config.write import changed_options, config_to_yaml
from mt.display import counted, visible
from mt.errors import RunError
from mt.evaluation.scores import SCORE_NAMES, Score
from mt.reports.facts import RunFacts
from mt.reports.samples import RankedSamples
from mt.reports.story import told
from mt.reports.table import short_count, short_duration

_LANGUAGE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z]{2,4})?", re.ASCII)
_MAX_ROWS = 100
_REMOVED = "; the whole pairs were removed from training."


@dataclass(frozen=True)
class ScoreRow:
    """A score, and the data it was computed on."""

    data: str
    checkpoint: str
    search: str
    num_sentences: int | None
    key: str
    """Its name in files, such as ``bleu``."""
    score: Score
    setting: str = ""
    """That of its evaluation, which also identifies the sentences; empty for validation during training."""


@dataclass(frozen=True)
class Report:
    """The report of a run. All text is as it was found, and not escaped."""

    facts: RunFacts
    samples: RankedSamples | None
    attention: str
    """Attention of some sentences as HTML that is safe to put into a page; empty for none."""
    script_hash: str
    """The hash of the script in that HTML, as a Content-Security-Policy has it; empty for none."""
    made: datetime
    mt_version: str
    left_out: list[str] = field(default_factory=list)
    """What is missing, and why, as sentences."""

    def __post_init__(self) -> None:
        if self.facts.config is None:
            raise RunError(f"{self.facts.run.path} cannot be reported: {'; '.join(self.facts.problems)}.")

    @property
    def languages(self) -> tuple[str, str]:
        """The source and the target language, as the corpus names them."""
        assert self.facts.config is not None
        return self.facts.config.data.src, self.facts.config.data.tgt

    @property
    def language_codes(self) -> list[str]:
        """The languages that are valid language codes."""
        return [name for name in self.languages if _LANGUAGE.fullmatch(name)]

    @property
    def figures(self) -> dict[str, str]:
        """The most important numbers, by their names."""
        facts, summary = self.facts, self.facts.summary
        train = facts.corpus.splits.get("train") if facts.corpus else None
        found = self._headline | {
            "training pairs": short_count(train.pairs) if train else "",
            "parameters": short_count(facts.num_parameters) if facts.num_parameters else "",
            "steps": f"{summary.step:,}" if summary.step is not None else "",
            "target tokens": short_count(summary.num_target_tokens) if summary.num_target_tokens else "",
            "of training": short_duration(facts.minutes * 60) if facts.minutes else "",
        }
        return {what: value for what, value in found.items() if value}

    @property
    def _headline(self) -> dict[str, str]:
        """The newest BLEU on the run's own test split, else on its validation split, else on other data."""
        newest: dict[str, ScoreRow] = {}
        for row in self.scores:
            if row.key == "bleu" and self.speaks_for_model(row):
                newest.setdefault(row.data, row)
        own = {self._own_split(split): split for split in ("test", "validation")}
        for data in (*own, *newest):
            if data in newest:
                # Only a split of the run's own corpus is known by the name of the split alone.
                return {f"BLEU on {own.get(data, data)}": f"{newest[data].score.value:.1f}"}
        return {}

    def _own_split(self, split: str) -> str:
        """A split of the run's own corpus, as an evaluation of it records its data."""
        assert self.facts.config is not None
        return visible(f"{self.facts.config.data.path}, {split}")

    @property
    def scores(self) -> list[ScoreRow]:
        """The scores of all evaluations, the newest first, then those of validation."""
        rows = [
            ScoreRow(each.data, each.checkpoint, each.how, each.num_sentences, key, score, each.setting)
            for each in reversed(self.facts.evaluations)
            for key, score in each.scores.items()
        ]
        return [*rows[:_MAX_ROWS], *self._validation_scores()]

    def speaks_for_model(self, row: ScoreRow) -> bool:
        """Whether a score represents the model: by the best checkpoint, and not on training data."""
        best = self.facts.checkpoints.best
        return best is not None and row.checkpoint == best.name and _split_of(row) != "train"

    def _validation_scores(self) -> Iterator[ScoreRow]:
        best, corpus = self.facts.checkpoints.best, self.facts.corpus
        if best is None or best.record is None:
            return
        validation = corpus.splits.get("validation") if corpus else None
        for key, name in SCORE_NAMES.items():
            if key in best.record.metrics:
                signature = self.facts.log.signatures.get(name, "unknown")
                score = Score(name, best.record.metrics[key], signature)
                data = self._own_split("validation")
                pairs = validation.pairs if validation else None
                yield ScoreRow(data, best.name, "greedy search, during training", pairs, key, score)

    @property
    def model(self) -> dict[str, str]:
        """The shape of the model, in words."""
        assert self.facts.config is not None
        model, tokenizer = self.facts.config.model, self.facts.config.tokenizer
        sizes = self.facts.corpus.vocabulary_sizes if self.facts.corpus else {}
        entries = " and ".join(f"{count:,} ({side})" for side, count in list(sizes.items())[:2])
        return {
            "architecture": "Transformer, encoder and decoder (Vaswani et al. 2017)",
            "layers": f"{model.num_encoder_layers} encoder, {model.num_decoder_layers} decoder",
            "width": f"{model.d_model}, feed-forward {model.d_ff}, {counted(model.num_heads, 'head')}",
            "parameters": f"{self.facts.num_parameters:,}" if self.facts.num_parameters else "unknown",
            "tokenizer": tokenizer.kind + (f", {entries} entries" if entries else ""),
        }

    @property
    def training(self) -> dict[str, str]:
        """How long it was trained, and why it ended."""
        summary = self.facts.summary
        return {
            "state": summary.state + (f": {summary.detail}" if summary.detail else ""),
            "steps": "unknown" if summary.step is None else f"{summary.step:,}",
            "epochs completed": "unknown" if summary.epochs is None else f"{summary.epochs:,}",
            "target tokens": "unknown"
            if summary.num_target_tokens is None
            else f"{summary.num_target_tokens:,}",
            "time": short_duration(self.facts.minutes * 60) if self.facts.minutes else "unknown",
            "speed": "unknown"
            if summary.tokens_per_second is None
            else f"{summary.tokens_per_second:,.0f} target tokens per second",
        }

    @property
    def sessions(self) -> list[tuple[str, str, list[str]]]:
        """Each session of training: when it began, what happened, and its warnings."""
        sessions = self.facts.log.sessions
        is_running = self.facts.summary.state == "running"
        return [
            (each.started, told(each, is_running=is_running and each is sessions[-1]), each.warnings)
            for each in sessions[-_MAX_ROWS:]
        ]

    @property
    def leaks(self) -> list[str]:
        """How much of the evaluation data is also in the training data, as sentences."""
        corpus = self.facts.corpus
        if corpus is None:
            return []
        return [
            f"Of {counted(leaks.pairs, 'pair')} in {split}, {counted(leaks.pair.normalised, 'whole pair')}, "
            f"{counted(leaks.source.normalised, 'source')} and {counted(leaks.target.normalised, 'target')} "
            "are also in the training data"
            + (_REMOVED if corpus.leaks_removed and leaks.pair.normalised else ".")
            for split, leaks in corpus.leaks.items()
        ]

    @property
    def changed_options(self) -> dict[str, str]:
        """The options that differ from their defaults."""
        assert self.facts.config is not None
        changed = changed_options(self.facts.config)
        return {name: value for name, value in self.facts.options.items() if name in changed}

    @property
    def config_yaml(self) -> str:
        """The whole config, to train with."""
        assert self.facts.config is not None
        return config_to_yaml(self.facts.config, comments=False)

    @property
    def commands(self) -> list[str]:
        """The commands that train and evaluate the same model."""
        file, run = shlex.quote(f"{self.facts.name}.yaml"), shlex.quote(f"runs/{self.facts.name}")
        return [f"mt train --config {file} --run {run}", f"mt evaluate --run {run} --split test"]


def _split_of(row: ScoreRow) -> str:
    """The last word of a corpus and split, such as ``test``."""
    return row.data.rpartition(", ")[2]
