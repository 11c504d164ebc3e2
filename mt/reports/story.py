"""`mt show`: one run, described in the terminal."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from mt.display import aligned, counted, one_line, origin_of_split, size
from mt.reports.checkpoints import SavedCheckpoint
from mt.reports.curves import series
from mt.reports.facts import CorpusFacts, RunFacts
from mt.reports.log import FAILED, TrainingSession
from mt.reports.table import UNKNOWN, short_count, short_duration

_BARS = "▁▂▃▄▅▆▇█"
_SPARKLINE_WIDTH = 40
_MAX_ROWS = 20


def story(facts: RunFacts) -> str:
    """Titled sections, as text for a terminal, in which control characters of the run are escaped."""
    sections = {
        "": list(_overview(facts)),
        "corpus": list(_corpus(facts.corpus)) if facts.corpus else [],
        "curves": list(_curves(facts)),
        "sessions": list(_sessions(facts)),
        "checkpoints": list(_checkpoints(facts)),
        "evaluations": list(_evaluations(facts)),
    }
    blocks = [
        "\n".join([*([title] if title else []), *(f"  {line}".rstrip() if title else line for line in lines)])
        for title, lines in sections.items()
        if lines
    ]
    return "\n\n".join(blocks)


def _overview(facts: RunFacts) -> Iterator[str]:
    summary = facts.summary
    detail = f": {one_line(summary.detail)}" if summary.detail else ""
    yield f"{one_line(str(facts.run.path))}: {summary.state}{detail}"
    for problem in facts.problems:
        if problem not in (summary.detail or ""):
            yield f"problem: {one_line(problem)}"
    done = [
        f"step {summary.step:,}" if summary.step is not None else "",
        counted(summary.epochs, "epoch") if summary.epochs is not None else "",
        f"{short_count(summary.num_target_tokens)} target tokens" if summary.num_target_tokens else "",
        short_duration(facts.minutes * 60) if facts.minutes else "",
        f"{summary.tokens_per_second:,.0f} tokens/s" if summary.tokens_per_second else "",
    ]
    yield "trained: " + (", ".join(filter(None, done)) or "not yet")
    if facts.config:
        model, kind = facts.config.model, facts.config.tokenizer.kind
        parameters = f"{facts.num_parameters:,} parameters, " if facts.num_parameters else ""
        yield (
            f"model: {parameters}{model.num_encoder_layers} + {model.num_decoder_layers} layers of width "
            f"{model.d_model} with {counted(model.num_heads, 'head')}"
        )
        sizes = facts.corpus.vocabulary_sizes if facts.corpus else {}
        entries = ", ".join(f"{one_line(side)} {count:,}" for side, count in list(sizes.items())[:_MAX_ROWS])
        yield f"vocabulary: {kind}{f', {entries}' if entries else ''}"
    if facts.environment:
        yield "environment: " + ", ".join(
            one_line(f"{name} {value}", 100) for name, value in list(facts.environment.items())[:_MAX_ROWS]
        )
    yield f"size: {size(summary.num_bytes)}"


def _corpus(corpus: CorpusFacts) -> Iterator[str]:
    revision = f", revision {corpus.revision}" if corpus.revision else ""
    yield one_line(f"{corpus.path}, {corpus.src} to {corpus.tgt}{revision}")
    for source in corpus.sources[1:_MAX_ROWS]:
        pairs = "" if source.pairs is None else f", {counted(source.pairs, 'pair')}"
        yield one_line(f"mixed with {source.path}{pairs}, weight {source.weight:g}")
    for name, split in list(corpus.splits.items())[:_MAX_ROWS]:
        origin = f" ({origin_of_split(split.origin)})" if split.origin else ""
        yield one_line(f"{name}: {counted(split.pairs, 'pair')}{origin}")
    dropped = [f"{count:,} {reason}" for reason, count in list(corpus.dropped.items())[:_MAX_ROWS]]
    yield one_line("dropped from training: " + (", ".join(dropped) or "nothing"))
    for name, leaks in list(corpus.leaks.items())[:_MAX_ROWS]:
        removed = ", removed from training" if corpus.leaks_removed and leaks.pair.normalised else ""
        yield one_line(
            f"of {counted(leaks.pairs, 'pair')} in {name}, also in training: "
            f"{counted(leaks.pair.normalised, 'pair')}{removed}, "
            f"{counted(leaks.source.normalised, 'source')}, "
            f"{counted(leaks.target.normalised, 'target')}"
        )


def _curves(facts: RunFacts) -> Iterator[str]:
    for label, points, name, digits in (
        ("training loss", facts.curves.train, "loss", 3),
        ("validation loss", facts.curves.validation, "loss", 3),
        ("BLEU", facts.curves.validation, "bleu", 2),
        ("chrF2", facts.curves.validation, "chrf", 2),
    ):
        values = series(points, name)
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
    bounds = [len(values) * place // count for place in range(count + 1)] if count else [0]
    means = [sum(values[start:end]) / (end - start) for start, end in pairwise(bounds)]
    lowest, highest = min(means, default=0.0), max(means, default=0.0)
    # The quotient first: with a tiny range, its inverse would be infinite.
    shares = [(mean - lowest) / (highest - lowest) if highest > lowest else 0.0 for mean in means]
    return "".join(_BARS[round(share * (len(_BARS) - 1))] for share in shares)


def _sessions(facts: RunFacts) -> Iterator[str]:
    sessions = facts.log.sessions
    if len(sessions) > _MAX_ROWS:
        yield f"... {len(sessions) - _MAX_ROWS} earlier ones"
    for session in sessions[-_MAX_ROWS:]:
        is_running = session is sessions[-1] and facts.summary.state == "running"
        yield one_line(f"{session.started}  {told(session, is_running=is_running)}")
        for warning in session.warnings[:_MAX_ROWS]:
            yield f"    warning: {one_line(warning, 300)}"
        if len(session.warnings) > _MAX_ROWS:
            yield f"    ... {counted(len(session.warnings) - _MAX_ROWS, 'more warning')}"


def told(session: TrainingSession, *, is_running: bool) -> str:
    """How a session began and ended, in words."""
    begun = f"resumed from step {session.first_step:,}" if session.first_step else "started"
    # A session that was to resume may fail before the log says from which step.
    if not session.has_begun and (session.outcome or "").startswith(FAILED):
        begun = "did not begin"
    if is_running:
        ended = "still running"
    elif session.outcome is None:
        last = f"the last line is from {session.last_line}"
        ended = f"the log does not say how it ended, as after a kill; {last}"
    else:
        ended = session.outcome[0].lower() + session.outcome[1:]
    return f"{begun}; {ended}"


def _checkpoints(facts: RunFacts) -> Iterator[str]:
    found = facts.checkpoints.found
    if not found:
        return
    if len(found) > _MAX_ROWS:
        yield f"... {len(found) - _MAX_ROWS} more"
    shown = found[-_MAX_ROWS:]
    rows = aligned([("name", "marked", "BLEU", "size"), *map(_checkpoint_row, shown)], num_texts=2)
    yield rows[0]
    for row, each in zip(rows[1:], shown, strict=True):
        yield f"{row}  {_checkpoint_note(each)}"


def _checkpoint_row(each: SavedCheckpoint) -> tuple[str, ...]:
    marks = [name for name, holds in (("best", each.is_best), ("latest", each.is_latest)) if holds]
    bleu = each.record.metrics.get("bleu") if each.record else None
    return each.name, " ".join(marks), UNKNOWN if bleu is None else f"{bleu:.2f}", size(each.num_bytes)


def _checkpoint_note(each: SavedCheckpoint) -> str:
    if each.problem:
        return one_line(f"damaged: {each.problem}", 300)
    return f"average of {len(each.record.average_of)}" if each.record and each.record.average_of else ""


def _evaluations(facts: RunFacts) -> Iterator[str]:
    for each in facts.evaluations[-_MAX_ROWS:]:
        yield one_line(
            f"{each.data}, {each.checkpoint}, {each.how}: {counted(each.num_sentences, 'sentence')}, "
            f"{each.time:%Y-%m-%d}"
        )
        for score in list(each.scores.values())[:_MAX_ROWS]:
            yield f"  {one_line(str(score), 300)}"
