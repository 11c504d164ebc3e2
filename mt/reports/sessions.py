"""The sessions of a run, from its ``sessions.jsonl``: when each began, how it ended, and its warnings."""

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from mt.files import read_json_lines
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


def read_sessions(run: RunDirectory) -> list[TrainingSession]:
    """Read the sessions; lines that are no events are skipped."""
    sessions: list[TrainingSession] = []
    for event in read_json_lines(run.sessions_file):
        match event:
            case {"event": "start", "time": str(time)}:
                with suppress(ValueError):
                    sessions.append(TrainingSession(datetime.fromisoformat(time)))
            case _ if not sessions:
                pass
            case {"event": "training", "step": int(step)}:
                sessions[-1].first_step = step
            case {"event": "validation", "signatures": dict(signatures)}:
                sessions[-1].signatures = signatures
            case {"event": "warning", "text": str(text)}:
                sessions[-1].warnings.append(text)
            case {"event": "end", "reason": str(reason)}:
                sessions[-1].outcome = reason
    return sessions
