"""The table of translations over time, as TensorBoard shows it."""

import html
import re
import warnings
from pathlib import Path

import pytest

from mt.training.samples import Sample, Samples, json_line, read_samples, sample_table

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Of a library that TensorBoard carries.
    from tensorboard.plugin_util import markdown_to_safe_html  # type: ignore[import-untyped]

HOSTILE = [
    "<script>alert(1)</script>",
    "a | b || c |",
    "</td></tr></table><h1>owned</h1>",
    "**bold** [click](javascript:alert(1)) `code` | --- | \\| ~~~",
    "\x1b]0;owned\x07 \x1b[2J",
    "two\nlines\n\n# head",
    "&lt;b&gt; &amp;",
]


def cells(table: str) -> list[list[str]]:
    """The table's rows in HTML, as TensorBoard makes it, without its head."""
    shown = markdown_to_safe_html(table)
    assert shown.count("<table>") == 1
    return [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", shown, re.DOTALL)[1:]]


def text_of(cell: str) -> str:
    return html.unescape(re.sub(r"</?strong>", "", cell))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_as_text_in_every_cell(text: str) -> None:
    visible = "".join(each if each.isprintable() or each == "\n" else f"\\x{ord(each):02x}" for each in text)
    before = Samples(4, [Sample(text, "before", "")])
    [row] = cells(sample_table([Sample(text, text, text)], before))
    assert len(row) == 4
    for cell in row[:3]:
        assert "<" not in cell
        assert text_of(cell).split() == visible.split()
    old, new = text_of(row[3]).split(" → ")
    assert "<" not in row[3].replace("<strong>", "").replace("</strong>", "")
    assert (old, new.split()) == ("before", visible.split())


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        ("ein Hund schläft .", "ein Hund schläft .", "none"),
        ("ein Hund schläft .", "eine Katze schläft .", "ein Hund → <strong>eine Katze</strong>"),
        ("ein Hund schläft", "ein schläft hier", "Hund → ∅; ∅ → <strong>hier</strong>"),
        ("", "Hund", "∅ → <strong>Hund</strong>"),
        ("Hund", "", "Hund → ∅"),
    ],
)
def test_the_words_that_changed_since_the_last_validation_are_named(
    before: str, now: str, change: str
) -> None:
    earlier = Samples(1500, [Sample("other", "x", "y"), Sample("a dog", before, "ein Hund")])
    table = sample_table([Sample("a dog", now, "ein Hund")], earlier)
    assert cells(table)[0] == ["a dog", "ein Hund", now, change]
    assert "change since step 1,500" in markdown_to_safe_html(table)


def test_without_a_validation_before_every_translation_is_new() -> None:
    rows = [Sample("a", "b", "c"), Sample("d", "e", "f")]
    assert cells(sample_table(rows, None)) == [["a", "c", "b", "new"], ["d", "f", "e", "new"]]


def test_samples_are_read_back_without_a_line_that_a_crash_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    history = [Samples(step, [Sample("ä\n", f"{step}", "\x1b")]) for step in (10, 20)]
    assert read_samples(file) == []
    file.write_text("".join(map(json_line, history)) + '{"step": 30, "sam', encoding="utf-8")
    assert read_samples(file) == history
