"""Corpora as other tools and people leave them: markup, other shapes, broken rows, folders."""

import gzip
import json
import logging
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mt.config.config import Config
from mt.config.data import CleaningConfig, DataConfig
from mt.data.corpus import Corpus, load_corpus, load_split
from mt.data.suspicions import corpus_warnings
from mt.errors import DataError

PAIRS = [(f"a {number}", f"ein {number}") for number in range(60)]
SGM = '<srcset setid="s"><doc docid="1">\n<seg id="1">A dog.</seg>\n</doc></srcset>\n'
TMX = "<?xml version='1.0'?>\n<!-- by a tool -->\n<tmx><body><tu><tuv><seg>A</seg></tuv></tu></body></tmx>"
TAGS = "<doc docid='1'>\n<url>http://x</url>\nA dog.\n"
JSONL = "".join(json.dumps({"en": en, "de": de}) + "\n" for en, de in PAIRS)


def load(path: Path | str, cleaning: CleaningConfig | None = None, **fields: object) -> Corpus:
    options = {"path": str(path), "src": "en", "tgt": "de", "held_out_fraction": 0.2, **fields}
    return load_corpus(DataConfig.model_validate(options), cleaning or CleaningConfig())


def loading_fails(path: Path | str, message: str, **fields: object) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(path, None, **fields)
    assert "\n" not in str(caught.value)


def num_pairs(corpus: Corpus) -> int:
    return len(corpus.train) + len(corpus.validation) + len(corpus.test)


def write_lines(stem: Path, pairs: list[tuple[str, str]]) -> None:
    for language, side in (("en", 0), ("de", 1)):
        text = "".join(pair[side] + "\n" for pair in pairs)
        stem.with_name(f"{stem.name}.{language}").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (SGM.encode(), r"is SGM or XML, .*sed -n .*<seg"),
        (TMX.encode(), r"is TMX, .*python3 -c .*iter\('tu'\)"),
        (b"\xef\xbb\xbf" + TAGS.encode(), r"lines of tags, .*grep -v '\^ \*<'"),
        (gzip.compress(SGM.encode(), mtime=0), "is SGM or XML"),
        (b"<html><p>A dog.</p></html>", "is XML or HTML, .* one per line"),
        (b"PK\x03\x04....", "is a zip archive: .*unzip"),
        (b"\xfd7zXZ\x00", "is packed with xz: .*unxz"),
        (b"PAR1\x15\x04", r"is a parquet file: .*\.parquet"),
        ("A dog.\n".encode("utf-16"), "is in UTF-16: .*iconv -f UTF-16"),
    ],
    ids=["SGM", "TMX", "tags", "packed SGM", "HTML", "zip", "xz", "parquet", "UTF-16"],
)
@pytest.mark.parametrize("name", ["x.en", "x.txt", "x.sgm", "train.jsonl"])
def test_what_is_not_text_is_recognised_by_its_content(
    tmp_path: Path, content: bytes, message: str, name: str
) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / "x.de").write_text("Ein Hund.\n", encoding="utf-8")
    loading_fails(f"{tmp_path / name},{tmp_path / 'x.de'}" if name != "train.jsonl" else tmp_path, message)
    if name == "x.sgm":
        loading_fails(tmp_path / name, message)


def test_a_packed_file_is_read_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_bytes(gzip.compress(JSONL.encode()))
    assert num_pairs(load(tmp_path)) == len(PAIRS)


@pytest.mark.parametrize("separators", [None, (",", ":")])
@pytest.mark.parametrize("indent", [None, 1])
def test_a_json_object_around_the_rows_is_not_called_damaged(
    tmp_path: Path, indent: int | None, separators: tuple[str, str] | None
) -> None:
    rows = {"version": 1, "data": [{"en": "A dog.", "de": "Ein Hund."}]}
    for name in ("rows.json", "rows.jsonl"):
        text = json.dumps(rows, indent=indent, separators=separators)
        (tmp_path / name).write_text(text, encoding="utf-8")
        loading_fails(tmp_path / name, r"If its rows are in 'data', .*jq -c '\.data\[\]'")
    pairs = [{"en": en, "de": de} for en, de in PAIRS]
    text = json.dumps(pairs, indent=indent, separators=separators)
    (tmp_path / "list.jsonl").write_text(text, encoding="utf-8")
    assert num_pairs(load(tmp_path / "list.jsonl")) == len(PAIRS)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_columns_may_be_fields(tmp_path: Path, suffix: str) -> None:
    rows = [{"id": 1, "text": {"long": {"en": en, "de": de}}} for en, de in PAIRS]
    file = tmp_path / f"train{suffix}"
    if suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        loading_fails(tmp_path, r"no column 'en'.*Set data\.columns: text\.long\.en,text\.long\.de")
    else:
        pq.write_table(pa.Table.from_pylist(rows), file)
    corpus = load(tmp_path, columns="text.long.en,text.long.de")
    assert num_pairs(corpus) == len(PAIRS)
    assert corpus.train[0]["tgt"].startswith("ein ")
    loading_fails(tmp_path, r"no column 'text\.en'", columns="text.en,text.de")


def test_lists_of_references_are_named(tmp_path: Path) -> None:
    pair = {"translation": {"language": ["en", "de"], "translation": ["A dog.", "Ein Hund."]}}
    (tmp_path / "train.jsonl").write_text(json.dumps(pair) + "\n", encoding="utf-8")
    loading_fails(tmp_path, "no column 'en'.* lists in 'translation.language', .*: give each pair a row")
    row = json.dumps({"en": "A dog.", "de": ["Ein Hund.", "Der Hund."]}) + "\n"
    (tmp_path / "train.jsonl").write_text(row, encoding="utf-8")
    loading_fails(tmp_path, "in 1 row the target is a list, not one text")
    (tmp_path / "train.jsonl").write_text(JSONL, encoding="utf-8")
    (tmp_path / "test.jsonl").write_text(row, encoding="utf-8")
    loading_fails(tmp_path, r"test\.jsonl, line 1: the target is a list")


BAD_LINES = [b"only one cell\n", b"a\tb\tc\n", b"\xfc\tue\n", b"one more\n"]


def test_bad_rows_are_counted_and_dropped_on_request(tmp_path: Path) -> None:
    good = "".join(f"{en}\t{de}\n" for en, de in PAIRS).encode()
    (tmp_path / "train.tsv").write_bytes(b"".join([b"en\tde\n", BAD_LINES[0], good, *BAD_LINES[1:]]))
    loading_fails(
        tmp_path,
        r"train\.tsv, line 2: there are fewer cells .* \(1 instead of 2\); line 63: there are more .*; "
        r"line 64: the text is not UTF-8 .*; and 1 more\. .*cleaning\.skip_bad_rows=true",
    )
    corpus = load(tmp_path, CleaningConfig(skip_bad_rows=True))
    assert num_pairs(corpus) == len(PAIRS)
    assert corpus.report.splits["train"].dropped == {
        "there are fewer cells than in the first line": 2,
        "the text is not UTF-8": 1,
        "there are more cells than in the first line": 1,
    }


def test_bad_rows_of_a_test_set_are_never_dropped(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(JSONL, encoding="utf-8")
    (tmp_path / "test.jsonl").write_text('{"en": "a", "de": "b"}\n{"en": "a"}\n{"en"\n', encoding="utf-8")
    with pytest.raises(
        DataError, match=r"line 2: the target is missing; line 3: .*not complete JSON.*comparable"
    ):
        load(tmp_path, CleaningConfig(skip_bad_rows=True))


def test_pairs_without_any_text_are_left_out_of_test_sets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_lines(tmp_path / "train", PAIRS)
    write_lines(tmp_path / "test", [("a", "b"), ("", " "), ("", "c"), ("d", "")])
    with caplog.at_level(logging.WARNING):
        test = load_split(DataConfig(path=str(tmp_path), src="en", tgt="de"), "test")
    assert list(test["src"]) == ["a", "", "d"]
    assert "1 pair empty on both sides" in caplog.text


def test_folders_as_tools_leave_them(tmp_path: Path) -> None:
    # A clone of a repository on the Hub.
    clone = tmp_path / "clone"
    (clone / "data").mkdir(parents=True)
    (clone / "README.md").touch()
    table = pa.table({"en": [en for en, _ in PAIRS], "de": [de for _, de in PAIRS]})
    pq.write_table(table, clone / "data" / "train-00000-of-00001.parquet")
    assert num_pairs(load(clone)) == len(PAIRS)
    # Two configurations of it.
    for name in ("small", "large"):
        (clone / name).mkdir()
        pq.write_table(table, clone / name / "train.parquet")
    loading_fails(clone, "several corpora.*clone/data, .*clone/large, .*clone/small")
    # datasets.save_to_disk
    dataset = datasets.Dataset(table)
    dataset.save_to_disk(str(tmp_path / "one"))
    assert num_pairs(load(tmp_path / "one")) == len(PAIRS)
    splits = {"train": dataset, "test": dataset.select(range(5))}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "splits"))
    corpus = load(tmp_path / "splits")
    assert len(corpus.test) == 5
    assert corpus.train.num_rows + corpus.validation.num_rows == len(PAIRS)
    # An unpacked archive of OPUS.
    opus = tmp_path / "opus"
    opus.mkdir()
    write_lines(opus / "Books.de-en", PAIRS)
    for name in ("README", "LICENSE", "Books.de-en.ids"):
        (opus / name).write_text("x\n", encoding="utf-8")
    assert num_pairs(load(opus)) == len(PAIRS)
    write_lines(opus / "Tatoeba.de-en", PAIRS)
    loading_fails(opus, r"several corpora.*Books\.de-en, .*Tatoeba\.de-en")
    loading_fails(tmp_path, r"several corpora.*/one, .*/splits")


def test_a_small_table_that_unpacks_to_gigabytes_is_not_kept_in_memory(tmp_path: Path) -> None:
    table = pa.table({"en": ["a" * 2_000_000] * 1000, "de": ["b"] * 1000})
    pq.write_table(table, tmp_path / "train.parquet")
    assert (tmp_path / "train.parquet").stat().st_size < 100_000
    loading_fails(tmp_path, "No pair .*: in 1,000 rows a side has over 1,000,000 characters")


def test_the_name_of_a_column_that_is_not_utf8(tmp_path: Path) -> None:
    file = tmp_path / "train.parquet"
    pq.write_table(pa.table({"qqen": ["a"], "de": ["b"]}), file, store_schema=False)
    file.write_bytes(file.read_bytes().replace(b"qqen", b"\xff\xfeen"))
    loading_fails(tmp_path, r"train\.parquet: the name of a column is not UTF-8")


def test_markup_that_is_left_is_warned_of_and_names_of_characters_can_be_written_out(tmp_path: Path) -> None:
    def warnings() -> str:
        data = {"path": str(tmp_path), "src": "en", "tgt": "de"}
        config = Config.model_validate({"data": data, "training": {"max_steps": 1}})
        return "\n".join(corpus_warnings(config, load(tmp_path)))

    named = [(f"Tom &amp; Ann &quot;met&quot; {number}.", "Tom &amp; Anna.") for number in range(9)]
    write_lines(tmp_path / "train", PAIRS + named)
    assert "% of the lines of the train split have HTML's names of characters, such as &amp;" in warnings()
    assert "cleaning.unescape_html" in warnings()
    pairs = load(tmp_path, CleaningConfig(unescape_html=True)).train
    assert any(text.startswith('Tom & Ann "met" ') for text in pairs["src"])
    assert not any("&amp;" in text for side in ("src", "tgt") for text in pairs[side])
    write_lines(tmp_path / "train", [*PAIRS, *[("<url>http://x</url>", "<p>")] * 3] * 3)
    assert "tags, such as <p>" in warnings()
    write_lines(tmp_path / "train", PAIRS * 3)
    assert warnings() == ""
