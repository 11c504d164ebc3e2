"""The contents of a report; the page and the model card are two templates for it."""

import re
import shlex
from dataclasses import dataclass, field
from datetime import datetime

from mt.config.config import Config
from mt.config.write import changed_options, config_to_yaml
from mt.display import counted, visible
from mt.errors import RunError
from mt.evaluation.scores import SCORE_NAMES, Score
from mt.reports.facts import RunFacts
from mt.reports.samples import RankedSamples
from mt.reports.table import short_count, short_duration

_LANGUAGE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z]{2,4})?", re.ASCII)
_MAX_EVALUATIONS = 50
METRICS = {"bleu": "bleu", "chrf": "chrf", "chrfpp": "chrf", "ter": "ter"}
"""The names that the Hugging Face Hub has for sacreBLEU's metrics."""


@dataclass(frozen=True)
class ScoredData:
    """The scores of one evaluation, or those of validation during training."""

    data: str
    checkpoint: str
    search: str
    num_sentences: int | None
    scores: dict[str, Score]
    """By their names in files, such as ``bleu``."""


@dataclass(frozen=True)
class Report:
    """The report of a run. All text is as it was recorded, and not escaped."""

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
        if self.facts.summary.config is None:
            path = self.facts.summary.run.path
            raise RunError(f"{path} cannot be reported: {'; '.join(self.facts.problems)}.")

    @property
    def config(self) -> Config:
        """The options of the run."""
        assert self.facts.summary.config is not None
        return self.facts.summary.config

    @property
    def figures(self) -> dict[str, str]:
        """The most important numbers, by their names."""
        facts, summary = self.facts, self.facts.summary
        figures = self._headline | {
            "training pairs": short_count(facts.corpus.splits.train.pairs) if facts.corpus else "",
            "parameters": short_count(facts.num_parameters) if facts.num_parameters else "",
            "steps": f"{summary.step:,}" if summary.step is not None else "",
            "target tokens": short_count(summary.num_target_tokens) if summary.num_target_tokens else "",
            "of training": short_duration(summary.seconds) if summary.seconds else "",
        }
        return {what: value for what, value in figures.items() if value}

    @property
    def _headline(self) -> dict[str, str]:
        """The newest BLEU on the run's own test split, else on its validation split, else on other data."""
        newest: dict[str, Score] = {}
        for row in self.scores_of_the_model:
            if "bleu" in row.scores:
                newest.setdefault(row.data, row.scores["bleu"])
        # Only a split of the run's own corpus is known by the name of the split alone.
        own = {self._own_split(split): split for split in ("test", "validation")}
        data = next((data for data in (*own, *newest) if data in newest), None)
        return {f"BLEU on {own.get(data, data)}": f"{newest[data].value:.1f}"} if data else {}

    def _own_split(self, split: str) -> str:
        """A split of the run's own corpus, as an evaluation of it records its data."""
        return visible(f"{self.config.data.path}, {split}")

    @property
    def scores(self) -> list[ScoredData]:
        """The scores of all evaluations, the newest first, then those of validation."""
        newest_first = self.facts.evaluations[: -_MAX_EVALUATIONS - 1 : -1]
        rows = [
            ScoredData(row.data, row.checkpoint, row.how, row.num_sentences, row.scores)
            for row in newest_first
        ]
        best, corpus = self.facts.summary.best, self.facts.corpus
        metrics = best.record.metrics if best and best.record else {}
        signatures = {
            name: text for session in self.facts.sessions for name, text in session.signatures.items()
        }
        scores = {
            key: Score(name, metrics[key], signatures.get(name, "unknown"))
            for key, name in SCORE_NAMES.items()
            if key in metrics
        }
        if best and scores:
            split = corpus.splits.validation if corpus else None
            data, search = self._own_split("validation"), "greedy search, during training"
            rows.append(ScoredData(data, best.name, search, split.pairs if split else None, scores))
        return rows

    @property
    def scores_of_the_model(self) -> list[ScoredData]:
        """The scores that say how good the model is: by the best checkpoint, and not on training data.

        Of several with the same data and search only the newest counts: the files behind a name may have
        changed in between.
        """
        best = self.facts.summary.best
        newest: dict[tuple[str, str], ScoredData] = {}
        for row in self.scores:
            if best and row.checkpoint == best.name and row.data.rpartition(", ")[2] != "train":
                newest.setdefault((row.data, row.search), row)
        return list(newest.values())

    @property
    def hub_metrics(self) -> list[str]:
        """The Hub's names of the metrics of these scores."""
        return sorted(
            {METRICS[key] for row in self.scores_of_the_model for key in row.scores if key in METRICS}
        )

    @property
    def language_codes(self) -> list[str]:
        """The languages that are valid language codes."""
        return [name for name in (self.config.data.src, self.config.data.tgt) if _LANGUAGE.fullmatch(name)]

    @property
    def hub_datasets(self) -> list[str]:
        """The distinct corpora from the Hugging Face Hub."""
        sources = self.facts.corpus.sources if self.facts.corpus else []
        return list(dict.fromkeys(source.path for source in sources if source.kind == "hub"))

    @property
    def model(self) -> dict[str, str]:
        """The shape of the model, in words."""
        model, tokenizer = self.config.model, self.config.tokenizer
        sizes = self.facts.corpus.vocabulary_sizes if self.facts.corpus else {}
        entries = " and ".join(f"{count:,} ({side})" for side, count in sizes.items())
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
        summary, speed = self.facts.summary, self.facts.summary.tokens_per_second
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

    @property
    def changed_options(self) -> dict[str, str]:
        """The options that differ from their defaults."""
        changed = changed_options(self.config)
        return {name: value for name, value in self.facts.options.items() if name in changed}

    @property
    def config_yaml(self) -> str:
        """The whole config, to train with."""
        return config_to_yaml(self.config, comments=False)

    @property
    def commands(self) -> str:
        """The commands that train and evaluate the same model."""
        file, run = shlex.quote(f"{self.facts.name}.yaml"), shlex.quote(f"runs/{self.facts.name}")
        return f"mt train --config {file} --run {run}\nmt evaluate --run {run} --split test"
