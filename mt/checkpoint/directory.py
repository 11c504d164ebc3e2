"""The names in a folder ``checkpoints/`` and its pointers ``latest`` and ``best``."""

import contextlib
import math
import re
from pathlib import Path

from mt.checkpoint.record import read_record
from mt.errors import CheckpointError

LATEST, BEST = "latest", "best"
_STEP_NAME = re.compile(r"step_(\d{7,18})")
_AVERAGE_NAME = re.compile(r"average_(\d{7,18})")


class CheckpointDirectory:
    """What is in the folder ``checkpoints/`` of a run, without reading weights."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def names(self) -> list[str]:
        """The checkpoints that training saved, sound or not, from the oldest step to the newest."""
        return self._names(_STEP_NAME)

    def averages(self) -> list[str]:
        """The averages, likewise."""
        return self._names(_AVERAGE_NAME)

    def pointer(self, pointer: str) -> str | None:
        """The name in ``latest`` or ``best``; None if the file is missing or names no checkpoint."""
        try:
            text = (self.directory / pointer).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None
        return text if _STEP_NAME.fullmatch(text) else None

    def last_best(self, up_to_step: float = math.inf) -> str | None:
        """The best checkpoint up to a step: the last one that was the best of the run when it was saved."""
        for name in reversed(self.names()):
            with contextlib.suppress(CheckpointError):
                if step_of(name) <= up_to_step and read_record(self.directory / name).best:
                    return name
        return None

    def traces(self) -> list[str]:
        """Proof that checkpoints were saved, even if they are gone: the pointers and the averages."""
        pointers = [name for name in (LATEST, BEST) if (self.directory / name).exists()]
        return pointers + self.averages()

    def _names(self, pattern: re.Pattern[str]) -> list[str]:
        names = [path.name for path in self.directory.iterdir()] if self.directory.is_dir() else []
        return sorted(filter(pattern.fullmatch, names), key=step_of)


def step_of(name: str) -> int:
    """The step in the name of a checkpoint or an average."""
    return int(name.rpartition("_")[2])
