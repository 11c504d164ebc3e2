"""Corpora on disk: each kind loads, and each way in which it can be broken is reported in a sentence."""

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mt.config.data import DataConfig, TokenizerConfig
from mt.data.corpus import Corpus, load_corpus
from mt.data.sources import hub
from mt.data.sources.find import check_sources
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


def load(path: Path | str, src: str = "en", tgt: str = "de", **fields: object) -> Corpus:
    return load_corpus(DataConfig.model_validate({"path": str(path), "src": src, "tgt": tgt, **fields}))


def pairs_of(corpus: Corpus, split: str = "train") -> Pairs:
    rows = getattr(corpus, split)
    assert rows.column_names == ["src", "tgt"]
    return list(zip(rows["src"], rows["tgt"], strict=True))


def folder_with(folder: Path, write: Write, suffix: str, **splits: Pairs) -> Path:
    folder.mkdir(exist_ok=True)
    for name, pairs in splits.items():
        write(folder / (name + suffix), pairs)
    return folder


def loading_fails(path: Path | str, message: str, src: str = "en", tgt: str = "de") -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(path, src, tgt)
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
    loading_fails(tmp_path, "line 1 is longer than 268,435,456 bytes.* line of its own")


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
