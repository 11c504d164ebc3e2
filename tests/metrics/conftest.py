"""sacreBLEU's command line, as anybody else would call it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def command_line(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Calls ``sacrebleu`` on texts, the last of several systems by name; the JSON that it prints."""

    def run(
        hypotheses: Sequence[str], references: Sequence[str], *arguments: str, other: Sequence[str] = ()
    ) -> list[dict[str, Any]]:
        texts = {"hypotheses": hypotheses, "references": references, "other": other}
        files = {name: tmp_path / f"{name}.txt" for name in texts}
        for name, lines in texts.items():
            files[name].write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        systems = [files["hypotheses"], *([files["other"]] if other else [])]
        ended = subprocess.run(
            [sys.executable, "-m", "sacrebleu", files["references"], "-i", *systems, *arguments]
            + ["--format", "json"],
            capture_output=True,
            encoding="utf-8",
            env={**os.environ, "SACREBLEU": str(tmp_path / "sacrebleu"), "NO_COLOR": "1"},
            check=True,
        )
        found = json.loads(ended.stdout)
        return found if isinstance(found, list) else [found]

    return run
