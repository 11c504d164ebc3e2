"""Text of unknown origin, as a terminal and as TensorBoard would show it."""

import html
import re
import sys
import unicodedata
import warnings
from pathlib import Path

import pytest

from mt.display import aligned, counted, markdown_table, markdown_text, one_line, shown, visible

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
    assert visible("\x1b[2Ja\rb\x9b\u202e\t\n") == "\\x1b[2Ja\\rb\\x9b\\u202e\t\n"
    assert shown(Path("a\n \tb\x1b")) == "a\\n \\tb\\x1b"


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


def test_long_text_is_shortened_and_columns_are_aligned() -> None:
    assert one_line("a\n\x1bb  c") == "a \\x1bb c"
    assert [one_line("abcdef", length) for length in (6, 5)] == ["abcdef", "abcd…"]
    rows = [("name", "BLEU"), ("a", "9.5"), ("bcdef", "10")]
    assert aligned(rows) == ["name   BLEU", "a      9.5", "bcdef  10"]
    assert aligned(rows, num_texts=1) == ["name   BLEU", "a       9.5", "bcdef    10"]
    assert markdown_table(rows[0], rows[1:]) == "| name | BLEU |\n| --- | --- |\n| a | 9.5 |\n| bcdef | 10 |"


def test_numbers_for_people() -> None:
    counts = [counted(number, "checkpoint") for number in (0, 1, 2000)]
    assert counts == ["0 checkpoints", "1 checkpoint", "2,000 checkpoints"]
