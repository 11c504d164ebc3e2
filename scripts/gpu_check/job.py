"""The job of each part of the check."""

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

REPOSITORY = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Job:
    """The device, folder and corpus of a part."""

    device: str
    """``cuda``; or ``cpu``, where everything is small, to try the check itself."""
    folder: Path
    """For runs, logs and caches."""
    data: str
    """The corpus, as data.path takes it."""
    src: str
    tgt: str

    @classmethod
    def given(cls) -> Self:
        """The job that `command` has put on this process's command line."""
        values = json.loads(sys.argv[1])
        return cls(**values | {"folder": Path(values["folder"])})

    def command(self, part: str) -> list[str]:
        """The command of a part, a module of this package."""
        values = asdict(self) | {"folder": str(self.folder)}
        return [sys.executable, "-m", f"scripts.gpu_check.{part}", json.dumps(values)]

    def environment(self) -> dict[str, str]:
        """The environment of all processes: nothing is downloaded, and caches are in the folder."""
        return os.environ | {
            "MT_CACHE": str(self.folder / "cache"),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            # Several processes compile at once, each with so many more.
            "TORCHINDUCTOR_COMPILE_THREADS": "4",
        }

    @property
    def unbroken_run(self) -> Path:
        """The float32 run of the part `training` that is translated with."""
        return self.folder / "float32" / "unbroken"


def row(*cells: object) -> None:
    """Print a row of a Markdown table at once, so that it is kept if the part is stopped."""
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def head(*cells: str) -> None:
    """Print the head of a Markdown table."""
    row(*cells)
    print("|" + "---|" * len(cells), flush=True)
