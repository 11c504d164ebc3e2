"""A report as one self-contained HTML page: no network, and no script except that of the attention."""

import difflib
import re
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

from mt.display import counted, origin_of_split, visible
from mt.evaluation.analysis import ScoredSentence
from mt.files import read_text
from mt.reports.charts import Line, line_chart
from mt.reports.curves import series
from mt.reports.facts import CorpusFacts
from mt.reports.report import Report, ScoreRow
from mt.reports.samples import RankedSamples

_STYLE = Path(__file__).with_name("page.css")
_MAX_CHARACTERS = 2000
_MAX_ROWS = 100
_MAX_DIFFED = 400
_TOKENS = re.compile(r"\w+|\s+|[^\w\s]+")


def page(report: Report) -> str:
    """The whole HTML document."""
    src, tgt = report.languages
    title = f"{report.facts.name}: {src} to {tgt}"
    sections = {
        "Training data": _corpus(report),
        "Training": _training(report),
        "Scores": _scores(report.scores),
        "Translations": _samples(report.samples),
        "Attention": report.attention,
        "Configuration": _configuration(report),
        "How to reproduce it": _reproduce(report),
        "Left out of this report": _list(report.left_out),
    }
    shown = {head: body for head, body in sections.items() if body}
    links = " ".join(f'<a href="#{_anchor(head)}">{head}</a>' for head in shown)
    body = "\n".join(
        f'<section id="{_anchor(head)}"><h2>{head}</h2>\n{body}</section>' for head, body in shown.items()
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(report)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{_text(title)}</title>\n<style>\n{_style()}</style>\n</head>\n<body>\n<main>\n"
        f'<header><p class="kind">Translation model</p><h1>{_text(report.facts.name)} '
        f'<span class="pair">{_text(src)} → {_text(tgt)}</span></h1>\n{_figures(report.figures)}'
        f"<nav>{links}</nav></header>\n{body}\n"
        f"<footer>Made on {report.made:%Y-%m-%d %H:%M} UTC by mt {_text(report.mt_version)}.</footer>\n"
        "</main>\n</body>\n</html>\n"
    )


def _policy(report: Report) -> str:
    """Nothing is loaded from anywhere, and no script runs that this program did not write."""
    script = f"; script-src {report.script_hash}" if report.script_hash else ""
    return f"default-src 'none'; style-src 'unsafe-inline'; img-src data:{script}"


def _style() -> str:
    return read_text(_STYLE, max_bytes=100_000)


def _anchor(head: str) -> str:
    return head.lower().replace(" ", "-")


def _text(text: str) -> str:
    """Untrusted text, made harmless in HTML and readable."""
    shown = text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"
    return escape(visible(shown).encode(errors="backslashreplace").decode())


def _figures(figures: Mapping[str, str]) -> str:
    tiles = "".join(
        f"<div><dd>{_text(value)}</dd><dt>{_text(what)}</dt></div>" for what, value in figures.items()
    )
    return f'<dl class="figures">{tiles}</dl>\n'


def _pairs(rows: Mapping[str, str]) -> str:
    body = "".join(
        f'<tr><th scope="row">{_breakable(name)}</th><td>{_text(value)}</td></tr>'
        for name, value in rows.items()
    )
    return f'<div class="scroll-x"><table class="pairs">{body}</table></div>\n'


def _table(
    head: Iterable[str],
    rows: Iterable[Iterable[str]],
    numbers: frozenset[int] = frozenset(),
    *,
    look: str = "plain",
) -> str:
    """A table of cells that are HTML already; ``numbers`` are the columns aligned right."""

    def row(cells: Iterable[str], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=number' if place in numbers else ''}>{cell}</{tag}>"
            for place, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in rows)
    return (
        f'<div class="scroll-x"><table class="{look}"><thead><tr>{row(head, "th")}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>\n"
    )


def _list(items: Iterable[str]) -> str:
    body = "".join(f"<li>{_text(item)}</li>" for item in items)
    return f"<ul>{body}</ul>\n" if body else ""


def _corpus(report: Report) -> str:
    corpus = report.facts.corpus
    if corpus is None:
        return "<p>The record of the corpus cannot be read.</p>\n"
    sources = corpus.sources[:_MAX_ROWS]
    mixed = _table(
        ("source", "training pairs", "weight", "revision"),
        (
            (
                _text(each.path),
                "unknown" if each.pairs is None else f"{each.pairs:,}",
                f"{each.weight:g}",
                _text(each.revision or ""),
            )
            for each in sources
        ),
        frozenset({1, 2}),
    )
    splits = _table(
        ("split", "pairs", "origin", "fingerprint"),
        (
            (
                _text(name),
                f"{each.pairs:,}",
                _text(origin_of_split(each.origin)),
                f"<code>{_text(each.fingerprint)}</code>",
            )
            for name, each in list(corpus.splits.items())[:_MAX_ROWS]
        ),
        frozenset({1}),
    )
    revision = f", revision <code>{_text(corpus.revision)}</code>" if corpus.revision else ""
    return (
        f"<p>Trained on <b>{_text(corpus.path)}</b>{revision}, from {_text(corpus.src)} to "
        f"{_text(corpus.tgt)}.</p>\n{mixed if len(sources) > 1 else ''}{splits}{_dropped(corpus)}"
        f"{_list(report.leaks)}"
    )


def _dropped(corpus: CorpusFacts) -> str:
    if not corpus.dropped:
        return "<p>No training pair was dropped.</p>\n"
    rows = sorted(corpus.dropped.items(), key=lambda item: -item[1])[:_MAX_ROWS]
    return "<h3>Training pairs that were dropped</h3>\n" + _table(
        ("reason", "pairs"), ((_text(reason), f"{count:,}") for reason, count in rows), frozenset({1})
    )


def _training(report: Report) -> str:
    curves = report.facts.curves
    charts = [
        line_chart(
            "Loss",
            [
                Line(_training_label(report), series(curves.train, "loss")),
                Line("validation", series(curves.validation, "loss")),
            ],
            unit=" nats per token",
        ),
        line_chart(
            "Validation scores",
            [
                Line("BLEU", series(curves.validation, "bleu")),
                Line("chrF2", series(curves.validation, "chrf")),
            ],
        ),
        line_chart("Learning rate", [Line("", series(curves.train, "learning_rate"))]),
        line_chart("Target tokens per second", [Line("", series(curves.train, "tokens_per_second"))]),
    ]
    sessions = _table(
        ("began", "what happened"),
        (
            (f'<span class="time">{_text(started)}</span>', _text(told) + _warnings(warnings))
            for started, told, warnings in report.sessions
        ),
    )
    return (
        f'<div class="charts">{"".join(charts)}</div>\n'
        f'<div class="columns"><div><h3>Model</h3>\n{_pairs(report.model)}</div>'
        f"<div><h3>Progress</h3>\n{_pairs(report.training)}</div></div>\n"
        + (f"<h3>Sessions</h3>\n{sessions}" if report.sessions else "")
    )


def _training_label(report: Report) -> str:
    smoothing = report.facts.options.get("training.label_smoothing")
    return "training" if smoothing == "0.0" else f"training, with label smoothing {smoothing}"


def _warnings(warnings: list[str]) -> str:
    return _list(f"warning: {warning}" for warning in warnings[:_MAX_ROWS])


def _scores(rows: list[ScoreRow]) -> str:
    if not rows:
        return "<p>There are no scores yet.</p>\n"
    groups: dict[tuple[str, str, str, int | None], list[ScoreRow]] = {}
    for row in rows:
        groups.setdefault((row.data, row.checkpoint, row.search, row.num_sentences), []).append(row)
    return "".join(
        f"<h3>{_text(data)}</h3>\n<p>{_text(checkpoint)}, {_text(search)}"
        f"{'' if count is None else ', ' + counted(count, 'sentence')}</p>\n{_score_table(group)}"
        for (data, checkpoint, search, count), group in groups.items()
    )


def _score_table(rows: list[ScoreRow]) -> str:
    return _table(
        ("score", "value", "95 % interval", "signature"),
        (
            (
                _text(row.score.name),
                f"<b>{row.score.value:.2f}</b>",
                _interval(row.score.interval),
                f'<code class="signature">{_breakable(row.score.signature)}</code>',
            )
            for row in rows
        ),
        frozenset({1}),
        look="scores",
    )


def _interval(interval: tuple[float, float] | None) -> str:
    return "not computed" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"


def _breakable(name: str) -> str:
    """A signature, or the name of an option, that may be broken between its parts."""
    return re.sub("[|._]", r"\g<0><wbr>", _text(name))


def _samples(samples: RankedSamples | None) -> str:
    if samples is None:
        return ""
    worst = "".join(map(_sample, samples.worst)) or "<p>All translations equal their references.</p>\n"
    best = "".join(map(_sample, samples.best)) or "<p>Only one sentence was ranked.</p>\n"
    return (
        f"<p>From {samples.num_sentences:,} of the {samples.num_in_split:,} sentences of "
        f"{_text(samples.data)}, translated by {_text(samples.checkpoint)} with greedy search and ranked by "
        "chrF2++. <mark>Marked</mark> words of a translation are not in the reference there, "
        "<ins>underlined</ins> words of a reference are not in the translation.</p>\n"
        f'<div class="columns"><div><h3>Worst</h3>\n{worst}</div>'
        f"<div><h3>Best</h3>\n{best}</div></div>\n"
    )


def _sample(each: ScoredSentence) -> str:
    translation, reference = _compared(each.translation, each.reference)
    return (
        f'<dl class="sample"><dt>source</dt><dd>{_text(each.source)}</dd>'
        f"<dt>translation</dt><dd>{translation or '<i>empty</i>'}</dd>"
        f"<dt>reference</dt><dd>{reference}</dd>"
        f'<dt>chrF2++</dt><dd class="score">{each.chrfpp:.1f} · sentence {each.number:,}</dd></dl>\n'
    )


def _compared(translation: str, reference: str) -> tuple[str, str]:
    """Both as HTML, with words marked that do not occur in that place in the other."""
    one, other = _TOKENS.findall(translation), _TOKENS.findall(reference)
    if max(len(one), len(other)) > _MAX_DIFFED:
        return _text(translation), _text(reference)
    marked: tuple[list[str], list[str]] = ([], [])
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        for out, tag, words in (
            (marked[0], "mark", one[start:end]),
            (marked[1], "ins", other[other_start:other_end]),
        ):
            text = _text("".join(words))
            out.append(text if kind == "equal" or not text.strip() else f"<{tag}>{text}</{tag}>")
    return "".join(marked[0]), "".join(marked[1])


def _configuration(report: Report) -> str:
    environment = {name: str(value) for name, value in list(report.facts.environment.items())[:_MAX_ROWS]}
    config = escape(visible(report.config_yaml))
    return (
        '<div class="columns"><div><h3>Options that differ from their defaults</h3>\n'
        f"{_pairs(report.changed_options)}</div><div><h3>Versions</h3>\n{_pairs(environment)}</div></div>\n"
        f"<details><summary>All options, as a config file</summary><pre>{config}</pre>"
        "</details>\n"
    )


def _reproduce(report: Report) -> str:
    commands = "\n".join(report.commands)
    return (
        f"<p>Save all options (above) as <code>{_text(report.facts.name)}.yaml</code>, and check that the "
        "corpus has the fingerprints above. Then:</p>\n"
        f"<pre>{_text(commands)}</pre>\n"
        "<p>With the same versions, kind of CPU and number of threads, the weights are bit-identical.</p>\n"
    )
