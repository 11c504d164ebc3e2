"""`mt show`: one run, described in the terminal."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from mt.display import counted, origin_of_split, size, visible
from mt.reports.checkpoints import SavedCheckpoint
from mt.reports.facts import CorpusFacts, RunFacts
from mt.reports.summary import series
from mt.reports.table import UNKNOWN, terminal_table

_BARS = "▁▂▃▄▅▆▇█"
_SPARKLINE_WIDTH = 40
_MAX_ROWS = 20
_MAX_LENGTH = 1000


def story(facts: RunFacts) -> str:
    """Titled sections, as text for a terminal, in which control characters of the run are escaped."""
    problems = [problem for problem in facts.problems if problem not in (facts.summary.detail or "")]
    sections = {
        str(facts.summary.run.path): _pairs(facts.progress | {"size": size(facts.summary.num_bytes)}),
        "problems": problems,
        "model": _pairs(facts.model),
        "corpus": _corpus(facts.corpus) if facts.corpus else (),
        "curves": _curves(facts),
        "sessions": _sessions(facts),
        "checkpoints": _checkpoints(facts),
        "evaluations": _evaluations(facts),
        "versions": _pairs({name: str(value) for name, value in facts.environment.items()}),
    }
    blocks = []
    for title, lines in sections.items():
        shown = [_shown(f"  {line}") for line in lines]
        if shown:
            blocks.append("\n".join([_shown(title), *shown]))
    return "\n\n".join(blocks)


def _shown(line: str) -> str:
    """Untrusted text on one line, shortened if it is long; the spaces that align it are kept."""
    line = visible(line.replace("\n", " ").replace("\t", " ")).rstrip()
    return line if len(line) <= _MAX_LENGTH else line[: _MAX_LENGTH - 1] + "…"


def _pairs(rows: dict[str, str]) -> list[str]:
    return terminal_table(list(rows.items()), num_texts=2).split("\n") if rows else []


def _corpus(corpus: CorpusFacts) -> Iterator[str]:
    revision = f", revision {corpus.revision}" if corpus.revision else ""
    yield f"{corpus.path}, {corpus.src} to {corpus.tgt}{revision}"
    for source in corpus.sources[1:]:
        yield f"mixed with {source.path}, {counted(source.pairs, 'pair')}, weight {source.weight:g}"
    for name, split in corpus.splits.by_name().items():
        yield f"{name}: {counted(split.pairs, 'pair')} ({origin_of_split(split.origin)})"
    dropped = [f"{count:,} {reason}" for reason, count in corpus.dropped.items()]
    yield "dropped from training: " + (", ".join(dropped) or "nothing")
    yield from corpus.leak_sentences


def _curves(facts: RunFacts) -> Iterator[str]:
    for label, kind, name, digits in (
        ("training loss", "train", "loss", 3),
        ("validation loss", "validation", "loss", 3),
        ("BLEU", "validation", "bleu", 2),
        ("chrF2", "validation", "chrf", 2),
    ):
        values = series(facts.summary.points, kind, name)
        if not values:
            continue
        (first_step, first), (last_step, last) = values[0], values[-1]
        best = (min if name == "loss" else max)(values, key=lambda pair: pair[1])
        yield (
            f"{label:15}  {sparkline([value for _, value in values]):{_SPARKLINE_WIDTH}}  "
            f"{first:.{digits}f} at step {first_step:,} to {last:.{digits}f} at step {last_step:,}; "
            f"best {best[1]:.{digits}f} at step {best[0]:,}"
        )


def sparkline(values: Sequence[float], width: int = _SPARKLINE_WIDTH) -> str:
    """At most ``width`` bars from the lowest to the highest value, each the mean of its share of values."""
    count = min(width, len(values))
    bounds = [len(values) * index // count for index in range(count + 1)] if count else [0]
    means = [sum(values[start:end]) / (end - start) for start, end in pairwise(bounds)]
    lowest, highest = min(means, default=0.0), max(means, default=0.0)
    # The quotient first: with a tiny range, its inverse would be infinite.
    shares = [(mean - lowest) / (highest - lowest) if highest > lowest else 0.0 for mean in means]
    return "".join(_BARS[round(share * (len(_BARS) - 1))] for share in shares)


def _sessions(facts: RunFacts) -> Iterator[str]:
    if len(facts.sessions) > _MAX_ROWS:
        yield f"... {len(facts.sessions) - _MAX_ROWS} earlier ones"
    for session in facts.sessions[-_MAX_ROWS:]:
        yield f"{session.started:%Y-%m-%d %H:%M:%S}  {facts.describe(session)}"
        for warning in session.warnings[:_MAX_ROWS]:
            yield f"    warning: {warning}"
        if len(session.warnings) > _MAX_ROWS:
            yield f"    ... {counted(len(session.warnings) - _MAX_ROWS, 'more warning')}"


def _checkpoints(facts: RunFacts) -> Iterator[str]:
    saved = facts.summary.checkpoints
    if not saved:
        return
    table = terminal_table([("name", "marked", "BLEU", "size"), *map(_checkpoint_row, saved)], num_texts=2)
    head, *rows = table.split("\n")
    yield head
    for row, checkpoint in zip(rows, saved, strict=True):
        yield f"{row}  {_checkpoint_note(checkpoint)}"


def _checkpoint_row(checkpoint: SavedCheckpoint) -> tuple[str, ...]:
    marks = " ".join(["best"] * checkpoint.is_best + ["latest"] * checkpoint.is_latest)
    bleu = checkpoint.record.metrics.get("bleu") if checkpoint.record else None
    return checkpoint.name, marks, UNKNOWN if bleu is None else f"{bleu:.2f}", size(checkpoint.num_bytes)


def _checkpoint_note(checkpoint: SavedCheckpoint) -> str:
    if checkpoint.problem:
        return f"damaged: {checkpoint.problem}"
    average_of = checkpoint.record.average_of if checkpoint.record else []
    return f"average of {len(average_of)}" if average_of else ""


def _evaluations(facts: RunFacts) -> Iterator[str]:
    for evaluation in facts.evaluations[-_MAX_ROWS:]:
        yield (
            f"{evaluation.data}, {evaluation.checkpoint}, {evaluation.how}: "
            f"{counted(evaluation.num_sentences, 'sentence')}, {evaluation.time:%Y-%m-%d}"
        )
        for score in evaluation.scores.values():
            yield f"  {' '.join(str(score).split())}"
