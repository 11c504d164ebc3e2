"""Corpora on disk as tables: files, their path, and the pairs that are read, or the sentence why not."""

import gzip
import json
import os
import time
from pathlib import Path

import pytest

from mt.config.data import CleaningConfig, DataConfig
from mt.data.corpus import load_corpus
from mt.data.sources.find import find_source
from mt.data.sources.text import lines_of
from mt.errors import DataError, MtError
from tests.data.corpora import TABLES, Files, Pairs, corpus, data_config, jsonl, parquet, quoted, write

NONE: dict[str, str] = {}
ROW, AB = '{"en": "a", "de": "b"}\n', [("a", "b")]
OTHER: Files = {"x.de": "Ein Hund.\n"}
SPLITS: Files = {"train.jsonl": ROW, "validation.jsonl": ROW, "test.jsonl": ROW}
PACKED = gzip.compress(ROW.encode() * 1000)
TABS, NUMBERS = {"delimiter": "tab"}, {"columns": "1,2"}
SGM = '<srcset setid="s"><doc docid="1">\n<seg id="1">A dog.</seg>\n</doc></srcset>\n'
TMX = "<?xml version='1.0'?>\n<!-- by a tool -->\n<tmx><body><tu><tuv><seg>A</seg></tuv></tu></body></tmx>"
TAGS = "\ufeff<doc docid='1'>\n<url>http://x</url>\nA dog.\n"
SRT = "1\r\n00:00:00,000 --> 00:00:02,500\r\nA dog.\r\n\r\n"
BESIDE = "{'en': 'A dog.', 'de': 'Ein Hund.'}"
LISTS = '{"en": "a", "de": ["b", "c"]}\n'
ENDS = "first\x85still first\u2028and still\r\nsecond\n\x0cthird\rstill third"
SEVERAL = [("a", "b"), ("c", "d")]
SECOND = '{"en": "c", "de": "d"}\n'
SHARDS: Files = {"train-00001-of-00002.jsonl": SECOND, "train-00000-of-00002.jsonl": ROW}
SIDES: Files = {"part-1.en": "c\n", "part-0.en": "a\n", "part-1.de": "d\n", "part-0.de": "b\n"}
FOLDERS: Files = {"a/train.jsonl": ROW, "b/train.en": "c\n", "b/train.de": "d\n"}
LONG: Files = {"train.en": "a\n" * 1250, "train.de": "b\n" * 1200}


TEXTS = [("Go.", "Geh."), ('"Stop!", he said; twice.', "„Halt“, sagte er | zweimal."), ("NA", "null")]
DELIMITERS = {"comma": ",", "semicolon": ";", "pipe": "|", "tab": "\t"}
HEADER = ("id", " de", "en ")
CELLS = [("7", de, en) for en, de in TEXTS]
ENGLISH, GERMAN = "".join(en + "\n" for en, _ in TEXTS), "".join(de + "\r\n" for _, de in TEXTS)
IN_FIELDS = [{"id": 1, "text": {"long": {"en": en, "de": de}}} for en, de in TEXTS]
WIDE = ",".join(f"column{i}" for i in range(20_000)) + "\n"


def config(folder: Path, path: str, fields: dict[str, str]) -> DataConfig:
    names = [path] if (folder / path).exists() else path.split(",")
    return data_config(",".join(str(folder / name) for name in names), **fields)


def tables(names: tuple[str, str]) -> Files:
    """The same pairs in a table of each kind."""
    files: Files = {}
    for kind in TABLES:
        files |= corpus(kind, kind.replace(" ", "-"), TEXTS, names)
    return files


# Files, the path, more fields of the config, and the training pairs.
READ: list[tuple[Files, str, dict[str, str], Pairs]] = [
    ({"train.csv": 'en,de\n"one\ntwo","eins\nzwei"\n\n'}, "", {}, [("one\ntwo", "eins\nzwei")]),
    ({"train.tsv": 'en\tde\n"one\t""zwei\n'}, "", {}, [('"one', '""zwei')]),
    ({"train.en": ENDS, "train.de": "eins\nzwei\r\ndrei\n"}, "", {},
     [("first\x85still first\u2028and still", "eins"), ("second", "zwei"),
      ("\x0cthird\rstill third", "drei")]),
    ({"train.en": "one\rtwo\r", "train.de": "\ufeffeins\nzwei"}, "", {}, [("one", "eins"), ("two", "zwei")]),
    ({"train.en": "\ufeffone\rtwo", "train.de": "eins\rzwei\r"}, "", {}, [("one", "eins"), ("two", "zwei")]),
    ({"a.txt,b.jsonl": ROW}, "a.txt,b.jsonl", {}, AB),
    ({"part-[1].jsonl": ROW}, "part-[1].jsonl", {}, AB),
    ({"train.jsonl": gzip.compress(ROW.encode())}, "", {}, AB),
    ({"rows.jsonl": json.dumps([{"en": "a", "de": "b"}], indent=1)}, "rows.jsonl", {}, AB),
    # Several files, in the order of their names; a pattern may match either side of a parallel text, or both.
    (SHARDS, "", {}, SEVERAL),
    ({**SHARDS, ".train-2.jsonl": "hidden"}, "train-*", {}, SEVERAL),
    *[(SIDES, pattern, {}, SEVERAL) for pattern in ("part-*.en", "part-[01].*", "**/part-*")],
    *[(FOLDERS, pattern, {}, SEVERAL) for pattern in ("*/train.*", "**/train.*")],
    # Text that is not CSV has no quoting, whatever it is called, and a language may be called by a number.
    ({"c.TSV.gz": gzip.compress(b'\r\r\n"a"\t"b\tCC-BY\r\n')}, "c.TSV.gz", NUMBERS | TABS, [('"a"', '"b')]),
    ({"deu.txt": '\r\r\n"a"\t"b\tCC-BY\r\n'}, "deu.txt", NUMBERS | TABS, [('"a"', '"b')]),
    ({"deu.txt": "0\t1\t2\na\tb\tc\n"}, "deu.txt", {"src": "0", "tgt": "1", **TABS}, AB),
    # A column is preferred to a field of that name.
    ({"c.jsonl": '{"en": "a", "de": "b", "translation": {"en": "x", "de": "y"}}\n'}, "c.jsonl", {}, AB),
    # As spreadsheets begin their files.
    ({"c.csv": "\ufeffsep=;\r\nen;de\r\na;b\r\n"}, "c.csv", {}, AB),
    ({"c.csv": "sep=\t\na\tb\n"}, "c.csv", NUMBERS, AB),
    ({"c.csv": "sep=;\n"}, "c.csv", {}, []),
    # The commas of sentences are not those of a table, nor is a line that one could take for a subtitle.
    ({"x.en": "1,000, say\n" * 6, "x.de": "1,5\n" * 6}, "x", {}, [("1,000, say", "1,5")] * 6),
    ({"x.en": "Τι είναι;\n" * 6, "x.de": "你好,世界\t\n" * 6}, "x", {}, [("Τι είναι;", "你好,世界\t")] * 6),
    ({"x.en": "12\nNo, it is.\nNo; no.\n", "x.de": "12\na\tb\nc\n"}, "x", {},
     [("12", "12"), ("No, it is.", "a\tb"), ("No; no.", "c")]),
    # Columns, delimiters, and fields of columns; two files named anyhow.
    (tables(("english", "german")), "*", {"columns": "english,german"}, TEXTS * len(TABLES)),
    *[(Files({"c.csv": quoted([HEADER, *CELLS], character)}), "c.csv", fields, TEXTS)
      for name, character in DELIMITERS.items() for fields in (NONE, {"delimiter": name})],
    *[(Files({"c.csv.gz": gzip.compress(quoted(CELLS, character).encode())}), "c.csv.gz",
       {"columns": "3,2", "delimiter": name}, TEXTS) for name, character in DELIMITERS.items()],
    *[(Files({name: content}), "", {"columns": "text.long.en,text.long.de"}, TEXTS)
      for name, content in (("train.jsonl", jsonl(IN_FIELDS)), ("train.parquet", parquet(IN_FIELDS)))],
    # As where a run that learnt from a table is scored on parallel text.
    ({"a b.txt": ENGLISH, "c/d": GERMAN}, "a b.txt,c/d", {"columns": "2,1", "delimiter": "tab"}, TEXTS),
    ({"a b.gz": gzip.compress(ENGLISH.encode()), "d": GERMAN}, "a b.gz,d", {}, TEXTS),
    ({"a": ENGLISH, "b": GERMAN}, "b,a", {}, [(de, en) for en, de in TEXTS]),
]  # fmt: skip


@pytest.mark.parametrize(("files", "path", "fields", "pairs"), READ)
def test_pairs_are_read_as_they_are(
    tmp_path: Path, files: Files, path: str, fields: dict[str, str], pairs: Pairs
) -> None:
    source = find_source(config(write(tmp_path, files), path, fields))
    assert [pair[1:] for part in source.splits["train"] for pair in part.pairs()] == pairs


# Files, the path, more fields of the config, and what the sentence says.
REFUSED: list[tuple[Files, str, dict[str, str], str]] = [
    ({"train.jsonl": ROW + '\n{"en": "c", "d'}, "", {}, r"train\.jsonl, line 3: .*not complete JSON"),
    ({"train.jsonl": ROW + '["a", "b"]\n'}, "", {},
     r"line 2: .*not an object .*\(list\).* skip_bad_rows|skip_bad"),
    ({"train.jsonl": '["a", "b"]\n["c", "d"]\n'}, "", {},
     r'an object such as \{"en": .*Correct the lines\.$'),
    ({"train.jsonl": '{"en": "\\ud800", "de": "b"}\n'}, "", {}, "line 1: .*lone surrogate"),
    ({"train.jsonl": b'\n{"en": "\xfc", "de": "b"}'}, "", {},
     r"line 2: the text is not UTF-8 \(byte 0xfc.*iconv"),
    ({"train.json": '[{"en": "a", "de": "b"}, "c"]'}, "", {},
     r"train\.json, row 2: .*not an object .*\(str\)"),
    ({"train.json": '[{"en": "a", "de": "b"}, '}, "", {}, r"train\.json, row 1: .*not complete JSON"),
    ({"train.csv": "en,de\na,b\nc,d,e\n"}, "", {}, r"line 3: there are more cells .* \(3 instead of 2\)"),
    # The number of a row is that of its first line, whatever lines are within cells or empty.
    ({"train.csv": 'en,de\n\n"a\nb",c\nd\n'}, "", {}, "line 5: there are fewer cells"),
    ({"train.csv": 'en,de\na,b\n"never closed,d\ne,f\n'}, "", {},
     "line 3: the row that begins here .*doubled"),
    ({"train.tsv": "en\tde\na\nb\tc\n"}, "", {},
     r"\.tsv, line 2: there are fewer cells .*skip_bad_rows=true"),
    ({"train.tsv": "en\tde\ten\na\tb\tc\n"}, "", {}, "several columns 'en': rename"),
    ({"train.jsonl.gz": PACKED[:-12]}, "", {}, r"train\.jsonl\.gz cannot be read"),
    ({"train.jsonl.gz": PACKED[:40] + bytes([PACKED[40] ^ 255]) + PACKED[41:]}, "", {}, "cannot be read"),
    ({"train.parquet": "en,de\na,b\n"}, "", {}, r"train\.parquet cannot be read \(.*\): .* write it again"),
    ({"train.txt": "a\n"}, "", {}, "no training split that can be read: .*contains 'train.txt'"),
    # What is missing, or there twice.
    (LONG, "", {}, r"train\.en has 1,250 lines and .*train\.de has 1,200: line n"),
    ({"train.en": "a\n", "train.de": "b\n" * 3}, "", {}, r"en has 1 lines and .*de has 3: line n"),
    ({"train.en": "", "train.de": "b\n" * 3}, "", {}, r"en has 0 lines and .*de has 3: line n"),
    *[(Files({"train.en": "a\n", "other.de": "b\n"}), name, NONE, r"train\.en has no .*: .*train\.de is")
      for name in ("", "train", "train.en")],
    (SPLITS | {"train.csv": "en,de\n"}, "", {},
     r"train split more than once: .*train\.csv or .*train\.jsonl"),
    ({"x.en": "a" * 10_000_001, "x.de": "b"}, "x", {}, r"x\.en, line 1 is longer than 10,000,000 bytes"),
    ({"c.txt": ""}, "c.txt", {}, r"no extension .*\.jsonl.*\.de.*data\.delimiter"),
    ({}, "nowhere/x.csv", {}, r"a folder, a file, a pattern .*builtin:primer"),
    ({}, "*.jsonl", {}, r"there is no file or folder .*\*\.jsonl"),
    # Endings are parts of names.
    (SIDES, "part-?", {}, r"there is no file or folder .*part-\?"),
    ({"1.jsonl": ROW + '{"en": "a"', "2.jsonl": ROW}, "*.jsonl", {}, r"/1\.jsonl, line 2: .*complete JSON"),
    ({"1.jsonl": ROW, "readme.txt": ""}, "*", {}, r"readme\.txt has no extension that shows its format"),
    ({"part-2.de": "x\n"}, "part-*", {}, r"part-2\.de has no counterpart: .*part-2\.en is"),
    ({"test.csv": ROW, "x.en": "a\n"}, "test.csv,x.en", {}, "test.csv is a table, which has both sides"),
    ({"x.en": "a\n"}, "x.en,germna.txt", {}, "no file or folder '[^']*/germna.txt', nor"),
    ({"test.jsonl": ROW, "x/train.jsonl": ROW}, "", {}, r"no training split that can.* 'test\.jsonl', 'x/'"),
    ({}, "", {"src": "en", "tgt": "en"}, r"data\.src and data\.tgt are both 'en'"),
    # Columns, and remedies that can work.
    ({"c.tsv": "Go, now.\tGeh.\nStop!\tHalt!\n"}, "c.tsv", {},
     "'Go, now.', 'Geh.'.* be comma. If .* numbers: data.columns: 1,2"),
    ({"c.csv": "a,b\n"}, "c.csv", {"columns": "1,3"}, r"no column '3'.* have the sentences\.$"),
    ({"c.csv": "EN,DE\n"}, "c.csv", {}, "no column 'en'.* Did you mean 'EN'"),
    ({"c.csv": "english;german\nGo.;Geh.\n"}, "c.csv", {},
     "'english', 'german'.* Did you mean .*Set data.columns"),
    ({"c.csv": "a;b\n"}, "c.csv", {"columns": "a,c"}, "no column 'c', which data.columns names"),
    ({"c.csv": "a;b\n"}, "c.csv", {"columns": "a,b", **TABS},
     "'a;b'. The .* split at each tab; .* be semicolon.$"),
    ({"c.csv": "Go.;Geh.\n"}, "c.csv", NUMBERS, "no column '2', .*split at each comma; data.delimiter"),
    ({"c.csv": "Hello, you;Hallo\nGo.;Geh.\n"}, "c.csv", NUMBERS, "line 2: .*fewer cells .*1 instead of 2"),
    ({"c.jsonl": '{"a": "Go.", "b": "Geh."}\n'}, "c.jsonl", NUMBERS, "no column '1', .* 'a', 'b'"),
    ({"c.csv": "\r\r\n"}, "c.csv", {}, "there are no rows"),
    ({"c.csv": WIDE}, "c.csv", {}, r"no column 'en'.* 'column19' and 19980 more\."),
    ({"c.csv": f"{'a' * 60},{'b' * 61}\n"}, "c.csv", {}, f"'{'a' * 60}', '{'b' * 57}\\.\\.\\.'"),
    ({"c.csv": "only\n"}, "c.csv", {}, r"its columns are 'only'\.$"),
    ({"train.jsonl": jsonl(IN_FIELDS)}, "", {},
     r"no column 'en'.*Set data\.columns: text\.long\.en,text\.long\.de"),
    ({"train.jsonl": jsonl(IN_FIELDS)}, "", {"columns": "text.en,text.de"}, r"no column 'text\.en'"),
    ({"c.csv": f'translation\n"{BESIDE}"\n'}, "c.csv", {}, "'translation'. A cell has both .* parquet.$"),
    ({"b\nc.csv": "x,y\n"}, "b\nc.csv", {}, r"b\\nc\.csv has no column"),
    ({"train.jsonl": '{"en": "a", "de": ""}\n' * 3 + '{"en": 1, "de": "b"}\n'}, "", {},
     "can be trained on: in 3 rows the target is empty, in 1 row the source is not text"),
    # Lists.
    ({"train.jsonl": LISTS}, "", {}, "in 1 row the target is a list, not one text"),
    (SPLITS | {"test.jsonl": LISTS}, "", {},
     r"test\.jsonl, line 1: the target is a list.* One reference is scored"),
    ({"c.jsonl": '{"translation": {"language": ["en", "de"], "translation": ["A", "B"]}}\n'}, "c.jsonl", {},
     "no column 'en'.* lists in 'translation.language', .*: give each pair a row"),
    *[(Files({name: json.dumps({"version": 1, "data": [{"en": "a", "de": "b"}]}, indent=indent)}), name, NONE,
       r"If its rows are in 'data', .*jq -c '\.data\[\]'")
      for name in ("rows.json", "rows.jsonl") for indent in (None, 1)],
    *[(Files({"c.json": json.dumps({"en": ["a"], "de": ["b"]}, indent=indent)}), "c.json", NONE,
       "one JSON object, not a list of rows.*orient='records'") for indent in (None, 1)],
]  # fmt: skip


@pytest.mark.parametrize(("files", "path", "fields", "message"), REFUSED)
def test_what_cannot_be_read_is_named_with_what_to_do_in_a_moment(
    tmp_path: Path, files: Files, path: str, fields: dict[str, str], message: str
) -> None:
    started = time.process_time()
    with pytest.raises(MtError, match=message) as caught:
        load_corpus(config(write(tmp_path, files), path, fields), CleaningConfig())
    assert "\n" not in str(caught.value)
    assert time.process_time() - started < 4


def test_two_paths_may_have_a_space_between_them_and_be_in_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"a b.txt": "a\n", "c": "b\n"})
    monkeypatch.setenv("HOME", str(tmp_path))
    [part] = find_source(data_config("~/a b.txt, ~/c")).splits["train"]
    assert [*part.pairs()] == [(1, "a", "b")]


def test_a_line_has_a_limit_without_its_end_and_a_table_most_lines_with_tabs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"x": "aaaaa\r\nb\n", "y": "b\naaaaaa\n"})
    monkeypatch.setattr("mt.data.sources.text.MAX_SENTENCE_BYTES", 5)
    assert [*lines_of(tmp_path / "x")] == ["aaaaa", "b"]
    with pytest.raises(DataError, match=r"y, line 2 is longer than 5 bytes"):
        [*lines_of(tmp_path / "y")]
    # Lines with tabs are a table if they are most of several.
    monkeypatch.undo()
    write(tmp_path, {"x": "a\tb\n" * 4 + "c\n", "y": "a\tb\n", "z": "a\tb\n" * 5 + "c\n"})
    assert [len([*lines_of(tmp_path / name)]) for name in "xy"] == [5, 1]
    with pytest.raises(DataError, match="z is a table of several columns"):
        next(lines_of(tmp_path / "z"))


# The content of a file, and what it is said to be.
NOT_TEXT: dict[str, tuple[bytes, str]] = {
    "SGM": (SGM.encode(), r"is SGM or XML, .*sed -n .*<seg"),
    "TMX": (TMX.encode(), r"is TMX, .*python3 -c .*iter\('tu'\)"),
    "tags": (TAGS.encode(), r"lines of tags, .*grep -v '\^ \*<'"),
    "packed SGM": (gzip.compress(SGM.encode(), mtime=0), "is SGM or XML"),
    "HTML": (b"<html><p>A dog.</p></html>", "is XML or HTML, .* one per line"),
    "zip": (b"PK\x03\x04....", "is a zip archive, .*unzip"),
    "docx": (b"PK\x03\x04\x14\0\x06\0[Content_Types].xml", "is a PDF or office document"),
    "old office": (b"\xd0\xcf\x11\xe0....", "is a PDF or office document"),
    "PDF": (b"%PDF-1.7 ...", "is a PDF or office document, .*plain text"),
    "RTF": (b"{\\rtf1 A dog.}", "is a PDF or office document"),
    "bzip2": (b"BZh91AY&SY..", "is packed, .*bunzip2"),
    "zstd": (b"\x28\xb5\x2f\xfd...", "is packed, .*unzstd"),
    "xz": (b"\xfd7zXZ\x00", "is packed, .*unxz"),
    "parquet": (b"PAR1\x15\x04", r"is a parquet file, .*\.parquet"),
    "UTF-16": ("A dog.\n".encode("utf-16"), "is in UTF-16, .*iconv -f UTF-16 "),
    "UTF-16, big-endian": (b"\xfe\xff\0A", "is in UTF-16, .*iconv -f UTF-16 "),
    "UTF-16 without a mark": ("A dog.\n".encode("utf-16-le"), "is in UTF-16, .*iconv -f UTF-16LE "),
    "SRT": (SRT.encode(), "is subtitles, .*grep -vE"),
    "times": (b"[00:00:00.000 --> 00:00:02.000]  A dog.\n", "is subtitles, .*take out the times"),
    "SSA": (b"[Script Info]\nTitle: x\n", r"is subtitles, .*\{9\}"),
    "VTT": (b"WEBVTT\n\n00:01.000 --> 00:04.000\nA dog.\n", "is subtitles, .*grep -vE"),
    "PO": (b'# made by hand\n#\nmsgid ""\nmsgstr ""\n', "is a PO file, .*msgcat"),
}
NOT_SENTENCES: dict[str, tuple[bytes, str]] = {
    "JSON lines": (ROW.encode(), "is JSON, .*jq"),
    "JSON": (b'[\n {"en": "a"}\n]', "is JSON, .*jq"),
    "TSV": (b"A dog.\tEin Hund.\nA cat.\tEine Katze.\n", "is a table of several columns, .*cut -f 1"),
}


@pytest.mark.parametrize("kind", [*NOT_TEXT, *NOT_SENTENCES])
def test_what_is_not_text_is_recognised_by_its_content_as_corpus_and_as_input(
    tmp_path: Path, kind: str
) -> None:
    content, message = (NOT_TEXT | NOT_SENTENCES)[kind]
    alone = ("x.sgm", "train.jsonl") if kind in NOT_TEXT else ("x",)
    write(tmp_path, {**dict.fromkeys(("x.en", "x.txt", "x.sgm", "train.jsonl"), content), **OTHER})
    for path in ("x.en,x.de", "x.txt,x.de", *alone):
        with pytest.raises(DataError, match=message):
            load_corpus(config(tmp_path, path, {}))


def test_a_pipe_is_called_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    write(tmp_path, {"x.en": "a\n"})
    for path in ("pipe", "x.en,pipe"):
        with pytest.raises(DataError, match=r"pipe is a pipe or a device, .* write it into a file"):
            load_corpus(config(tmp_path, path, {}))
