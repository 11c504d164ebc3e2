"""A report as a model card: Markdown with the YAML front matter that the Hugging Face Hub reads."""

import re
from collections.abc import Iterable, Mapping, Sequence

import yaml

from mt.display import markdown_table, markdown_text, origin_of_split, visible
from mt.evaluation.analysis import ScoredSentence
from mt.reports.facts import CorpusFacts
from mt.reports.report import Report, ScoreRow

_MAX_CHARACTERS = 2000
_MAX_ROWS = 100
# The Hub's names of sacreBLEU's metrics.
_METRICS = {"bleu": "bleu", "chrf": "chrf", "chrfpp": "chrf", "ter": "ter"}


def card(report: Report) -> str:
    """The whole Markdown document."""
    src, tgt = report.languages
    sections = {
        "Training data": _corpus(report),
        "Model": _pairs(report.model),
        "Training": _training(report),
        "Scores": _scores(report.scores),
        "Translations": _samples(report),
        "Options that differ from their defaults": _pairs(report.changed_options),
        "Versions": _pairs({name: str(value) for name, value in report.facts.environment.items()}),
        "How to reproduce it": _reproduce(report),
        "Left out of this card": _list(report.left_out),
    }
    figures = _figures(report.figures)
    body = "\n\n".join(f"## {head}\n\n{text}" for head, text in sections.items() if text)
    return (
        f"---\n{_front_matter(report)}---\n\n# {_text(report.facts.name)}: {_text(src)} to {_text(tgt)}\n\n"
        f"A Transformer that translates, trained from scratch{figures and f': {figures}'}.\n\n{body}\n\n"
        f"Made on {report.made:%Y-%m-%d %H:%M} UTC by mt {_text(report.mt_version)}.\n"
    )


def _front_matter(report: Report) -> str:
    rows = _newest(row for row in report.scores if row.key in _METRICS and report.speaks_for_model(row))
    content: dict[str, object] = {"language": report.language_codes} if report.language_codes else {}
    content |= {"license": "unknown", "pipeline_tag": "translation", "tags": ["translation", "transformer"]}
    if datasets := _hub_datasets(report.facts.corpus):
        content["datasets"] = datasets
    if rows:
        content["metrics"] = sorted({_METRICS[row.key] for row in rows})
        content["model-index"] = [{"name": report.facts.name, "results": _results(rows)}]
    # In ASCII, with control characters escaped, so that no text can end the front matter.
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=False, width=1000)


def _hub_datasets(corpus: CorpusFacts | None) -> list[str]:
    """The distinct corpora from the Hub; older runs do not record their sources."""
    if corpus is None:
        return []
    found = [(corpus.path, corpus.kind), *((each.path, each.kind) for each in corpus.sources[:_MAX_ROWS])]
    return list(dict.fromkeys(path for path, kind in found if kind == "hub"))


def _newest(rows: Iterable[ScoreRow]) -> list[ScoreRow]:
    """The rows without those of an evaluation that a newer one has made obsolete; the newest come first.

    The files behind a name may have changed, so that two evaluations have the same data and search, but
    different sentences.
    """
    settings: dict[tuple[str, str], str] = {}
    return [row for row in rows if settings.setdefault((row.data, row.search), row.setting) == row.setting]


def _results(rows: list[ScoreRow]) -> list[dict[str, object]]:
    """The scores in the Hub's format, one result for each evaluation."""
    groups: dict[tuple[str, str], list[ScoreRow]] = {}
    for row in rows:
        groups.setdefault((row.data, row.search), []).append(row)
    return [
        {
            "task": {"type": "translation"},
            "dataset": {"name": data, "type": data.partition(", ")[0]},
            "metrics": [
                {
                    "type": _METRICS[row.key],
                    "name": f"{row.score.name}, {search}",
                    "value": round(row.score.value, 2),
                }
                for row in group
            ],
        }
        for (data, search), group in groups.items()
    ]


def _text(text: str) -> str:
    """Untrusted text, made harmless in Markdown and put on one line."""
    shown = text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"
    escaped = markdown_text(shown.encode(errors="backslashreplace").decode())
    # Beyond what TensorBoard supports: strike-through, formulas, and mentions of people.
    return escaped.replace("~", "&#126;").replace("$", "&#36;").replace("@", "&#64;")


def _code(text: str) -> str:
    """Text as code on one line, also in a table."""
    # A backslash before the one that keeps a bar from ending the cell would undo that.
    plain = " ".join(visible(text).split()).replace("`", "'").replace("\\|", "\\ |").replace("|", r"\|")
    return f"`{plain}`" if plain else ""


def _fenced(text: str, language: str) -> str:
    """A block of code, whatever the text contains."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{visible(text).strip()}\n{fence}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already; nothing without rows."""
    found = list(rows)
    return markdown_table(head, found) if found else ""


def _pairs(rows: Mapping[str, str]) -> str:
    return _table(("", ""), ((_text(name), _text(value)) for name, value in list(rows.items())[:_MAX_ROWS]))


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {_text(item)}" for item in items)


def _figures(figures: Mapping[str, str]) -> str:
    return ", ".join(f"{_text(value)} {_text(what)}" for what, value in figures.items() if "BLEU" not in what)


def _corpus(report: Report) -> str:
    corpus = report.facts.corpus
    if corpus is None:
        return "The record of the corpus cannot be read."
    splits = _table(
        ("split", "pairs", "origin", "fingerprint"),
        (
            (_text(name), f"{each.pairs:,}", _text(origin_of_split(each.origin)), _code(each.fingerprint))
            for name, each in list(corpus.splits.items())[:_MAX_ROWS]
        ),
    )
    mixed = _table(
        ("source", "training pairs", "weight", "revision"),
        (
            (
                _text(each.path),
                "unknown" if each.pairs is None else f"{each.pairs:,}",
                f"{each.weight:g}",
                _code(each.revision or ""),
            )
            for each in corpus.sources[:_MAX_ROWS]
        ),
    )
    dropped = _table(
        ("dropped from training", "pairs"),
        ((_text(reason), f"{count:,}") for reason, count in list(corpus.dropped.items())[:_MAX_ROWS]),
    )
    revision = f", revision {_code(corpus.revision)}" if corpus.revision else ""
    blocks = [
        f"Trained on {_text(corpus.path)}{revision}, from {_text(corpus.src)} to {_text(corpus.tgt)}.",
        mixed if len(corpus.sources) > 1 else "",
        splits,
        dropped or "No training pair was dropped.",
        _list(report.leaks),
    ]
    return "\n\n".join(filter(None, blocks))


def _training(report: Report) -> str:
    sessions = _table(
        ("began", "what happened", "warnings"),
        ((_text(began), _text(told), str(len(warnings))) for began, told, warnings in report.sessions),
    )
    return "\n\n".join(filter(None, [_pairs(report.training), sessions]))


def _scores(rows: list[ScoreRow]) -> str:
    table = _table(
        ("data", "checkpoint", "search", "sentences", "score", "value", "95 % interval", "signature"),
        (
            (
                _text(row.data),
                _code(row.checkpoint),
                _text(row.search),
                "" if row.num_sentences is None else f"{row.num_sentences:,}",
                _text(row.score.name),
                f"{row.score.value:.2f}",
                "" if row.score.interval is None else "{:.2f} to {:.2f}".format(*row.score.interval),
                _code(row.score.signature),
            )
            for row in rows
        ),
    )
    return table or "There are no scores yet."


def _samples(report: Report) -> str:
    samples = report.samples
    if samples is None:
        return ""
    head = ("chrF2++", "source", "translation", "reference")
    worst = _table(head, map(_sample, samples.worst)) or "All translations equal their references."
    best = _table(head, map(_sample, samples.best)) or "Only one sentence was ranked."
    return (
        f"From {samples.num_sentences:,} of the {samples.num_in_split:,} sentences of {_text(samples.data)}, "
        f"translated by {_text(samples.checkpoint)} with greedy search and ranked by chrF2++.\n\n"
        f"### Worst\n\n{worst}\n\n"
        f"### Best\n\n{best}"
    )


def _sample(each: ScoredSentence) -> tuple[str, str, str, str]:
    return f"{each.chrfpp:.1f}", _text(each.source), _text(each.translation), _text(each.reference)


def _reproduce(report: Report) -> str:
    return (
        f"Save this config as {_code(report.facts.name + '.yaml')}, and check that the corpus has the "
        f"fingerprints above:\n\n{_fenced(report.config_yaml, 'yaml')}\n\nThen:\n\n"
        f"{_fenced(chr(10).join(report.commands), 'bash')}\n\n"
        "With the same versions, kind of CPU and number of threads, the weights are bit-identical."
    )
