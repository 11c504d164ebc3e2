"""HTML and Markdown: what is translated, what stays, and where tags come out."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt.errors import DataError
from mt.inference.labels import WordAttention, in_proportion
from mt.inference.markup.documents import Documents
from mt.inference.markup.html_pieces import html_pieces
from mt.inference.markup.markdown_pieces import markdown_pieces
from mt.inference.markup.pieces import Format
from mt.inference.markup.placing import WORD
from mt.inference.segments import Translation


def backwards(page: str, markup: Format = "html", *, keeps: bool = True, lost: str = "no") -> str:
    """The page translated by a model that writes words in upper case, the last one first."""

    def attention_of_words(
        pairs: Sequence[tuple[str, Translation]], split: Callable[[str], list[str]]
    ) -> Iterator[WordAttention]:
        for source, _ in pairs:
            count = len(split(source))
            yield [([count - 1 - word], [word], [[1.0]]) for word in range(count)]

    translator: Any = SimpleNamespace(
        reader=SimpleNamespace(keeps_parts=keeps), attention_of_words=attention_of_words
    )
    documents = Documents(translator, [page], markup)
    assert not any("\n" in text or text != text.strip() for text in documents.texts)
    words = [[word.upper() for word in WORD.findall(text) if lost not in word] for text in documents.texts]
    [translated] = documents.translated([Translation(" ".join(reversed(text)), 0.0, 0.0) for text in words])
    return translated


@pytest.mark.parametrize(
    ("page", "translated"),
    [
        ("a b", "B A"),
        ("<p>a <b>b</b> c</p>", "<p>C <b>B</b> A</p>"),
        ("<p>a <b>b <i>c d</i></b> e.</p>", "<p>. E <b><i>D C</i> B</b> A</p>"),
        # Neighbours change places, and a tag within a word is put around it.
        ("<b>a b</b> <i>c</i>", "<i>C</i> <b>B A</b>"),
        ("a b<b>c</b>", "<b>BC</b> A"),
        # What is beside a word stays beside it.
        ("a <img src=x>b c", "C <img src=x>B A"),
        ("a b<wbr> c<!-- d -->", "C B<wbr> A<!-- d -->"),
        ("a <b></b>b", "<b></b>B A"),
        ("a <script>b <p></script>c", "<script>b <p></script>C A"),
        # What ends a text.
        ("<ul><li>a b<li>c <br> d</ul>", "<ul><li>B A<li>C <br> D</ul>"),
        ("<a href=x><div>a b</div></a>", "<a href=x><div>B A</div></a>"),
        ("<pre>a b</pre>c d<textarea>e f</textarea>", "<pre>a b</pre>D C<textarea>e f</textarea>"),
        # What stays, whose place is that of a word.
        ("a <code>b c</code> d", "D <code>b c</code> A"),
        ("<b>a <kbd>b</kbd></b> c", "C <b><kbd>b</kbd> A</b>"),
        ("a <span translate=no>b <b>c</b></span> d", "D <span translate=no>b <b>c</b></span> A"),
        ("<p translate='no'>a <b>b</b></p>c d", "<p translate='no'>a <b>b</b></p>D C"),
        # Attributes.
        ("<img alt='a b' title=c>", '<img alt="B A" title="C">'),
        ('<input placeholder="a &quot;b&quot;"> c d', '<input placeholder="&quot; B &quot; A"> D C'),
        ("<a title='a b' alt=\"1\">c</a> d", 'D <a title="B A" alt="1">C</a>'),
        # Entities and white space.
        ("\n <p>\t a  b\n</p>&nbsp;", "\n <p>\t B A\n</p>&nbsp;"),
        ("a &amp; &eacute;b &lt;", "&lt; &Eacute;B &amp; A".replace("&Eacute;", "É")),
        ("a & b > c", "C > B & A"),
        ("5 &lt; 6 <b>7</b>\r\n&copy; <!-- -->", "5 &lt; 6 <b>7</b>\r\n&copy; <!-- -->"),
        # What is not well formed: no tag is lost or added.
        ("a <b>b c", "C <b>B A"),
        ("a <b>b <i>c</b> d</i>", "D</i> <b><i>C B</b> A"),
        ("a</b> b", "B A</b>"),
        ("<code>a b", "B <code>A"),
        ("a b <b title='c d", "B A <b title='c d"),
        ("a b <!-- c", "B A <!-- c"),
        ("a < b <3 c", "C 3 &lt; B &lt; A"),
        ("", ""),
    ],
)
def test_html(page: str, translated: str) -> None:
    assert backwards(page) == translated


def test_what_stays_of_a_model_that_does_not_keep_or_loses_it_is_beside_a_word() -> None:
    page = "a <code>b <b>c</b></code> d <i>e <kbd>f</kbd></i>"
    assert backwards(page, keeps=False) == "<i>E <kbd>f</kbd> </i>  <code>b <b>c</b></code> D A"
    assert backwards("a <code>b</code> c", lost="\U000f0000") == "C  <code>b</code> A"


def test_a_text_that_was_cut_has_its_tags_at_the_same_part_of_its_length() -> None:
    translator: Any = SimpleNamespace(
        reader=SimpleNamespace(keeps_parts=True),
        attention_of_words=lambda pairs, split: iter([in_proportion(4, 4)]),
    )
    documents = Documents(translator, ["a b <i>c</i> d"], "html")
    assert documents.translated([Translation("A B C D", 0.0, 0.0)]) == ["A B <i>C</i> D"]


@pytest.mark.parametrize(
    ("page", "translated"),
    [
        ("# a b\n\nc\nd\n", "# B A\n\nD C\n"),
        ("- a **b**\n- c [d](x.de/a_b \"t\") f\n", "- **B** A\n- F [D](x.de/a_b \"t\") C\n"),
        ("1. a `b c` d\n   2) e\n> - f g", "1. D `b c` A\n   2) E\n> - G F"),
        ("```py\na b\n```\na *b*, _c_\n~~~\nd e", "```py\na b\n```\n_C_ , *B* A\n~~~\nd e"),
        ("| a b | c |\n|---|---|\n| d | e f |", "| B A | C |\n|---|---|\n| D | F E |"),
        ("![a b](c.png) snake_case 2 * 3 * 4 [x] <b>", "> B < ] X [ 4 * 3 * 2 SNAKE_CASE ![B A](c.png)"),
        ("a & b", "B & A"),
    ],
)  # fmt: skip
def test_markdown(page: str, translated: str) -> None:
    assert backwards(page, "markdown") == translated


@given(
    st.text(st.sampled_from(list("ab<>/=\"'!-&;?`*_[]()|#.\n ")) | st.characters(exclude_categories=["Cs"]))
)
def test_the_pieces_of_a_page_are_the_page(page: str) -> None:
    for take_apart in html_pieces, markdown_pieces:
        assert "".join(piece.raw for piece in take_apart(page)) == page


INLINE = st.recursive(
    st.sampled_from(["a", "b.", " c", "d e ", "", "<img alt=1>", "<code>f g</code>", "<!-- h -->"]),
    lambda inner: st.builds(
        lambda name, parts: f"<{name}>{''.join(parts)}</{name}>",
        st.sampled_from(["b", "i", "a", "span"]),
        st.lists(inner, max_size=4),
    ),
    max_leaves=12,
)


@given(st.lists(INLINE, max_size=6).map("".join), st.booleans())
def test_every_tag_arrives_once_and_is_closed_where_it_was_opened(page: str, keeps: bool) -> None:
    translated = backwards(page, keeps=keeps)
    tag = re.compile(r"<[^>]*>")
    assert Counter(tag.findall(translated)) == Counter(tag.findall(page))
    opened: list[str] = []
    for name in re.findall(r"</?(?:b|i|a|span|code)>", translated):
        if name.startswith("</"):
            assert opened.pop() == name.replace("/", "")
        else:
            opened.append(name)
    assert not opened
    hidden = re.compile(r"<code>f g</code>|<[^>]*>|\s")
    assert Counter(hidden.sub("", translated).lower()) == Counter(hidden.sub("", page))


HOSTILE = ["<!--", "<a ", "</a", "<a x='", "<a b=c ", "<![CDATA[", "&#x", "<script>", "<svg><", "<code>"]
HOSTILE += ["<b><i></b></i>", "<div>", "</b>", "`", "[a](", "*a_", "> ", "```\n"]


@pytest.mark.parametrize("part", HOSTILE)
def test_a_hostile_page_takes_no_longer_than_its_length(part: str) -> None:
    page = part * (100_000 // len(part))
    started = time.perf_counter()
    for markup in "html", "markdown":
        try:
            assert backwards(page, markup)
        except DataError:
            assert part.count("<") or markup == "markdown"
    # It is tenths of a second; with html.parser, it was minutes.
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize(
    ("page", "what"),
    [
        ("a" * 2_000_001, "2,000,001 characters, but may have 2,000,000: split it"),
        ("<br>" * 50_001, "50,001 tags, but may have 50,000: split it"),
        ("<b>" * 201 + "a" + "</b>" * 201, "more than 200 elements in each other: flatten it"),
        ("<wbr>a" * 1_002, "more than 1,000 tags in one text: split it"),
    ],
)
def test_pages_are_bounded(page: str, what: str) -> None:
    with pytest.raises(DataError, match=what):
        backwards(page)
