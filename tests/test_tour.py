"""The notebook docs/tour.ipynb runs, with less training, and shows what its text promises."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

NOTEBOOK = Path(__file__).parent.parent / "docs" / "tour.ipynb"


def test_the_tour_runs_from_text_to_an_attention_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(tmp_path)
    shown: list[bytes] = []
    display = ModuleType("IPython.display")
    display.Image = lambda data, width: shown.append(data)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"]).replace('"max_steps": 400', '"max_steps": 20')
            # What IPython alone understands, and does only where mt is missing.
            source = re.sub("%pip install .*mt-from-scratch.*", "raise AssertionError", source)
            exec(source, names)
    printed = capsys.readouterr().out
    assert "logits   (2, 7, 909)" in printed
    assert names["losses"]
    assert shown[0].startswith(b"\x89PNG")
