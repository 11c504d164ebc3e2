"""Text of unknown origin, as a terminal and as TensorBoard would show it."""

import html
import io
import os
import pty
import re
import sys
import termios
import unicodedata
import warnings

import pytest

from mt import display
from mt.display import ProgressLines, counted, markdown_text, progress_bar, terminal_width, visible

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Of a library that TensorBoard carries.
    from tensorboard.plugin_util import markdown_to_safe_html  # type: ignore[import-untyped]


def test_every_control_character_but_tab_and_line_feed_is_written_out() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        # Cs are lone surrogates: no UTF-8 can hold them.
        hides = unicodedata.category(character) in ("Cc", "Cs") and character not in "\t\n"
        # Those that enclose other text; the marks alone, which Hebrew and Arabic text needs, stay.
        reorders = unicodedata.bidirectional(character) in {
            *("LRE", "RLE", "LRO", "RLO", "PDF"),
            *("LRI", "RLI", "FSI", "PDI"),
        }
        assert (visible(character) != character) == (hides or reorders), hex(code)
    assert visible("\x1b[2Ja\rb\x9b\u202e\t\n") == "\\x1b[2Ja\\rb\\x9b\\u202e\t\n".replace("\\r", "\\x0d")


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[click](http://example.org) ![image](http://example.org/x.png) <http://example.org>",
    "**bold** _italic_ `code` ~~~ # head | a | b |",
    "a\n\n# head\n\n    code",
    r"\*not\* \\ &lt;b&gt; & &amp;",
    "[1]: http://example.org",
    "A man's \"dog\" (it's brown), 3 * 4 = 12.",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_tensorboard_shows_the_text_itself_and_no_markup(text: str) -> None:
    shown = markdown_to_safe_html(f"**source** {markdown_text(text)}")
    found = re.fullmatch(r"<p><strong>source</strong> (.*)</p>", shown.strip(), re.DOTALL)
    assert found is not None, shown
    assert "<" not in found[1]
    assert html.unescape(found[1]).split() == text.split()


@pytest.mark.parametrize(
    ("size", "width"), [((24, 80), 80), ((0, 0), None), ((0, 80), None), ((24, 0), None)]
)
def test_a_terminal_of_no_size_is_none(
    size: tuple[int, int], width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, size)
    with io.FileIO(ours), io.TextIOWrapper(io.FileIO(theirs, "w")) as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setattr(display, "_are_shown", True)
        assert terminal_width() == width
        with progress_bar(10, unit="lines", description="reading") as bar:
            assert isinstance(bar, ProgressLines) == (width is None)


def test_a_pipe_is_not_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    with io.FileIO(ours), io.TextIOWrapper(io.FileIO(theirs, "w")) as pipe:
        monkeypatch.setattr(sys, "stderr", pipe)
        assert terminal_width() is None


@pytest.mark.parametrize(
    ("number", "counted_noun"),
    [(0, "0 checkpoints"), (1, "1 checkpoint"), (2, "2 checkpoints"), (2000, "2,000 checkpoints")],
)
def test_a_number_agrees_with_its_noun(number: int, counted_noun: str) -> None:
    assert counted(number, "checkpoint") == counted_noun
