"""What was dropped from the training pairs: how many for which reason, with examples, as a table."""

from collections import Counter
from collections.abc import Mapping

from mt.config.located_yaml import one_short_line
from mt.data.corpus_report import TrainingSplitReport

EXAMPLES_KEPT = 2


class Dropped:
    """Counts the dropped pairs under their reasons, and keeps the first of each as examples.

    Attributes:
        counts: Pairs for each reason; a reason completes the sentence "in so many rows ...".
        examples: Source and target, cut short, of the first pairs for each reason.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[list[str]]] = {}

    def add(self, reason: str, src: object, tgt: object) -> None:
        """Count one pair, whose sides may be anything that a corpus holds where text should stand."""
        self.counts[reason] += 1
        if self.counts[reason] <= EXAMPLES_KEPT:
            sides = ["" if side is None else one_short_line(str(side)) for side in (src, tgt)]
            self.examples.setdefault(reason, []).append(sides)


def cleaning_table(train: TrainingSplitReport, dropped_later: Mapping[str, int]) -> str:
    """What was dropped from training, one line for each reason, with its share and an example.

    Args:
        train: What was read, and dropped by cleaning.
        dropped_later: Pairs for each reason that were dropped afterwards, when they were encoded.

    Returns:
        Aligned lines without a newline at the end; nothing where no pair was dropped.
    """
    counts = train.dropped | {reason: count for reason, count in dropped_later.items() if count}
    if not counts:
        return ""
    num_rows = train.pairs + sum(train.dropped.values())
    rows = [("reason", "pairs", "share", "example")]
    for reason, count in [*counts.items(), ("all of these", sum(counts.values()))]:
        example = " ||| ".join(train.examples[reason][0]) if reason in train.examples else ""
        rows.append((reason, f"{count:,}", f"{count / num_rows:.2%}", example))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [f"{r:<{widths[0]}}  {n:>{widths[1]}}  {s:>{widths[2]}}  {e}".rstrip() for r, n, s, e in rows]
    return f"of {num_rows:,} training pairs {sum(counts.values()):,} were dropped:\n" + "\n".join(lines)
