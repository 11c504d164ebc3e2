"""The report of a run: a self-contained HTML page, and a model card in Markdown, made of the same facts.

A page loads nothing, and has no script except that of the attention. Whatever a template inserts is escaped
for its format, unless it is `Markup`, so that no text of a corpus or a config can become markup.
"""

import difflib
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from mt.config.config import Config
from mt.config.write import changed_options, config_to_yaml
from mt.display import counted, markdown_text, origin_of_split, visible
from mt.errors import RunError
from mt.evaluation.scores import SCORE_NAMES, Score
from mt.reports.charts import Line, line_chart
from mt.reports.facts import RunFacts
from mt.reports.samples import RankedSamples
from mt.reports.summary import series
from mt.reports.table import short_count, short_duration

_FOLDER = Path(__file__).parent
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z]{2,4})?", re.ASCII)
# The names that the Hugging Face Hub has for sacreBLEU's metrics.
_METRICS = {"bleu": "bleu", "chrf": "chrf", "chrfpp": "chrf", "ter": "ter"}
_MAX_EVALUATIONS = 50
_MAX_CHARACTERS = 2000
_MAX_DIFFED = 400
_TOKENS = re.compile(r"\w+|\s+|[^\w\s]+")


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


def page(report: Report) -> str:
    """The report as a whole HTML document."""
    return _rendered(
        "report.html.j2",
        lambda text: escape(visible(text)),
        report,
        charts=_charts(report),
        compared=compared,
        style=Markup((_FOLDER / "page.css").read_text(encoding="utf-8")),
    )


def card(report: Report) -> str:
    """The report as a model card with the front matter that the Hugging Face Hub reads."""
    sources, rows = report.facts.corpus.sources if report.facts.corpus else [], report.scores_of_the_model
    return _rendered(
        "card.md.j2",
        _markdown,
        report,
        languages=[
            name for name in (report.config.data.src, report.config.data.tgt) if _LANGUAGE.fullmatch(name)
        ],
        datasets=list(dict.fromkeys(source.path for source in sources if source.kind == "hub")),
        metrics=_METRICS,
        used_metrics=sorted({_METRICS[key] for row in rows for key in row.scores if key in _METRICS}),
    )


def _rendered(name: str, escaped: Callable[[str], str], report: Report, **more: object) -> str:
    """A filled-in template, in which every inserted text is shortened and escaped."""

    def finalize(value: object) -> Markup:
        text = value if isinstance(value, Markup | str) else str(value)
        if isinstance(text, Markup):
            return text
        return Markup(escaped(text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"))

    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "breakable": _breakable,
        "block": lambda text: Markup(escape(visible(text))),
        "code": _code,
        "counted": counted,
        "fenced": _fenced,
        "markup": Markup,
        "number": lambda number, form=",": "" if number is None else format(number, form),
        "origin": origin_of_split,
    }
    facts, changed = report.facts, changed_options(report.config)
    file, run = shlex.quote(f"{facts.name}.yaml"), shlex.quote(f"runs/{facts.name}")
    return environment.get_template(name).render(
        report=report,
        facts=facts,
        data=report.config.data,
        changed={name: value for name, value in facts.options.items() if name in changed},
        config_yaml=config_to_yaml(report.config, comments=False),
        commands=f"mt train --config {file} --run {run}\nmt evaluate --run {run} --split test",
        **more,
    )


def _charts(report: Report) -> list[Markup]:
    smoothing = report.facts.options["training.label_smoothing"]
    label = "training" if smoothing == "0.0" else f"training, with label smoothing {smoothing}"
    points = report.facts.summary.points

    def line(kind: str, name: str, label: str = "") -> Line:
        return Line(label, series(points, kind, name))

    losses = [line("train", "loss", label), line("validation", "loss", "validation")]
    scores = [line("validation", "bleu", "BLEU"), line("validation", "chrf", "chrF2")]
    charts = {
        "Loss": losses,
        "Validation scores": scores,
        "Learning rate": [line("train", "learning_rate")],
        "Target tokens per second": [line("train", "tokens_per_second")],
    }
    units = {"Loss": " nats per token"}
    return [Markup(line_chart(title, lines, unit=units.get(title, ""))) for title, lines in charts.items()]


def _breakable(name: str) -> Markup:
    """A signature, or the name of an option, that may be broken between its parts."""
    return Markup(re.sub("[|._]", r"\g<0><wbr>", str(escape(visible(name)))))


def compared(translation: str, reference: str) -> tuple[list[tuple[bool, str]], list[tuple[bool, str]]]:
    """Both as parts, with whether a part does not occur at that position in the other."""
    one, other = _TOKENS.findall(translation), _TOKENS.findall(reference)
    if max(len(one), len(other)) > _MAX_DIFFED:
        return [(False, translation)], [(False, reference)]
    parts: tuple[list[tuple[bool, str]], list[tuple[bool, str]]] = ([], [])
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        for side, words in zip(parts, (one[start:end], other[other_start:other_end]), strict=True):
            text = "".join(words)
            side.append((kind != "equal" and bool(text.strip()), text))
    return parts


def _markdown(text: str) -> str:
    """Text that is safe in Markdown, on one line."""
    # Beyond what TensorBoard supports: strike-through, formulas, and mentions of people.
    return markdown_text(text).replace("~", "&#126;").replace("$", "&#36;").replace("@", "&#64;")


def _code(text: str) -> Markup:
    """Text as code on one line, also in a table."""
    # A backslash before the one that keeps a bar from ending the cell would undo that.
    plain = " ".join(visible(text).split()).replace("`", "'").replace("\\|", "\\ |").replace("|", r"\|")
    return Markup(f"`{plain}`" if plain else "")


def _fenced(text: str, language: str) -> Markup:
    """A block of code, whatever the text contains."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markup(f"{fence}{language}\n{visible(text).strip()}\n{fence}")
