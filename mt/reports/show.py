"""`mt show`: one run, described in the terminal."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict

from mt.display import aligned, counted, visible
from mt.evaluation.record import mean_scores
from mt.reports.charts import sparkline
from mt.reports.facts import CorpusFacts, RunFacts

_MAX_ROWS = 20


def describe(facts: RunFacts) -> str:
    """Titled sections, as text for a terminal, in which control characters of the run are escaped."""
    sections = {
        str(facts.run.path): _pairs(facts.progress),
        "problems": [problem for problem in facts.problems if problem not in (facts.detail or "")],
        "model": _pairs(facts.model),
        "corpus": _corpus(facts.corpus) if facts.corpus else (),
        "curves": _curves(facts),
        "sessions": _sessions(facts),
        "checkpoints": _checkpoints(facts) if facts.checkpoints else (),
        "evaluations": _evaluations(facts),
        "versions": _pairs(facts.environment),
    }
    blocks = []
    for title, lines in sections.items():
        if printable := [_printable(f"  {line}") for line in lines]:
            blocks.append("\n".join([_printable(title), *printable]))
    return "\n\n".join(blocks)


def to_json(facts: RunFacts) -> dict[str, object]:
    """The same for programs."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for point in facts.points:
        for name in point.figures:
            curves[f"{point.kind}/{name}"] = facts.curve(point.kind, name)
    checkpoints = []
    for saved in facts.checkpoints:
        described = {
            "name": saved.name,
            "latest": saved == facts.latest,
            "best": saved == facts.best,
            "metrics": saved.record.metrics if saved.record else {},
            "problem": saved.problem,
        }
        checkpoints.append(described)
    return {
        "run": facts.run.path,
        **facts.summary,
        "problems": facts.problems,
        "model": facts.model,
        "corpus": facts.corpus.model_dump() if facts.corpus else None,
        "curves": curves,
        "sessions": [asdict(session) for session in facts.sessions],
        "checkpoints": checkpoints,
        "evaluations": [asdict(evaluation) for evaluation in facts.evaluations],
        "environment": facts.environment,
    }


def _printable(line: str) -> str:
    """Untrusted text on one line, in which the spaces that align it are kept."""
    return visible(line.replace("\n", " ").replace("\t", " ")).rstrip()


def _pairs(rows: Mapping[str, object]) -> list[str]:
    return aligned([(name, str(value)) for name, value in rows.items()])


def _corpus(corpus: CorpusFacts) -> Iterator[str]:
    own, *mixed = corpus.sources
    revision = f", revision {own.revision}" if own.revision else ""
    yield f"{own.path}, {own.src} to {own.tgt}{revision}{own.written_by}"
    for source in mixed:
        other = f", {source.src} to {source.tgt}" if source.direction != own.direction else ""
        of_source = f"{source.path}{source.written_by}{other}"
        yield f"mixed with {of_source}, {counted(source.pairs, 'pair')}, weight {source.weight:g}"
    for name, split in corpus.splits.items():
        yield f"{name}: {counted(split.pairs, 'pair')} ({split.where_from})"
    dropped = [f"{count:,} {reason}" for reason, count in corpus.dropped.items()]
    yield "dropped from training: " + (", ".join(dropped) or "nothing")
    yield corpus.leak_sentence


def _curves(facts: RunFacts) -> Iterator[str]:
    sources: Iterable[str] = ()
    if facts.config and facts.directions:
        sources = facts.config.data.sources
    for label, kind, name, digits in (
        ("training loss", "train", "loss", 3),
        ("validation loss", "validation", "loss", 3),
        ("BLEU", "validation", "bleu", 2),
        ("chrF2", "validation", "chrf", 2),
        *((f"BLEU on {source}", "validation", f"bleu_on_{source}", 2) for source in sources),
        ("mean BLEU", "validation", "mean_bleu", 2),
    ):
        if points := facts.curve(kind, name):
            peak = (min if name == "loss" else max)(points, key=lambda point: point[1])
            first, last, best = (f"{y:.{digits}f} at step {x:,}" for x, y in (points[0], points[-1], peak))
            yield f"{label:15}  {sparkline(points):40}  {first} to {last}; best {best}"


def _sessions(facts: RunFacts) -> Iterator[str]:
    for session in facts.sessions[-_MAX_ROWS:]:
        yield f"{session.started:%Y-%m-%d %H:%M:%S}  {session}"
        for warning in session.warnings[:_MAX_ROWS]:
            yield f"    warning: {warning}"


def _checkpoints(facts: RunFacts) -> list[str]:
    title, key = "BLEU", "bleu"
    if facts.directions:
        title, key = "mean BLEU", "mean_bleu"
    rows = [("name", "marked", title)]
    notes = [""]
    for saved in facts.checkpoints:
        bleu = saved.record.metrics.get(key) if saved.record else None
        average_of = saved.record.average_of if saved.record else []
        is_best = saved == facts.best and (saved.record is None or saved.record.best)
        marks = ["best"] if is_best else []
        if saved == facts.latest:
            marks.append("latest")
        rows.append((saved.name, " ".join(marks), "-" if bleu is None else f"{bleu:.2f}"))
        averaged = f"average of {len(average_of)}" if average_of else ""
        notes.append(f"damaged: {saved.problem}" if saved.problem else averaged)
    return [f"{line}  {note}" for line, note in zip(aligned(rows, num_texts=2), notes, strict=True)]


def _evaluations(facts: RunFacts) -> Iterator[str]:
    for evaluation in facts.evaluations[-_MAX_ROWS:]:
        what = f"{evaluation.data}, {evaluation.checkpoint}, {evaluation.how}"
        yield f"{what}: {counted(evaluation.num_sentences, 'sentence')}, {evaluation.time:%Y-%m-%d}"
        for score in evaluation.scores.values():
            yield f"  {' '.join(str(score).split())}"
    for tests in facts.tests:
        if len(tests) > 1:
            newest = tests[-1]
            number = counted(len(tests), "direction")
            yield f"test, mean of {number}, {newest.checkpoint}, {newest.how}"
            for score in mean_scores(tests).values():
                yield f"  {' '.join(str(score).split())}"
