"""Corpora on disk, also by a pattern and as tools leave them: each kind loads, or a sentence says why not."""

import csv
import gzip
import json
import logging
from collections.abc import Callable
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mt.config.config import Config
from mt.config.data import CleaningConfig, DataConfig, TokenizerConfig
from mt.data.corpus import Corpus, load_corpus, load_parts, load_split
from mt.data.sources import hub
from mt.data.sources.find import check_sources, find_source
from mt.data.suspicions import corpus_warnings
from mt.data.tokenizers.external import external_tokenizer
from mt.errors import DataError

Pairs = list[tuple[str, str]]
Write = Callable[[Path, Pairs], None]

NASTY = [
    ("two\u2028lines\u2029by\x85Unicode\x0b\x0c\x1c only", "zwei\u2028Zeilen"),
    ("NA", "null"),
    ('He said "hello", twice.', '"Hallo", sagte er; zweimal.'),
    ("None", "nan"),
    ("[EOS] <unk> #N/A", "[PAD]"),
    ("\u05e9\u05dc\u05d5\u05dd \u202eabc", "emoji 😀 and 中文"),
    ("x" * 200_000, "a carriage\rreturn"),
    ("  spaces around  ", "\u00a0ein Wort\u00a0"),
]


def write_jsonl(path: Path, pairs: Pairs) -> None:
    path.write_text("".join(json.dumps({"en": en, "de": de}) + "\n" for en, de in pairs), encoding="utf-8")


def write_nested_jsonl(path: Path, pairs: Pairs) -> None:
    rows = [{"id": "7", "translation": {"de": de, "en": en, "fr": "x"}} for en, de in pairs]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def write_json(path: Path, pairs: Pairs) -> None:
    path.write_text(json.dumps([{"en": en, "de": de} for en, de in pairs], indent=1), encoding="utf-8")


def write_csv(path: Path, pairs: Pairs) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "de", "en"), *((i, de, en) for i, (en, de) in enumerate(pairs))])


def write_tsv(path: Path, pairs: Pairs) -> None:
    lines = ["de\ten", *(f"{de}\t{en}" for en, de in pairs)]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="")


def write_parquet(path: Path, pairs: Pairs) -> None:
    pq.write_table(pa.table({"de": [de for _, de in pairs], "en": [en for en, _ in pairs]}), path)


def write_nested_parquet(path: Path, pairs: Pairs) -> None:
    pq.write_table(
        pa.table({"id": [1] * len(pairs), "translation": [{"en": e, "de": d} for e, d in pairs]}), path
    )


def write_parallel(stem: Path, pairs: Pairs) -> None:
    for language, side in (("en", 0), ("de", 1)):
        text = "".join(pair[side] + "\n" for pair in pairs)
        stem.with_name(f"{stem.name}.{language}").write_text(text, encoding="utf-8", newline="")


KINDS: dict[str, tuple[Write, str]] = {
    "jsonl": (write_jsonl, ".jsonl"),
    "nested jsonl": (write_nested_jsonl, ".jsonl"),
    "json": (write_json, ".json"),
    "jsonl called json": (write_jsonl, ".json"),
    "csv": (write_csv, ".csv"),
    "tsv": (write_tsv, ".tsv"),
    "parquet": (write_parquet, ".parquet"),
    "nested parquet": (write_nested_parquet, ".parquet"),
    "parallel text": (write_parallel, ""),
}


def load(path: Path | str, cleaning: CleaningConfig | None = None, **fields: object) -> Corpus:
    options = {"path": str(path), "src": "en", "tgt": "de", "held_out_fraction": 0.2, **fields}
    return load_corpus(DataConfig.model_validate(options), cleaning or CleaningConfig())


def pairs_of(corpus: Corpus, split: str = "train") -> Pairs:
    rows = getattr(corpus, split)
    assert rows.column_names == ["src", "tgt"]
    return list(zip(rows["src"], rows["tgt"], strict=True))


def folder_with(folder: Path, write: Write, suffix: str, **splits: Pairs) -> Path:
    folder.mkdir(exist_ok=True)
    for name, pairs in splits.items():
        write(folder / (name + suffix), pairs)
    return folder


def loading_fails(path: Path | str, message: str, **fields: object) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(path, None, **fields)
    assert "\n" not in str(caught.value)


GOOD: dict[str, Pairs] = {"train": NASTY, "validation": [("v", "w")], "test": [("t", "u"), ("t2", "u2")]}


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_each_kind_gives_back_the_very_texts_also_if_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write, suffix = KINDS[kind]
    folder = folder_with(tmp_path / "corpus:v1", write, suffix, **GOOD)
    corpus = load("corpus:v1")
    assert {split: pairs_of(corpus, split) for split in GOOD} == GOOD
    if "parquet" not in kind:
        for path in list(folder.iterdir()):
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
        assert pairs_of(load(folder)) == NASTY


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_file_of_each_kind_is_split_by_itself(tmp_path: Path, kind: str) -> None:
    write, suffix = KINDS[kind]
    pairs = [(f"sentence {i}", f"Satz {i}") for i in range(200)]
    write(tmp_path / f"europarl{suffix}", pairs)
    corpus = load(tmp_path / f"europarl{suffix}", held_out_fraction=0.1)
    assert sorted(pair for split in GOOD for pair in pairs_of(corpus, split)) == sorted(pairs)
    assert corpus.report.sources[0].kind == "files"


@pytest.mark.parametrize("name", ["validation", "valid", "val", "dev"])
def test_the_validation_split_goes_by_four_names(tmp_path: Path, name: str) -> None:
    folder_with(tmp_path, write_parallel, "", train=[("a", "b")], **{name: [("v", "w")]}, test=[("t", "u")])
    assert pairs_of(load(tmp_path), "validation") == [("v", "w")]


def test_a_table_in_pieces_is_read_in_order(tmp_path: Path) -> None:
    folder_with(tmp_path, write_parquet, ".parquet", validation=[("v", "w")], test=[("t", "u")])
    for i in range(3):
        write_parquet(tmp_path / f"train-0000{i}-of-00003.parquet", [(f"s{i}", f"t{i}")])
    assert pairs_of(load(tmp_path)) == [("s0", "t0"), ("s1", "t1"), ("s2", "t2")]


def test_lines_end_at_newlines_only_with_or_without_carriage_returns(tmp_path: Path) -> None:
    english = "first\x85still first\u2028and still\r\nsecond\n\x0cthird\rstill third"
    (tmp_path / "train.en").write_bytes(english.encode())
    (tmp_path / "train.de").write_bytes(b"eins\nzwei\r\ndrei\n")
    folder_with(tmp_path, write_parallel, "", val=[("v", "w")], test=[("t", "u")])
    sources = ["first\x85still first\u2028and still", "second", "\x0cthird\rstill third"]
    assert pairs_of(load(tmp_path)) == list(zip(sources, ["eins", "zwei", "drei"], strict=True))


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "tsv", "parallel text"])
def test_a_byte_order_mark_is_not_text(tmp_path: Path, kind: str) -> None:
    write, suffix = KINDS[kind]
    folder_with(tmp_path, write, suffix, **GOOD)
    for path in tmp_path.iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert pairs_of(load(tmp_path), "test") == GOOD["test"]


def test_a_csv_cell_may_hold_a_newline_and_a_tsv_has_no_quoting(tmp_path: Path) -> None:
    folder_with(tmp_path, write_jsonl, ".jsonl", validation=[("v", "w")], test=[("t", "u")])
    (tmp_path / "train.csv").write_text('en,de\n"one\ntwo","eins\nzwei"\n\n', encoding="utf-8")
    assert pairs_of(load(tmp_path)) == [("one\ntwo", "eins\nzwei")]
    (tmp_path / "train.csv").unlink()
    (tmp_path / "train.tsv").write_text('en\tde\n"one\t""zwei\n', encoding="utf-8")
    assert pairs_of(load(tmp_path)) == [('"one', '""zwei')]


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_file_of_each_kind(tmp_path: Path, kind: str) -> None:
    write, suffix = KINDS[kind]
    folder_with(tmp_path, write, suffix, train=[], validation=[("v", "w")], test=[("t", "u")])
    loading_fails(tmp_path, r"No pair of .*train.* can be trained on: there are no rows")
    write(tmp_path / f"train{suffix}", [("a", "b")])
    write(tmp_path / f"validation{suffix}", [])
    loading_fails(tmp_path, r"validation.* is empty")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "parallel text"])
def test_a_missing_column(tmp_path: Path, kind: str) -> None:
    write, suffix = KINDS[kind]
    write(tmp_path / f"train{suffix}", [("a", "b")])
    loading_fails(tmp_path, r"train.* no column 'eng', .*data\.src .*'de'.*Did you mean 'en'\?", src="eng")
    loading_fails(tmp_path, r"no column 'it', which data\.tgt names", tgt="it")


PACKED = gzip.compress(b'{"en": "a", "de": "b"}\n' * 1000)
UNREADABLE: list[tuple[str, bytes, str]] = [
    (
        "train.jsonl",
        b'{"en": "a", "de": "b"}\n\n{"en": "c", "d',
        r"train\.jsonl, line 3: .*not complete JSON",
    ),
    ("train.jsonl", b'{"en": "a", "de": "b"}\n["a", "b"]\n', r"line 2: .*not an object such as .*\(list\)"),
    ("train.jsonl", b'{"en": "\\ud800", "de": "b"}\n', "line 1: .*lone surrogate"),
    ("train.jsonl", b'\n{"en": "\xfc", "de": "b"}', r"line 2: the text is not UTF-8 \(byte 0xfc.*iconv"),
    ("train.json", b'[{"en": "a", "de": "b"}, "c"]', r"train\.json, row 2: .*not an object .*\(str\)"),
    ("train.json", b'[{"en": "a", "de": "b"}, ', r"train\.json, row 1: .*not complete JSON"),
    (
        "train.csv",
        b"en,de\na,b\nc,d,e\n",
        r"line 3: there are more cells than in the first line \(3 instead of 2\)",
    ),
    ("train.csv", b'en,de\na,b\n"never closed,d\ne,f\n', "line 3: the row that begins here .*doubled"),
    ("train.tsv", b"en\tde\na\n", r"train\.tsv, line 2: there are fewer cells .*skip_bad_rows=true"),
    ("train.tsv", b"en\tde\ten\na\tb\tc\n", "several columns 'en': rename"),
    ("train.jsonl.gz", PACKED[:-12], r"train\.jsonl\.gz cannot be read"),
    ("train.jsonl.gz", PACKED[:40] + bytes([PACKED[40] ^ 0xFF]) + PACKED[41:], "cannot be read"),
    ("train.parquet", b"en,de\na,b\n", r"train\.parquet cannot be read \(.*\): .* write it again"),
    ("train.txt", b"a\n", "no training split that can be read: .*contains 'train.txt'"),
]


@pytest.mark.parametrize(("name", "content", "message"), UNREADABLE)
def test_a_file_that_cannot_be_read_is_named_with_its_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    loading_fails(tmp_path, message)


def test_parquet_text_that_is_not_utf8_is_named_with_its_row(tmp_path: Path) -> None:
    texts = pa.array([b"a"] * 1500 + [b"\xfc"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"en": texts, "de": texts}), tmp_path / "train.parquet")
    loading_fails(tmp_path, r"train\.parquet, row 1501: the text is not UTF-8")


@pytest.mark.parametrize(("num_english", "num_german"), [(1250, 1200), (1200, 1250), (0, 3)])
def test_files_of_different_length(tmp_path: Path, num_english: int, num_german: int) -> None:
    (tmp_path / "train.en").write_text("a\n" * num_english, encoding="utf-8")
    (tmp_path / "train.de").write_text("b\n" * num_german, encoding="utf-8")
    loading_fails(
        tmp_path, rf"train\.en has {num_english:,} lines and .*train\.de has {num_german:,}: line n"
    )


def test_both_sides_of_a_parallel_text_are_needed_once(tmp_path: Path) -> None:
    write_parallel(tmp_path / "train", [(f"a {i}", f"b {i}") for i in range(100)])
    # One side names both.
    sides = [load(tmp_path / name, held_out_fraction=0.2) for name in ("train.de", "train")]
    assert pairs_of(sides[0]) == pairs_of(sides[1])
    (tmp_path / "train.de").rename(tmp_path / "other.de")
    for name in ("", "train", "train.en"):
        loading_fails(tmp_path / name, r"train\.en has no counterpart")


def test_a_split_that_is_there_twice(tmp_path: Path) -> None:
    folder_with(tmp_path, write_jsonl, ".jsonl", **GOOD, dev=[("v", "w")])
    loading_fails(tmp_path, r"the validation split more than once: .*dev\.jsonl or .*validation\.jsonl")
    (tmp_path / "dev.jsonl").unlink()
    write_csv(tmp_path / "train.csv", [("a", "b")])
    loading_fails(tmp_path, r"contains the train split more than once: .*train\.csv or .*train\.jsonl")


def test_a_path_that_is_not_a_corpus(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "corpus.jsonl", [("a", "b")])
    (tmp_path / "corpus.txt").touch()
    loading_fails(tmp_path / "corpus.txt", r"no extension .*\.jsonl.*\.de.*data\.delimiter")
    loading_fails(tmp_path / "nowhere" / "x.csv", r"a folder, a file, a pattern .*builtin:primer")
    loading_fails("~no_such_user/corpus", "there is no file.*no_such_user")


def test_a_small_file_that_unpacks_to_an_endless_line_is_refused(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "train.jsonl.gz", "wb", compresslevel=1) as file:
        for _ in range(260):
            file.write(b"[" * 2**20)
    loading_fails(tmp_path, "line 1 is longer than 268,435,456 bytes.* shorter lines")


def test_a_check_reads_the_first_pairs_alone(tmp_path: Path) -> None:
    def check(path: Path | str, **fields: str) -> None:
        check_sources(DataConfig.model_validate({"path": str(path), "src": "en", "tgt": "de", **fields}))

    rows = [{"en": "a dog", "de": "ein Hund"}, {"en": "a cat"}]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    (tmp_path / "valid.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "train.jsonl").write_text('{"en": "a dog", "de": "ein Hund"}\n')
    check(tmp_path)
    check(tmp_path / "rows.json")
    with pytest.raises(DataError, match=r"valid\.jsonl has no column 'fr'"):
        check(tmp_path / "valid.jsonl", tgt="fr")
    with pytest.raises(DataError, match=r"data\.mix, nowhere: .*there is no file"):
        check(tmp_path, mix="nowhere")
    # A corpus on the Hub is left to training.
    check("someone/some-corpus", mix="wmt14")


def test_a_path_in_a_folder_that_exists_is_never_a_hub_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delattr(hub, "get_session")
    folder_with(tmp_path / "corpora", write_parallel, "", broken=[("a", "b")])
    loading_fails("corpora/brokn", r"no file or folder 'corpora/brokn'.*Did you mean 'corpora/broken'\?")
    config = DataConfig(path="corpora/brokn", src="en", tgt="de")
    with pytest.raises(DataError, match="Did you mean"):
        check_sources(config)
    with pytest.raises(DataError, match="there is no file 'corpora/brokn'"):
        external_tokenizer(TokenizerConfig(kind="file", path="corpora/brokn", shared=True), limit_seconds=1)


def numbered(numbers: range) -> Pairs:
    return [(f"sentence {i}", f"Satz {i}") for i in numbers]


def numbers_of(corpus: Corpus) -> list[int]:
    """The numbers of the sentences that are trained on, where each target has that of its source."""
    numbers = [int(text.split()[1]) for text in corpus.train["src"]]
    assert [int(text.split()[1]) for text in corpus.train["tgt"]] == numbers
    return numbers


def assert_is_the_whole(corpus: Corpus, count: int) -> None:
    """All pairs are in one of the splits, and the training pairs are in the order of their numbers."""
    held_out = [int(text.split()[1]) for split in (corpus.validation, corpus.test) for text in split["src"]]
    trained = numbers_of(corpus)
    assert trained == sorted(trained)
    assert sorted(trained + held_out) == list(range(count))


def test_tables_in_the_order_of_their_names(tmp_path: Path) -> None:
    for i in (2, 0, 1):
        write_jsonl(tmp_path / f"part-{i}.jsonl", numbered(range(100 * i, 100 * i + 100)))
    (tmp_path / ".part-3.jsonl").write_text("hidden", encoding="utf-8")
    corpus = load(tmp_path / "part-*.jsonl")
    assert_is_the_whole(corpus, 300)
    assert corpus.report.sources[0].kind == "files"
    source = find_source(DataConfig(path=f"{tmp_path}/*", src="en", tgt="de"))
    assert len(load_parts(source.splits["train"])) == 300


@pytest.mark.parametrize("pattern", ["part-?", "part-*.en", "part-[012].*", "**/part-*"])
def test_parallel_text_by_either_side_or_both(tmp_path: Path, pattern: str) -> None:
    for i in (2, 0, 1):
        write_parallel(tmp_path / f"part-{i}", numbered(range(100 * i, 100 * i + 100)))
    if pattern == "part-?":  # Matches no file, for the endings are part of the names.
        loading_fails(tmp_path / pattern, r"there is no file or folder .*part-\?")
    else:
        assert_is_the_whole(load(tmp_path / pattern), 300)


def test_folders_and_formats_may_be_mixed(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    write_jsonl(tmp_path / "a" / "train.jsonl", numbered(range(100)))
    write_parallel(tmp_path / "b" / "train", numbered(range(100, 200)))
    assert_is_the_whole(load(tmp_path / "*" / "train.*"), 200)
    assert_is_the_whole(load(tmp_path / "**" / "train.*"), 200)


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "part-[1].jsonl", numbered(range(100)))
    assert_is_the_whole(load(tmp_path / "part-[1].jsonl"), 100)


def test_what_is_wrong_among_many_files_is_named(tmp_path: Path) -> None:
    loading_fails(tmp_path / "*.jsonl", r"there is no file or folder .*\*\.jsonl")
    for i in range(3):
        write_jsonl(tmp_path / f"{i}.jsonl", numbered(range(3)))
    (tmp_path / "1.jsonl").write_text('{"en": "a", "de": "b"}\n{"en": "a"', encoding="utf-8")
    loading_fails(tmp_path / "*.jsonl", r"/1\.jsonl, line 2: .*complete JSON")
    (tmp_path / "readme.txt").touch()
    loading_fails(tmp_path / "*", r"readme\.txt has no extension that shows its format")
    (tmp_path / "part-2.de").write_text("x\n", encoding="utf-8")
    loading_fails(tmp_path / "part-*", r"part-2\.de has no counterpart")


PAIRS = [(f"a {number}", f"ein {number}") for number in range(60)]
SGM = '<srcset setid="s"><doc docid="1">\n<seg id="1">A dog.</seg>\n</doc></srcset>\n'
TMX = "<?xml version='1.0'?>\n<!-- by a tool -->\n<tmx><body><tu><tuv><seg>A</seg></tuv></tu></body></tmx>"
TAGS = "<doc docid='1'>\n<url>http://x</url>\nA dog.\n"
JSONL = "".join(json.dumps({"en": en, "de": de}) + "\n" for en, de in PAIRS)


def num_pairs(corpus: Corpus) -> int:
    return len(corpus.train) + len(corpus.validation) + len(corpus.test)


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
    (tmp_path / "test.jsonl").write_text('{"en": "a", "de": "b"}\n{"en": "a"}\n{"en"\n[]\n', encoding="utf-8")
    with pytest.raises(
        DataError,
        match=r"line 2: the target is missing; line 3: .*not complete JSON.*; line 4: [^;]*comparable",
    ):
        load(tmp_path, CleaningConfig(skip_bad_rows=True))


def test_pairs_without_any_text_are_left_out_of_test_sets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_parallel(tmp_path / "train", PAIRS)
    write_parallel(tmp_path / "test", [("a", "b"), ("", " "), ("", "c"), ("d", "")])
    with caplog.at_level(logging.WARNING):
        test = load_split(DataConfig(path=str(tmp_path), src="en", tgt="de"), "test")
    assert list(test["src"]) == ["a", "", "d"]
    assert "1 pair empty on both sides" in caplog.text


def test_folders_as_tools_leave_them(tmp_path: Path) -> None:
    # A clone of a repository on the Hub.
    clone = tmp_path / "clone"
    (clone / "data").mkdir(parents=True)
    (clone / "README.md").touch()
    (clone / ".cache").mkdir()
    table = pa.table({"en": [en for en, _ in PAIRS], "de": [de for _, de in PAIRS]})
    for name in (".cache", "data"):
        pq.write_table(table, clone / name / "train-00000-of-00001.parquet")
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
    splits = {"train": 60, "test": 5, "dev": 4, "validation": 3}
    parts = {name: dataset.select(range(count)) for name, count in splits.items()}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "splits"))
    corpus = load(tmp_path / "splits")
    assert [len(corpus.train), len(corpus.validation), len(corpus.test)] == [60, 3, 5]
    # An unpacked archive of OPUS.
    opus = tmp_path / "opus"
    opus.mkdir()
    write_parallel(opus / "Books.de-en", PAIRS)
    for name in ("README", "LICENSE", "Books.de-en.ids"):
        (opus / name).write_text("x\n", encoding="utf-8")
    assert num_pairs(load(opus)) == len(PAIRS)
    write_parallel(opus / "Tatoeba.de-en", PAIRS)
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
    write_parallel(tmp_path / "train", PAIRS + named)
    assert "% of the lines of the train split have HTML's names of characters, such as &amp;" in warnings()
    assert "cleaning.unescape_html" in warnings()
    pairs = load(tmp_path, CleaningConfig(unescape_html=True)).train
    assert any(text.startswith('Tom & Ann "met" ') for text in pairs["src"])
    assert not any("&amp;" in text for side in ("src", "tgt") for text in pairs[side])
    write_parallel(tmp_path / "train", [*PAIRS, *[("<url>http://x</url>", "<p>")] * 3] * 3)
    assert "tags, such as <p>" in warnings()
    write_parallel(tmp_path / "train", PAIRS * 3)
    assert warnings() == ""
