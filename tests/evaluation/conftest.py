"""sacreBLEU's command line, as anybody else would call it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def command_line(tmp_path: Path) -> Callable[..., dict[str, dict[str, Any]]]:
    """Calls ``sacrebleu`` on one system; what it prints as JSON, by the name of the metric."""

    def run(
        hypotheses: Sequence[str], references: Sequence[str], *arguments: str
    ) -> dict[str, dict[str, Any]]:
        found = json.loads(_sacrebleu(tmp_path, [hypotheses], references, *arguments, "--format", "json"))
        return {each["name"]: each for each in (found if isinstance(found, list) else [found])}

    return run


@pytest.fixture
def table_of_command_line(tmp_path: Path) -> Callable[..., list[list[str]]]:
    """Calls ``sacrebleu`` on two systems, whose paired test it cannot print as JSON: the cells of each."""

    def run(
        first: Sequence[str], second: Sequence[str], references: Sequence[str], *arguments: str
    ) -> list[list[str]]:
        table = _sacrebleu(tmp_path, [first, second], references, *arguments, "--format", "latex")
        rows = re.findall(r"^.*system\d\.txt & .*$", table, re.MULTILINE)
        return [[cell.strip(" \\") for cell in row.split("&")[1:]] for row in rows]

    return run


def _sacrebleu(
    folder: Path, systems: Sequence[Sequence[str]], references: Sequence[str], *arguments: str
) -> str:
    files = [folder / "references.txt", *(folder / f"system{number}.txt" for number in range(len(systems)))]
    for file, lines in zip(files, [references, *systems], strict=True):
        file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "sacrebleu", files[0], "-i", *files[1:], *arguments],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "SACREBLEU": str(folder / "sacrebleu"), "NO_COLOR": "1"},
        check=True,
    ).stdout
