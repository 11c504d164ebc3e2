"""`mt attention` as a shell would call it."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mt.run_directory import RunDirectory
from tests.cli.conftest import Ended

SENTENCE = "Anna buys two red apples today."


Call = Callable[..., Ended]


def test_a_page_is_written_where_it_was_said(call: Call, trained: RunDirectory) -> None:
    assert call("attention", "--run", trained.path, SENTENCE).code == 0
    page = Path("attention.html").read_text(encoding="utf-8")
    assert SENTENCE in page
    # As JSON writes it.
    assert json.dumps("Anna kauft zwei rote Äpfel heute.") in page
    ended = call("attention", "--run", trained.path, SENTENCE, "--out", "other.html")
    assert ended.code == 0
    assert "Wrote other.html" in ended.err
    assert "decoder layer 1" in ended.err
    assert ended.out == ""


def test_the_format_follows_the_ending_or_is_named(call: Call, trained: RunDirectory) -> None:
    pytest.importorskip("matplotlib")
    assert call("attention", "--run", trained.path, SENTENCE, "--out", "a.svg").code == 0
    assert Path("a.svg").read_bytes().startswith(b"<?xml")
    assert call("attention", "--run", trained.path, SENTENCE, "--format", "png", "--layer", "1").code == 0
    assert Path("attention.png").read_bytes().startswith(b"\x89PNG")


def test_alignments_of_a_file_go_to_stdout_line_by_line(call: Call, trained: RunDirectory) -> None:
    Path("lines.en").write_text(f"{SENTENCE}\n\nthe dog sees milk.\n")
    ended = call("attention", "--run", trained.path, "--file", "lines.en", "--format", "pharaoh")
    assert ended.code == 0
    first, empty, third = ended.out.splitlines()
    assert len(first.split()) == 6
    assert empty == ""
    assert len(third.split()) == 4


def test_a_page_without_anything_to_show_is_refused(call: Call, trained: RunDirectory) -> None:
    Path("pairs.tsv").write_text(f"{SENTENCE}\t\n")
    ended = call("attention", "--run", trained.path, "--file", "pairs.tsv", "--target-column")
    assert (ended.code, "there is nothing to show" in ended.err) == (2, True)
    assert not Path("attention.html").exists()
    Path("lines.en").write_text(f"{SENTENCE}\n\nthe dog sees milk.\n")
    ended = call("attention", "--run", trained.path, "--file", "lines.en")
    assert ended.code == 0
    assert "left out, because one side has no words: line 2\n" in ended.err


def test_given_translations_are_shown_instead(call: Call, trained: RunDirectory) -> None:
    Path("pairs.tsv").write_text("the dog sees milk.\tMilch sieht\n")
    assert call("attention", "--run", trained.path, "--file", "pairs.tsv", "--target-column").code == 0
    data = re.search(r'<script type="application/json">(.*?)</script>', Path("attention.html").read_text())
    assert data
    [sentence] = json.loads(data[1])["sentences"]
    assert sentence["target"] == "Milch sieht"
    assert [label for label, _ in sentence["tgt"]] == ["Milch", "sieht", "</s>"]


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["a", "--file", "x"], ["not both"]),
        (["a", "--target-column"], ["--target-column needs lines"]),
        (["a", "b", "--format", "svg"], ["svg", "1 sentence", "not 2"]),
        (["a", "--layer", "7"], ["no decoder layer 7"]),
        (["a", "--out", "nowhere/a.html"], ["nowhere"]),
        (["milk " * 40], ["line 1", "41 tokens"]),
        (["a"] * 101, ["100 sentences", "101"]),
        (["--file", "missing.en"], ["missing.en"]),
    ],
)
def test_what_does_not_fit_gets_one_sentence(
    arguments: list[str], facts: list[str], call: Call, trained: RunDirectory
) -> None:
    ended = call("attention", "--run", trained.path, *arguments)
    assert ended.code == 2
    assert ended.out == ""
    assert not list(Path().glob("attention.*"))
    for fact in facts:
        assert fact in ended.err
    assert "Traceback" not in ended.err
