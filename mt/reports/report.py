"""The report of a run: a page that loads nothing, and a model card in Markdown, made of the same facts.

Whatever a template inserts is escaped for its format, unless it is `Markup`.
"""

import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from mt import __version__
from mt.config.config import Config
from mt.config.write import all_options, changed_options, config_to_yaml
from mt.display import counted, markdown_text, visible
from mt.errors import RunError
from mt.evaluation.record import RecordedEvaluation, Score, mean_scores
from mt.evaluation.scores import SCORE_NAMES
from mt.reports.charts import line_chart
from mt.reports.facts import RunFacts, short_count, short_duration
from mt.reports.samples import RankedSamples

_FOLDER = Path(__file__).parent
# The names that the Hugging Face Hub has for sacreBLEU's metrics.
_METRICS = {"bleu": "bleu", "chrf": "chrf", "chrfpp": "chrf", "ter": "ter"}


class _Row(NamedTuple):
    """Scores that were not recorded as an evaluation, and what was evaluated."""

    data: str
    checkpoint: str
    how: str
    num_sentences: int | None
    scores: dict[str, Score]


def render(
    facts: RunFacts,
    format: Literal["html", "md"],
    samples: RankedSamples | None = None,
    *,
    attention: str = "",
    script_hash: str = "",
    left_out: Sequence[str] = (),
    license: str = "unknown",
) -> str:
    """The report as a whole HTML document, or as a model card with the front matter that the Hub reads.

    ``attention`` is HTML that is safe to put into a page, and ``script_hash`` the hash of its script.
    """
    config = facts.config
    if config is None:
        raise RunError(f"{facts.run.path} cannot be reported: {'; '.join(facts.problems)}.")

    def finalize(value: object) -> Markup:
        """Escape whatever a template inserts."""
        if isinstance(value, Markup):
            return value
        if format == "html":
            return escape(visible(str(value)))
        # Beyond what TensorBoard supports: strike-through, formulas, and mentions of people.
        text = markdown_text(str(value)).replace("~", "&#126;").replace("$", "&#36;")
        return Markup(text.replace("@", "&#64;"))

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
        "counted": counted,
        "fenced": _fenced,
        "markup": Markup,
        "number": lambda number, form=",": "" if number is None else f"{number:{form}}",
    }
    name = facts.run.name or "/"
    changed = changed_options(config)
    file = shlex.quote(f"{name}.yaml")
    run = shlex.quote(f"runs/{name}")
    sources = facts.corpus.sources if facts.corpus else []
    text = environment.get_template("report.html.j2" if format == "html" else "card.md.j2").render(
        facts=facts,
        name=name,
        figures=figures(facts),
        scores=[*_means(facts), *_scores(facts)],
        scores_of_the_model=_scores_of_the_model(facts),
        samples=samples,
        attention=attention,
        script_hash=script_hash,
        left_out=left_out,
        license=license,
        directions=config.data.directions,
        languages=list(dict.fromkeys(chain(*config.data.directions))),
        changed={option: value for option, value in all_options(config).items() if option in changed},
        config_yaml=config_to_yaml(config, comments=False),
        commands=f"mt train --config {file} --run {run}\nmt evaluate --run {run} --split test",
        made=datetime.now(UTC),
        version=__version__,
        charts=_charts(facts, config),
        style=Markup((_FOLDER / "page.css").read_text(encoding="utf-8")),
        datasets=list(dict.fromkeys(source.path for source in sources if source.kind == "hub")),
        metrics=_METRICS,
    )
    # Where the files are on this disk says nothing to others.
    paths = [config.data.path, str(config.init_from.run), *(source.path for source in sources)]
    paths += [evaluation.data for evaluation in facts.evaluations]
    for path in ",".join(paths).split(","):
        if path.startswith(("/", "~")):
            for form in (path, finalize(path)):
                # Not within the data of a picture.
                parts = re.split(rf"(?<![\w/+]){re.escape(form)}(?![\w+])", text)
                text = Path(path).name.join(parts)
    return text


def figures(facts: RunFacts) -> dict[str, str]:
    """The most important numbers, by their names."""
    rows = [row for row in _scores_of_the_model(facts) if "bleu" in row.scores]
    # Of the run's own test split, else of its validation split, else of other data.
    own = {_own_split(facts, split): split for split in ("test", "validation")}
    rows.sort(key=lambda row: [*own, row.data].index(row.data))
    if facts.directions:
        # The mean of the newest test, else the same, named in full.
        means = _means(facts)
        own = {}
        rows[:0] = [row for row in means if facts.best and row.checkpoint == facts.best.name]
    numbers: dict[str, str] = {}
    if rows:
        best = rows[0]
        numbers[f"BLEU on {own.get(best.data, best.data)}"] = f"{best.scores['bleu'].value:.1f}"
    for what, form, number in (
        ("training pairs", short_count, facts.corpus and facts.corpus.splits["train"].pairs),
        ("parameters", short_count, facts.best and facts.best.num_parameters),
        ("steps", "{:,}".format, facts.step),
        ("target tokens", short_count, facts.num_target_tokens),
        ("of training", short_duration, facts.seconds),
    ):
        if number:
            numbers[what] = form(number)
    return numbers


def _own_split(facts: RunFacts, split: str) -> str:
    """A split of the run's own corpus, as an evaluation of it records its data."""
    languages = f", {' to '.join(facts.directions[0])}" if facts.directions else ""
    return visible(f"{facts.config.data.path}{languages}, {split}") if facts.config else ""


def _scores(facts: RunFacts) -> list[_Row | RecordedEvaluation]:
    """The scores of all evaluations, the newest first, then those of validation."""
    rows: list[_Row | RecordedEvaluation] = [*reversed(facts.evaluations)]
    metrics = facts.best.record.metrics if facts.best and facts.best.record else {}
    signatures: dict[str, str] = {}
    for session in facts.sessions:
        signatures |= session.signatures
    scores = {}
    for key, name in SCORE_NAMES.items():
        if key in metrics:
            scores[key] = Score(name, metrics[key], signatures.get(name, "unknown"))
    if facts.best and scores:
        data, how = _own_split(facts, "validation"), "greedy search, during training"
        num_sentences = facts.corpus.splits["validation"].pairs if facts.corpus else None
        rows.append(_Row(data, facts.best.name, how, num_sentences, scores))
    return rows


def _means(facts: RunFacts) -> list[_Row]:
    """The mean scores of tests in several directions, the newest first."""
    rows = []
    for tests in reversed(facts.tests):
        if len(tests) > 1:
            data = f"test, mean of {counted(len(tests), 'direction')}"
            rows.append(_Row(data, tests[-1].checkpoint, tests[-1].how, None, mean_scores(tests)))
    return rows


def _scores_of_the_model(facts: RunFacts) -> list[_Row | RecordedEvaluation]:
    """The scores that say how good the model is: by the best checkpoint, and not on training data.

    Of several with the same data and search only the newest counts: the files behind a name may have changed
    in between.
    """
    newest: dict[tuple[str, str], _Row | RecordedEvaluation] = {}
    for row in _scores(facts):
        if facts.best and row.checkpoint == facts.best.name and not row.data.endswith(", train"):
            newest.setdefault((row.data, row.how), row)
    return list(newest.values())


def _charts(facts: RunFacts, config: Config) -> list[Markup]:
    curve = facts.curve
    smoothing = config.training.label_smoothing
    training = f"training, with label smoothing {smoothing:g}" if smoothing else "training"
    charts = {
        "Loss per token": {training: curve("train", "loss"), "validation": curve("validation", "loss")},
        "Validation scores": {
            "BLEU": curve("validation", "bleu"),
            "chrF2": curve("validation", "chrf"),
            "mean BLEU": curve("validation", "mean_bleu"),
        },
        "Learning rate": {"": curve("train", "learning_rate")},
        "Target tokens per second": {"": curve("train", "tokens_per_second")},
    }
    return [Markup(line_chart(title, curves)) for title, curves in charts.items()]


def _fenced(text: str, language: str) -> Markup:
    """A block of code, whatever the text contains."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markup(f"{fence}{language}\n{visible(text).strip()}\n{fence}")
