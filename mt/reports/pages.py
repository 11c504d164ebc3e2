"""The two documents made of a report: a self-contained HTML page, and a model card in Markdown.

A page loads nothing, and has no script except that of the attention. Whatever a template inserts is escaped
for its format, unless it is `Markup`, so that no text of a corpus or a config can become markup.
"""

import difflib
import re
from collections.abc import Callable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from mt.display import counted, markdown_text, origin_of_split, visible
from mt.reports.charts import Line, line_chart
from mt.reports.report import METRICS, Report
from mt.reports.summary import series

_FOLDER = Path(__file__).parent
_MAX_CHARACTERS = 2000
_MAX_DIFFED = 400
_TOKENS = re.compile(r"\w+|\s+|[^\w\s]+")


def page(report: Report) -> str:
    """The report as a whole HTML document."""
    return _rendered(
        "report.html.j2",
        lambda text: escape(visible(text)),
        report,
        charts=_charts(report),
        compared=compared,
        config=Markup(escape(visible(report.config_yaml))),
        style=Markup((_FOLDER / "page.css").read_text(encoding="utf-8")),
    )


def card(report: Report) -> str:
    """The report as a model card with the front matter that the Hugging Face Hub reads."""
    return _rendered("card.md.j2", _markdown, report, metrics=METRICS)


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
        "code": _code,
        "counted": counted,
        "fenced": _fenced,
        "markup": Markup,
        "number": lambda number, form=",": "" if number is None else format(number, form),
        "origin": origin_of_split,
    }
    return environment.get_template(name).render(report=report, facts=report.facts, **more)


def _charts(report: Report) -> list[Markup]:
    smoothing = report.facts.options["training.label_smoothing"]
    label = "training" if smoothing == "0.0" else f"training, with label smoothing {smoothing}"
    train, validation = report.facts.summary.train, report.facts.summary.validation
    losses = [Line(label, series(train, "loss")), Line("validation", series(validation, "loss"))]
    scores = [Line("BLEU", series(validation, "bleu")), Line("chrF2", series(validation, "chrf"))]
    return [
        Markup(line_chart("Loss", losses, unit=" nats per token")),
        Markup(line_chart("Validation scores", scores)),
        Markup(line_chart("Learning rate", [Line("", series(train, "learning_rate"))])),
        Markup(line_chart("Target tokens per second", [Line("", series(train, "tokens_per_second"))])),
    ]


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
