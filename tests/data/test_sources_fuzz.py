"""Corpora at random, many of them damaged: each is loaded soundly or answered with one sentence.

Both sides of a pair carry its number as ``#0012#``, so that a pair that is misaligned shows.
"""

import gzip
import re
from dataclasses import dataclass
from datetime import timedelta
from itertools import cycle
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mt.config.data import CleaningConfig
from mt.data.corpus import load_corpus
from mt.errors import MtError
from tests.data.corpora import Pairs, corpus, data_config, parallel

NASTY = (
    "\0", "\x07", "\x1b[31m", "\u200e", "\u200f", "\u202e", "\ufeff", "\u2028", "\x85", "\x0b\x0c\x1c", "\r",
    "\t", '"', '""', ",", "\\", "'", "{", "[EOS]", "<unk>", "NA", "é", "e\u0301", "ﬁ", "中文", "😀", "\u00a0",
    "\ue000", "\U0010ffff", "x" * 100_000,
)  # fmt: skip
HALVES = ("\ud800", "\udfff\ud800")
MARK = re.compile(r"#(\d{4})#")
ALL_ON = CleaningConfig(
    unicode_form="NFKC",
    min_characters=2,
    max_characters=200_000,
    max_length_ratio=100_000,
    remove_control_characters=True,
    src_script="Latin",
    tgt_script="Latin",
    remove_identical=True,
    remove_duplicates=True,
    remove_leaks=True,
)


# The kinds of files, and the options that they need.
KINDS: dict[str, dict[str, str]] = {
    "nested jsonl": {},
    "json": {},
    "csv": {"columns": "english,german"},
    "tsv": {},
    "no header": {"columns": "3,2", "delimiter": "pipe"},
    "two files": {},
    "parallel text": {},
}


def contents_of(kind: str, pairs: Pairs) -> dict[str, str]:
    """The text of each file of a corpus ``c``."""
    if kind == "no header":
        rows = [f"7|{tgt.replace('|', ' ')}|{src.replace('|', ' ')}\n" for src, tgt in pairs]
        return {"c.txt": "".join(rows)}
    if kind == "two files":
        return dict(zip(("c.first", "c.second"), map(str, parallel("c", pairs).values()), strict=True))
    if kind == "tsv":
        pairs = [(src.replace("\t", " "), tgt.replace("\t", " ")) for src, tgt in pairs]
    names = ("english", "german") if kind == "csv" else ("en", "de")
    return {name: str(content) for name, content in corpus(kind, "c", pairs, names).items()}


@dataclass(frozen=True)
class Files:
    """A corpus as bytes, by the names of its files."""

    contents: dict[str, bytes]
    num_pairs: int | None
    """None if a file is damaged."""
    options: dict[str, str]


@st.composite
def corpora(draw: st.DrawFn) -> Files:
    words = st.sampled_from(NASTY) | st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="#\n")
    )
    if draw(st.integers(0, 9)) == 0:
        words |= st.sampled_from(HALVES)
    junk = st.lists(words, max_size=4).map("".join)
    pairs = [
        (f"{draw(junk)} #{i:04}# {draw(junk)}", f"{draw(junk)} #{i:04}# {draw(junk)}")
        for i in range(draw(st.integers(0, 25)))
    ]
    newlines = cycle(draw(st.sampled_from([["\n"], ["\r\n"], ["\n", "\r\n"]])))
    kind = draw(st.sampled_from([*KINDS]))
    mark = "\ufeff" if draw(st.booleans()) else ""
    contents: dict[str, bytes] = {}
    for name, text in contents_of(kind, pairs).items():
        ended = re.sub("\r?\n", lambda _: next(newlines), text)
        contents[name] = (mark + ended).encode("utf-8", "surrogatepass")
    is_packed, is_damaged = draw(st.booleans()), draw(st.booleans())
    if is_packed:
        contents = {f"{name}.gz": gzip.compress(content, 1) for name, content in contents.items()}
    if is_damaged:
        name = draw(st.sampled_from(sorted(contents)))
        contents[name] = damaged(contents[name], is_packed, draw)
    return Files(contents, None if is_damaged else len(pairs), KINDS[kind])


def damaged(content: bytes, is_packed: bool, draw: st.DrawFn) -> bytes:
    """Cut short, with other bytes put in, or both; but no digit made another, which would be another pair."""
    if draw(st.booleans()):
        content = content[: draw(st.integers(0, len(content)))]
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(content)))
        more = draw(
            st.sampled_from([b"\0", b"\xff", b"\n", b"\r", b'"', b",", b"\t", b"}", b"\xe2\x80", b"\xf0"])
        )
        end = place + draw(st.integers(0, 1))
        if is_packed or not content[place:end].isdigit():
            content = content[:place] + more + content[end:]
    return content


@settings(
    max_examples=100,
    derandomize=True,
    deadline=timedelta(seconds=60),  # Far more than is needed, on a busy machine too; a hang it is not.
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(files=corpora(), with_cleaning=st.booleans(), as_pattern=st.booleans())
def test_a_hundred_corpora(tmp_path: Path, files: Files, with_cleaning: bool, as_pattern: bool) -> None:
    for path in tmp_path.iterdir():
        path.unlink()
    for name, content in files.contents.items():
        (tmp_path / name).write_bytes(content)
    names = sorted(files.contents)
    data_path = f"{tmp_path}/{names[0]}"
    if "c.first" in data_path:
        data_path = ",".join(f"{tmp_path}/{name}" for name in names)
    elif as_pattern:
        data_path = f"{tmp_path}/c*"
    elif len(names) == 2:
        data_path = f"{tmp_path}/c"
    data = data_config(data_path, held_out_fraction=0.3, **files.options)
    try:
        loaded = load_corpus(data, ALL_ON if with_cleaning else CleaningConfig())
    except MtError as error:
        message = str(error)
        assert message.isprintable(), message
        assert message[-1] in ".?)", message
        assert len(message) < 1000
        return
    found: list[str] = []
    for split in loaded.by_name().values():
        for src, tgt in zip(split["src"], split["tgt"], strict=True):
            marks = MARK.findall(src), MARK.findall(tgt)
            assert marks[0] == marks[1] or not all(marks), (src, tgt)
            found += marks[0]
    if files.num_pairs is not None and not with_cleaning:
        assert sorted(found) == [f"{i:04}" for i in range(files.num_pairs)]
