"""Long work on a terminal: one line with the time left, which goes away."""

import io
import logging
import re
from collections.abc import Callable

import pytest
from tqdm import tqdm

import mt
from mt import display
from mt.data import prepare as preparing
from mt.run_directory import RunDirectory
from tests.fixture_types import MakeConfig


class Terminal(io.StringIO):
    """Stands for stderr on a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def always_drawn(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Each unit at once: otherwise what takes no time is drawn once, and logged never."""
    caplog.set_level(logging.INFO, "mt")
    monkeypatch.setattr(display, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(display, "new_bar", tqdm)


def prepare(make_config: MakeConfig, run: RunDirectory) -> None:
    config = make_config("tokenizer.max_size=300", "training.guided_alignment=0.5")
    preparing.prepare(config, run, resuming=False)


def evaluate(make_config: MakeConfig, run: RunDirectory) -> None:
    mt.evaluate(run, device="cpu")


WORK = {
    prepare: ["reading", "vocabulary", "encoding", "learning the alignment", "aligning"],
    evaluate: ["translating", "reading"],
}


@pytest.mark.parametrize("work", WORK, ids=lambda work: str(work.__name__))
def test_on_a_terminal_there_is_one_line_that_goes_away(
    work: Callable[..., None], make_config: MakeConfig, trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    work(make_config, trained)
    text = terminal.getvalue()
    for description in WORK[work]:
        # Drawn over itself, and never left by a line feed.
        drawn = re.findall(rf"\r(?:\x1b\[A)?{description}: [^\r\n]*", text)
        assert drawn, text
        assert not re.search(rf"{description}: [^\r\n\x1b]*\r?\n", text)
        if description != "reading":  # Nobody knows how much there is to read.
            assert any(re.search(r"\d/\d+ \[\d\d:\d\d<[\d?:]+, .+\]", line) for line in drawn)
