"""Corpora at random, many of them damaged: each is loaded soundly or answered with one sentence.

Both sides of a pair carry its number as ``#0012#``, so that a pair that is misaligned shows.
"""

import csv
import gzip
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mt.config.data import CleaningConfig, DataConfig
from mt.data.corpus import load_corpus
from mt.errors import MtError

Pairs = list[tuple[str, str]]

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


def jsonl(pairs: Pairs, newline: Callable[[], str]) -> dict[str, str]:
    rows = (json.dumps({"translation": {"de": t, "en": s}}, ensure_ascii=False) for s, t in pairs)
    return {".jsonl": "".join(row + newline() for row in rows)}


def json_list(pairs: Pairs, newline: Callable[[], str]) -> dict[str, str]:
    rows = (json.dumps({"en": s, "de": t}) for s, t in pairs)
    return {".json": "[" + newline() + ("," + newline()).join(rows) + newline() + "]"}


def commas(pairs: Pairs, newline: Callable[[], str]) -> dict[str, str]:
    text = ""
    for row in [("german", "nr", "english"), *((t, "7", s) for s, t in pairs)]:
        line = io.StringIO(newline="")
        csv.writer(line, delimiter=";", quoting=csv.QUOTE_ALL, lineterminator="").writerow(row)
        text += line.getvalue() + newline()
    return {".csv": text}


def tabs(pairs: Pairs, newline: Callable[[], str]) -> dict[str, str]:
    rows = [("id", "en", "de"), *((str(i), s, t) for i, (s, t) in enumerate(pairs))]
    return {".tsv": "".join("\t".join(cell.replace("\t", " ") for cell in row) + newline() for row in rows)}


def no_header(pairs: Pairs, newline: Callable[[], str]) -> dict[str, str]:
    rows = [(str(i), t, s) for i, (s, t) in enumerate(pairs)]
    return {".txt": "".join("|".join(cell.replace("|", " ") for cell in row) + newline() for row in rows)}


def two_files(pairs: Pairs, newline: Callable[[], str]) -> dict[str, str]:
    english, german = parallel(pairs, newline).values()
    return {".first": english, ".second": german}


def parallel(pairs: Pairs, newline: Callable[[], str]) -> dict[str, str]:
    return {
        ".en": "".join(s + newline() for s, _ in pairs),
        ".de": "".join(t + newline() for _, t in pairs),
    }


OPTIONS = {
    commas: {"columns": "english,german"},
    no_header: {"columns": "3,2", "delimiter": "pipe"},
}


@dataclass(frozen=True)
class Files:
    """A corpus as bytes, by the endings of its files."""

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
    newlines = draw(st.sampled_from([("\n",), ("\r\n",), ("\n", "\r\n")]))
    write = draw(st.sampled_from([jsonl, json_list, commas, tabs, no_header, two_files, parallel]))
    files = write(pairs, lambda: draw(st.sampled_from(newlines)))
    mark = "\ufeff" if draw(st.booleans()) else ""
    contents = {ending: (mark + text).encode("utf-8", "surrogatepass") for ending, text in files.items()}
    is_packed, is_damaged = draw(st.booleans()), draw(st.booleans())
    if is_packed:
        contents = {ending + ".gz": gzip.compress(content, 1) for ending, content in contents.items()}
    if is_damaged:
        ending = draw(st.sampled_from(sorted(contents)))
        contents[ending] = damaged(contents[ending], is_packed, draw)
    return Files(contents, None if is_damaged else len(pairs), OPTIONS.get(write, {}))


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
    for ending, content in files.contents.items():
        (tmp_path / f"c{ending}").write_bytes(content)
    table = next((ending for ending in files.contents if ending[:3] not in (".en", ".de")), "")
    data_path = str(tmp_path / ("c*" if as_pattern else f"c{table}"))
    if ".first" in table:
        data_path = ",".join(str(tmp_path / f"c{ending}") for ending in sorted(files.contents))
    data = DataConfig.model_validate(
        {"path": data_path, "src": "en", "tgt": "de", "held_out_fraction": 0.3, **files.options}
    )
    try:
        corpus = load_corpus(data, ALL_ON if with_cleaning else CleaningConfig())
    except MtError as error:
        message = str(error)
        assert message.isprintable(), message
        assert message[-1] in ".?)", message
        assert len(message) < 1000
        return
    found: list[str] = []
    for split in (corpus.train, corpus.validation, corpus.test):
        for src, tgt in zip(split["src"], split["tgt"], strict=True):
            marks = MARK.findall(src), MARK.findall(tgt)
            assert marks[0] == marks[1] or not all(marks), (src, tgt)
            found += marks[0]
    if files.num_pairs is not None and not with_cleaning:
        assert sorted(found) == [f"{i:04}" for i in range(files.num_pairs)]
