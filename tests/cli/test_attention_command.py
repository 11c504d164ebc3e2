"""`mt attention` as a shell would call it."""

import json
import re
from pathlib import Path

import pytest

from tests.fixture_types import Call, Refuse

pytestmark = pytest.mark.usefixtures("trained")
SENTENCE = "Anna buys two red apples today."
ATTENTION = ("attention", "--run", "tiny")
PNG, SVG = b"\x89PNG", b"<?xml"


def test_a_page_is_written_where_it_was_said(succeed: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    # Exactly as many as a page may have.
    monkeypatch.setattr("mt.attention_maps.page.MOST_SENTENCES", 1)
    succeed(*ATTENTION, SENTENCE)
    page = Path("attention.html").read_text(encoding="utf-8")
    assert re.search(r"tiny, step_0000\d00<", page)
    # As JSON writes it.
    assert json.dumps("Anna kauft zwei rote Äpfel heute.") in page
    # A sentence with line breaks is one sentence.
    ended = succeed(*ATTENTION, SENTENCE.replace(" ", "\n"), "--out", "other.html")
    assert Path("other.html").read_text(encoding="utf-8") == page
    assert ended[1:] == ("", "alignment: decoder layer 1, the mean of its heads\nWrote other.html.\n")


@pytest.mark.parametrize(
    ("options", "file", "begins"),
    [
        ("--out a.svg", "a.svg", SVG),
        ("--out a.png", "a.png", PNG),
        ("--out a.png --format svg", "a.png", SVG),
        ("--format png --layer 1", "attention.png", PNG),
    ],
)
def test_the_format_follows_the_ending_or_is_named(
    options: str, file: str, begins: bytes, succeed: Call
) -> None:
    pytest.importorskip("matplotlib")
    succeed(*ATTENTION, SENTENCE, *options.split())
    assert Path(file).read_bytes().startswith(begins)


def test_alignments_of_a_file_are_written_line_by_line(succeed: Call, call: Call) -> None:
    Path("lines.en").write_text(f"{SENTENCE}\n\nthe dog sees milk.\n" * 12)
    pharaoh = (*ATTENTION, "--format", "pharaoh", "--file")
    out = succeed(*pharaoh, "lines.en").out
    first, empty, third, *_ = out.splitlines()
    # By the source; each target word has one source word, by the spaces of both sentences.
    links = [tuple(map(int, link.split("-"))) for link in first.split()]
    assert links == sorted(links)
    assert sorted(target for _, target in links) == [*range(6)]
    assert {source for source, _ in links} <= {*range(6)}
    assert (empty, len(third.split())) == ("", 4)
    # Also where there are more lines than are held at once.
    assert out == f"{first}\n\n{third}\n" * 12
    assert succeed(*pharaoh, "lines.en", "--out", "links").out == ""
    assert Path("links").read_text() == out
    Path("pairs.tsv").write_text("the dog sees milk.\tMilch\n" * 40)
    assert re.fullmatch(r"(\d-0\n){40}", succeed(*pharaoh, "pairs.tsv", "--target-column").out)
    Path("lines.en").write_text("milk\n" * 34 + "milk " * 40)
    ended = call(*pharaoh, "lines.en")
    assert (ended.code, "line 35: the source has 41 tokens" in ended.err) == (2, True)


def test_a_page_without_anything_to_show_is_refused(succeed: Call, call: Call, refuse: Refuse) -> None:
    Path("pairs.tsv").write_text(f"{SENTENCE}\t\n")
    assert "there is nothing to show" in refuse(*ATTENTION, "--file", "pairs.tsv", "--target-column")
    assert not Path("attention.html").exists()
    Path("pairs.tsv").write_text(f"{SENTENCE}\tAnna\n\tAnna\n{SENTENCE}\t\n")
    err = succeed(*ATTENTION, "--file", "pairs.tsv", "--target-column").err
    assert "left out, because one side has no words: line 2, 3\n" in err
    Path("pairs.tsv").write_text("milk\tMilch\n" * 34 + "milk\t" + "Milch " * 40 + "\n")
    sentence = call(*ATTENTION, "--format", "pharaoh", "--file", "pairs.tsv", "--target-column").err
    assert "line 35: the translation has 41 tokens" in sentence


def test_given_translations_are_shown_instead(succeed: Call) -> None:
    Path("pairs.tsv").write_text("the zebra sees milk.\tMilch sieht\n")
    succeed(*ATTENTION, "--file", "pairs.tsv", "--target-column")
    page = Path("attention.html").read_text(encoding="utf-8")
    data = re.search(r'<script type="application/json">(.*?)</script>', page)
    assert data
    [sentence] = json.loads(data[1])["sentences"]
    assert (sentence["line"], sentence["target"]) == (1, "Milch sieht")
    assert sentence["tgt"] == [["Milch", "text"], ["sieht", "text"], ["</s>", "mark"]]
    assert sentence["src"][1] == ["zebra", "unknown"]


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["a", "--file", "x"], ["not both"]),
        (["a", "--target-column"], ["--target-column needs lines"]),
        (["a", "b", "--format", "svg"], ["svg", "1 sentence", "not 2"]),
        (["a", "b", "--format", "png"], ["png", "1 sentence", "not 2"]),
        (["a", "--layer", "2"], ["no decoder layer 2: this model has 1"]),
        (["a", "--out", "nowhere/a.html"], ["nowhere"]),
        (["milk " * 40], ["line 1", "41 tokens"]),
        (["a"] * 101, ["100 sentences", "101"]),
        (["--file", "missing.en"], ["missing.en"]),
        (["--file", "pairs.tsv", "--target-column"], ["pairs.tsv, line 2 has 0 tabs"]),
    ],
)
def test_what_does_not_fit_gets_one_sentence(arguments: list[str], facts: list[str], refuse: Refuse) -> None:
    Path("pairs.tsv").write_text("milk\tMilch\nmilk\n")
    sentence = refuse(*ATTENTION, *arguments)
    assert [fact for fact in facts if fact not in sentence] == []
    assert not list(Path().glob("attention.*"))
