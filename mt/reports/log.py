"""The sessions of a run, from its ``train.log``: when each began, how it ended, and its warnings."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

_MAX_BYTES = 16_000_000
_MAX_KEPT = 200
_RECORD = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d{3} ([A-Z]+) (.*)")
_RESUMING = re.compile(r"(?:resuming .*|training) from step ([\d,]{1,20})")
_SIGNATURE = re.compile(r"(\S{1,20}) signature: (\S{1,200})")
_BEGINS = "training in "
# The first line that every session of an older version has, after warnings if there are any.
_LOADED = "corpus: "
# Written when data and model are ready; the second line is not in logs of an earlier version, and the first
# only if messages of level INFO are logged.
_READY = ("model: ", "training from step ")
FAILED = "Failed: "
_ENDS = ("Finished: ", "Stopped ", FAILED)
# Written when the run was made, before its first session.
_OF_A_BRANCH = "continuing in "


@dataclass
class TrainingSession:
    """What one process did; times are local, as in the log."""

    started: str
    first_step: int = 0
    """The step that it continued from."""
    last_line: str = ""
    """The time of its last line."""
    outcome: str | None = None
    """How it ended, in the words of the log; None if it did not say so, because it was killed or still runs.
    """
    warnings: list[str] = field(default_factory=list)
    has_loaded: bool = False
    """Whether it has loaded the corpus."""
    has_begun: bool = True
    """Whether it got as far as training; also True if that is unknown, as in logs of older versions."""


@dataclass(frozen=True)
class Log:
    """The parts of a log that are worth reporting."""

    sessions: list[TrainingSession] = field(default_factory=list)
    """From the first to the last, at most the last 200."""
    signatures: dict[str, str] = field(default_factory=dict)
    """How validation computes its scores, by their names."""


def read_log(file: Path) -> Log:
    """Read a log, or its end if it is very long; a missing file gives an empty one."""
    log = Log()
    try:
        lines = _lines(file)
    except FileNotFoundError:
        return log
    for line in lines:
        if record := _RECORD.fullmatch(line):
            _add(log, *record.groups())
    return log


def _lines(file: Path) -> list[str]:
    with file.open("rb") as opened:
        opened.seek(max(0, os.fstat(opened.fileno()).st_size - _MAX_BYTES))
        return (opened.read(_MAX_BYTES) or b"").decode(errors="replace").split("\n")


def _add(log: Log, time: str, level: str, text: str) -> None:
    if text.startswith(_OF_A_BRANCH):
        return
    is_loaded = text.startswith(_LOADED)
    if not log.sessions or text.startswith(_BEGINS) or (is_loaded and log.sessions[-1].has_loaded):
        log.sessions.append(TrainingSession(time, has_begun=not text.startswith(_BEGINS)))
        del log.sessions[:-_MAX_KEPT]
    session = log.sessions[-1]
    session.last_line = time
    session.has_loaded |= is_loaded
    session.has_begun |= text.startswith(_READY)
    if resuming := _RESUMING.fullmatch(text):
        session.first_step = int(resuming[1].replace(",", "") or 0)
    elif text.startswith(_ENDS):
        session.outcome = text
    elif signature := _SIGNATURE.fullmatch(text):
        log.signatures[signature[1]] = signature[2]
    elif level in ("WARNING", "ERROR") and len(session.warnings) < _MAX_KEPT:
        session.warnings.append(text)
