"""The sessions of a run, from its ``sessions.jsonl``: when each began, how it ended, and its warnings."""

import contextlib
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import TypeAdapter, ValidationError

from mt.run_directory import RunDirectory

STILL_RUNNING = "still running"


@dataclass
class TrainingSession:
    """What one process did."""

    started: datetime
    first_step: int | None = None
    """The step that it continued from, 0 for a new run; None if it did not get as far as training."""
    outcome: str = ""
    """How it ended; empty if nothing says so, because it was killed or still runs."""
    warnings: list[str] = field(default_factory=list)
    signatures: dict[str, str] = field(default_factory=dict)
    """How its validation computed the scores, by their names."""

    def __str__(self) -> str:
        outcome = self.outcome or "nothing says how it ended, as after a kill"
        begun = f"resumed from step {self.first_step:,}" if self.first_step else "started"
        if self.first_step is None and self.outcome not in ("", STILL_RUNNING):
            begun = "did not begin"
        return f"{begun}; {outcome[0].lower()}{outcome[1:]}"


@dataclass(frozen=True)
class _Event:
    """A line of the file."""

    time: datetime
    event: str
    step: int = 0
    reason: str = ""
    text: str = ""
    signatures: dict[str, str] = field(default_factory=dict)


_EVENT = TypeAdapter(_Event)


def read_sessions(run: RunDirectory) -> list[TrainingSession]:
    """Read the sessions; a missing file has none, and lines that are no events are skipped."""
    sessions: list[TrainingSession] = []
    for line in run.sessions_file.read_bytes().split(b"\n") if run.sessions_file.exists() else []:
        with contextlib.suppress(ValidationError, IndexError):
            event = _EVENT.validate_json(line)
            match event.event:
                case "start":
                    sessions.append(TrainingSession(event.time))
                case "training":
                    sessions[-1].first_step = event.step
                case "validation":
                    sessions[-1].signatures = event.signatures
                case "warning":
                    sessions[-1].warnings.append(event.text)
                case "end":
                    sessions[-1].outcome = event.reason
    return sessions
