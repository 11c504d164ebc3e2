"""What was found about a model and text as people write it: the run's ``behaviours.json``."""

import json
import math
from dataclasses import asdict, dataclass, field

from pydantic import TypeAdapter, ValidationError

from mt.run_directory import RunDirectory

_OF_PARTS = ("names", "numbers", "emoji", "web addresses", "e-mail addresses")
# How much worse than clean text, in BLEU, is poor, and what cures it; below 90 % for shares.
_CURES = {
    "capitals": (4.0, "as_written.upper, such as 0.07"),
    "title case": (4.0, "as_written.title, such as 0.05"),
    "no final punctuation": (1.0, "as_written.no_final_punctuation, such as 0.2"),
    "typing errors": (8.0, "as_written.typos, such as 0.05"),
    "two lines joined": (2.0, "as_written.joined, such as 0.05"),
    "longest tenth": (8.0, "more long pairs, and a larger data.max_length"),
    "one word alone": (10.0, "single words among the training pairs, as from a dictionary"),
    "a negation removed": (10.0, "more training pairs, or a larger model"),
} | dict.fromkeys(_OF_PARTS, (10.0, "training.keep_share, such as 0.1, with training.guided_alignment"))


@dataclass(frozen=True)
class Example:
    """A line, what became of it, and what was wished for."""

    source: str
    translation: str
    reference: str


@dataclass(frozen=True)
class Behaviour:
    """How a model does with one kind of text."""

    name: str
    num_lines: int
    measure: str
    """BLEU, or the percentage of lines that are as wished."""
    value: float
    interval: tuple[float, float]
    """95 %: by bootstrap resampling, or Wilson's of a share."""
    drop: float
    """How many points it is below clean text, or below 100 %."""
    examples: list[Example] = field(default_factory=list)
    """The worst lines, of the worst behaviours."""


@dataclass(frozen=True)
class Behaviours:
    """What `mt evaluate --behaviours` finds."""

    data: str
    direction: str
    checkpoint: str
    engine: str
    """What searched, in which precision."""
    signature: str
    """That of BLEU."""
    behaviours: list[Behaviour]
    left_out: dict[str, str]
    """Why some could not be measured, by their names."""

    @property
    def cures(self) -> list[str]:
        """The option that helps, in a sentence for each behaviour that is poor."""
        sentences = []
        for found in self.behaviours:
            most, cure = _CURES.get(found.name, (math.inf, ""))
            # Of a weak model, a few points are most of what it has.
            if cure and found.drop > min(most, (found.value + found.drop) / 4):
                sentences.append(f"{found.name}: {found.drop:.1f} points lower. What helps: {cure}.")
        return sentences


_ADAPTER = TypeAdapter(Behaviours)


def to_json(found: Behaviours) -> str:
    """The content of the run's ``behaviours.json``."""
    return json.dumps(asdict(found), indent=2, ensure_ascii=False) + "\n"


def read_behaviours(run: RunDirectory) -> Behaviours | None:
    """What was found last; None if nothing was, or it cannot be read."""
    try:
        return _ADAPTER.validate_json(run.behaviours_file.read_bytes())
    except (OSError, ValidationError):
        return None
