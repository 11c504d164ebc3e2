"""A corpus, a record or a name that tries to control the terminal, or TensorBoard's page."""

import html
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fixture_types import Call

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Of a library that TensorBoard carries.
    from tensorboard.plugin_util import markdown_to_safe_html  # type: ignore[import-untyped]


TITLE = "\x1b]0;owned\x07"
MARKUP = "<script>alert(1)</script> <img src=x onerror=alert(1)> | **bold**"


def control_characters(text: str) -> set[str]:
    return {character for character in text if not character.isprintable()} - {"\n", "\t"}


@pytest.fixture
def corpus(tiny_corpus: Path, tmp_path: Path) -> Path:
    """The tiny corpus with a hostile sentence at the head of the validation and test splits."""
    folder = Path(shutil.copytree(tiny_corpus, tmp_path / "hostile"))
    for split in ("validation", "test"):
        for language in ("en", "de"):
            file = folder / f"{split}.{language}"
            file.write_text(f"{TITLE}{MARKUP} \u202e {language}\n{file.read_text()}")
    return folder


def test_neither_log_nor_terminal_nor_tensorboard_obeys_a_sentence(
    call: Call, corpus: Path, tiny_config_file: Path, read_curves: Callable[[Path], Any]
) -> None:
    code, _, err = call(
        *("train", "-c", tiny_config_file, "--set", f"data.path={corpus}", "--set", "training.max_steps=2")
    )
    assert code == 0
    log = Path("runs/tiny/train.log").read_text()
    for text in (err, log):
        assert control_characters(text) == set()
        assert rf"\x1b]0;owned\x07{MARKUP} \u202e en" in text
    sample = read_curves(Path("runs/tiny/tensorboard"))["validation/samples/text_summary"][0][1].decode()
    assert control_characters(sample) == set()
    assert "<" not in sample
    assert r"\*\*bold" in sample
    # The sentence is in the first cell of its row, and no cell is added by what is in it.
    shown = markdown_to_safe_html(sample)
    assert {len(row.split("<td>")) for row in shown.split("<tr>")[2:]} == {4}
    assert set(re.findall(r"<(\w+)", shown)) <= {"table", "thead", "tbody", "tr", "th", "td", "strong"}
    [first_cell, *_] = re.findall(r"<td>(.*?)</td>", shown)
    assert html.unescape(first_cell) == rf"\x1b]0;owned\x07{MARKUP} \u202e en"
