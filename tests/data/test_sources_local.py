"""Corpora on disk: each kind loads, and each way in which it can be broken is said in a sentence."""

import csv
import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mt.config.data import DataConfig
from mt.data.corpus import Corpus, load_corpus
from mt.errors import ConfigError, DataError

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


def pack(path: Path) -> None:
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()


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
def test_a_folder_of_each_kind_gives_back_the_very_texts(tmp_path: Path, kind: str) -> None:
    write, suffix = KINDS[kind]
    corpus = load(folder_with(tmp_path, write, suffix, **GOOD))
    assert {split: pairs_of(corpus, split) for split in GOOD} == GOOD


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_with_a_colon_is_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    write, suffix = KINDS[kind]
    folder_with(tmp_path / "corpus:v1", write, suffix, **GOOD)
    assert pairs_of(load("corpus:v1")) == NASTY


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "parquet" not in kind])
def test_each_text_format_may_be_packed_with_gzip(tmp_path: Path, kind: str) -> None:
    write, suffix = KINDS[kind]
    folder_with(tmp_path, write, suffix, **GOOD)
    for path in list(tmp_path.iterdir()):
        pack(path)
    assert pairs_of(load(tmp_path)) == NASTY


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_file_of_each_kind_is_split_by_itself(tmp_path: Path, kind: str) -> None:
    write, suffix = KINDS[kind]
    pairs = [(f"sentence {i}", f"Satz {i}") for i in range(200)]
    write(tmp_path / f"europarl{suffix}", pairs)
    corpus = load(tmp_path / f"europarl{suffix}", held_out_fraction=0.1)
    assert sorted(pair for split in GOOD for pair in pairs_of(corpus, split)) == sorted(pairs)
    assert corpus.report.kind == ("parallel text" if kind == "parallel text" else "file")


@pytest.mark.parametrize("name", ["validation", "valid", "val", "dev"])
def test_the_validation_split_goes_by_four_names(tmp_path: Path, name: str) -> None:
    folder_with(tmp_path, write_parallel, "", train=[("a", "b")], **{name: [("v", "w")]}, test=[("t", "u")])
    assert pairs_of(load(tmp_path), "validation") == [("v", "w")]


def test_splits_may_have_different_formats(tmp_path: Path) -> None:
    folder_with(tmp_path, write_csv, ".csv", train=[("a", "b")])
    folder_with(tmp_path, write_parallel, "", val=[("v", "w")])
    folder_with(tmp_path, write_parquet, ".parquet", test=[("t", "u")])
    assert pairs_of(load(tmp_path), "test") == [("t", "u")]


def test_a_table_in_pieces_is_read_in_order_and_a_missing_piece_is_noticed(tmp_path: Path) -> None:
    folder_with(tmp_path, write_parquet, ".parquet", validation=[("v", "w")], test=[("t", "u")])
    for i in range(3):
        write_parquet(tmp_path / f"train-0000{i}-of-00003.parquet", [(f"s{i}", f"t{i}")])
    assert pairs_of(load(tmp_path)) == [("s0", "t0"), ("s1", "t1"), ("s2", "t2")]
    (tmp_path / "train-00001-of-00003.parquet").unlink()
    loading_fails(tmp_path, r"contains 2 of the 3 shards of train\.parquet: fetch the missing ones")


def test_the_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder_with(tmp_path / "corpus", write_jsonl, ".jsonl", **GOOD)
    assert pairs_of(load("~/corpus"), "validation") == GOOD["validation"]


@pytest.mark.parametrize("path", ["~no_such_user/corpus", "~no_such_user/a.txt,~no_such_user/b.txt"])
def test_the_home_folder_of_nobody(path: str) -> None:
    with pytest.raises(DataError, match=r"there is no file.*no_such_user"):
        load(path)


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
    loading_fails(tmp_path, r"validation.* is empty, but should contain the validation split")


@pytest.mark.parametrize("name", ["train.jsonl", "train.json", "train.csv", "train.tsv"])
def test_a_file_without_a_byte(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    loading_fails(tmp_path, "No pair of .* can be trained on: there are no rows")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "parallel text"])
def test_a_missing_column_is_answered_with_those_that_are_there(tmp_path: Path, kind: str) -> None:
    write, suffix = KINDS[kind]
    write(tmp_path / f"train{suffix}", [("a", "b")])
    found = r"train.* has no column 'eng', which data\.src names; its columns are .*'de'.*Did you mean 'en'\?"
    loading_fails(tmp_path, found, src="eng")
    loading_fails(tmp_path, r"no column 'it', which data\.tgt names", tgt="it")


def test_a_header_that_names_a_column_twice(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("en\tde\ten\na\tb\tc\n", encoding="utf-8")
    loading_fails(tmp_path, "several columns 'en': rename all but one")


def test_a_tsv_whose_first_line_is_a_sentence_is_told_about_headers(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("Go.\tGeh.\nStop!\tHalt!\n", encoding="utf-8")
    loading_fails(tmp_path, r"whose first line must name the columns, has no column 'en'.*'Go\.', 'Geh\.'")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "train.jsonl",
            '{"en": "a", "de": "b"}\n\n{"en": "c", "d',
            r"train\.jsonl, line 3: .*may be cut short",
        ),
        (
            "train.jsonl",
            '{"en": "a", "de": "b"}\n["a", "b"]\n',
            r"line 2: found a list instead of a JSON object",
        ),
        ("train.jsonl", "[" * 100_000, r"line 1: this is not a complete JSON value"),
        ("train.jsonl", '{"en": "\\ud800", "de": "b"}\n', r"line 1: .*lone surrogate"),
        (
            "train.json",
            '[{"en": "a", "de": "b"}, {"en": "c"',
            r"train\.json: this is not a complete JSON value",
        ),
        (
            "train.json",
            '[{"en": "a", "de": "b"}, "c"]',
            r"train\.json, row 2: found a str instead of a JSON object",
        ),
        ("train.csv", "en,de\na,b\nc,d,e\n", r"train\.csv, line 3: found 3 cells, but .* 2 columns; quote"),
        (
            "train.csv",
            'en,de\na,b\n"never closed,d\ne,f\n',
            r"line 3: the row that begins here is not .*doubled",
        ),
        ("train.csv", 'en,de\na,b\n"two\nlines",d,e\n', r"line 3: found 3 cells, but .* 2 columns"),
        ("train.csv", 'en,de\na,"b" and c\n', r"line 2: the row that begins here is not valid CSV"),
        (
            "train.tsv",
            "en\tde\na\n",
            r"train\.tsv, line 2: found 1 cell, but .* 2 columns; remove the tabs",
        ),
    ],
)
def test_a_damaged_table_is_named_with_its_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    loading_fails(tmp_path, message)


@pytest.mark.parametrize("name", ["train.jsonl", "train.json", "train.csv", "train.tsv", "train.de"])
def test_text_that_is_not_utf8_is_named_with_its_line(tmp_path: Path, name: str) -> None:
    write_parallel(tmp_path / "train", [("a", "b"), ("c", "d")])
    rows = {
        "train.jsonl": '{"en": "a", "de": "b"}\n{"en": "c", "de": "ü"}\n',
        "train.json": '[{"en": "a", "de": "b"},\n{"en": "c", "de": "ü"}]\n',
        "train.csv": "en,de\nc,ü\n",
        "train.tsv": "en\tde\nc\tü\n",
        "train.de": "b\nü\n",
    }
    (tmp_path / name).write_bytes(rows[name].encode("latin-1"))
    path = tmp_path / "train" if name == "train.de" else tmp_path / name
    loading_fails(path, rf"{re.escape(name)}, line 2: byte \d+ \(0xfc\) is not UTF-8.*iconv")


def test_parquet_text_that_is_not_utf8_is_named_with_its_row(tmp_path: Path) -> None:
    texts = pa.array([b"a"] * 1500 + [b"\xfc"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"en": texts, "de": texts}), tmp_path / "train.parquet")
    loading_fails(tmp_path, r"train\.parquet, row 1501: the text is not UTF-8")


@pytest.mark.parametrize("damage", ["cut", "flipped", "something else"])
def test_corrupt_parquet(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "train.parquet"
    write_parquet(path, [(f"a {i}", f"b {i}") for i in range(100)])
    content = path.read_bytes()
    flipped = content[:-20] + bytes(byte ^ 0xFF for byte in content[-20:-8]) + content[-8:]
    path.write_bytes({"cut": content[:200], "flipped": flipped, "something else": b"en,de\na,b\n"}[damage])
    loading_fails(tmp_path, r"train\.parquet is not a valid parquet file \(.*\): fetch or write it again")


@pytest.mark.parametrize("damage", ["cut", "flipped", "not packed", "no bytes"])
def test_corrupt_gzip(tmp_path: Path, damage: str) -> None:
    packed = gzip.compress(b'{"en": "a", "de": "b"}\n' * 1000)
    flipped = packed[:40] + bytes([packed[40] ^ 0xFF]) + packed[41:]
    content = {"cut": packed[:-12], "flipped": flipped, "not packed": b'{"en": "a", "de": "b"}\n'}
    (tmp_path / "train.jsonl.gz").write_bytes(content.get(damage, b""))
    loading_fails(tmp_path, r"train\.jsonl\.gz is not a valid gzip file")


@pytest.mark.parametrize(("num_english", "num_german"), [(1200, 1250), (1250, 1200), (3, 0), (0, 3)])
def test_unequal_line_counts_are_both_named(tmp_path: Path, num_english: int, num_german: int) -> None:
    (tmp_path / "train.en").write_text("a\n" * num_english, encoding="utf-8")
    (tmp_path / "train.de").write_text("b\n" * num_german, encoding="utf-8")
    loading_fails(tmp_path, rf"train\.en has {num_english:,} lines and .*train\.de has {num_german:,}")


def test_a_side_that_is_there_packed_and_unpacked(tmp_path: Path) -> None:
    """One of them may be old, and paired with another version of the other side."""
    for name in ("train.en", "train.en.gz", "train.de.gz"):
        (tmp_path / name).write_bytes(b"")
    for path in (tmp_path, tmp_path / "train", tmp_path / "train.*"):
        loading_fails(path, r"train\.en exists plain and packed \(\.gz\): keep only one of them")


def test_one_side_of_a_parallel_text(tmp_path: Path) -> None:
    (tmp_path / "train.en").write_text("a\n", encoding="utf-8")
    loading_fails(tmp_path, r"train\.en has no counterpart: .*train\.de is missing")
    loading_fails(tmp_path / "train", r"train\.en has no counterpart: .*train\.de is missing")
    loading_fails(tmp_path / "train.en", r"one side of a parallel text: set data\.path to .*train\.$")


def test_a_folder_without_a_training_split_is_told_what_it_holds(tmp_path: Path) -> None:
    loading_fails(tmp_path, r"no training split that can be read: name it train\.jsonl.*contains no files")
    (tmp_path / "trian.jsonl").touch()
    (tmp_path / "test.jsonl").touch()
    loading_fails(tmp_path, r"contains 'test\.jsonl', 'trian\.jsonl'")


def test_a_split_that_is_there_twice(tmp_path: Path) -> None:
    folder_with(tmp_path, write_jsonl, ".jsonl", **GOOD, dev=[("v", "w")])
    loading_fails(tmp_path, r"the validation split more than once: .*validation\.jsonl or .*dev\.jsonl")
    (tmp_path / "dev.jsonl").unlink()
    write_csv(tmp_path / "train.csv", [("a", "b")])
    loading_fails(tmp_path, r"contains the train split more than once: .*train\.csv or .*train\.jsonl")


def test_one_file_is_not_two_sides(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    for other in ("a.txt", "./a.txt"):
        loading_fails(f"{tmp_path}/a.txt,{tmp_path}/{other}", r"names one file twice, '.*/a\.txt', so")


def test_a_file_that_is_not_a_corpus(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").touch()
    loading_fails(tmp_path / "corpus.txt", r"no extension that shows its format: use \.jsonl.*corpus\.de")


def test_a_name_that_nothing_has_is_answered_with_its_neighbours(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "corpus.jsonl", [("a", "b")])
    loading_fails(tmp_path / "corups.jsonl", r"no file or folder .*corups\.jsonl'.*mean '.*/corpus\.jsonl'\?")
    loading_fails(
        tmp_path / "nowhere" / "x.csv", r"It may be a folder, a file, a pattern such as .*builtin:primer"
    )
    loading_fails("opus_bokos", r"Did you mean 'opus_books'\?")


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_jsonl(tmp_path / "train.jsonl", [("a", "b")])

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root may read everything, so taking the right away is no test
    loading_fails(tmp_path, r"train\.jsonl cannot be read: Permission denied")


def test_options_of_the_hub_that_do_nothing_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder_with(tmp_path, write_jsonl, ".jsonl", **GOOD)
    load(tmp_path)
    assert caplog.text == ""
    load(tmp_path, name="de-en", revision="v1")
    assert "data.name (de-en) has no effect" in caplog.text
    assert "data.revision (v1) has no effect" in caplog.text
    assert f"{tmp_path} is on disk" in caplog.text


def test_source_and_target_must_differ(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.src and data\.tgt are both 'en'"):
        load(tmp_path, tgt="en")


def test_200_damaged_files_give_a_sound_corpus_or_one_sentence(tmp_path: Path) -> None:
    random_state = random.Random(20)
    messages = []
    for i in range(200):
        kind = random_state.choice(sorted(KINDS))
        write, suffix = KINDS[kind]
        folder = folder_with(tmp_path / str(i), write, suffix, train=[NASTY[j % 6] for j in range(30)])
        for path in folder.iterdir():
            content = bytearray(path.read_bytes())
            if random_state.random() < 0.3:
                del content[random_state.randrange(len(content)) :]
            else:
                content[random_state.randrange(len(content))] = random_state.randrange(256)
            path.write_bytes(content)
        try:
            corpus = load(folder, held_out_fraction=0.3)
        except DataError as error:
            messages.append(str(error))
        else:
            texts = [text for split in GOOD for pair in pairs_of(corpus, split) for text in pair]
            assert all(isinstance(text, str) for text in texts)
    assert 10 < len(messages) < 190
    assert not [message for message in messages if "\n" in message]
