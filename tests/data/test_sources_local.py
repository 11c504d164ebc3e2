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

from mt.config.data import CleaningConfig, DataConfig, TokenizerConfig
from mt.data.corpus import Corpus, load_corpus, load_split
from mt.data.sources import hub
from mt.data.sources.find import check_sources, unread_files
from mt.data.suspicions import sample_of, text_warnings
from mt.data.text_form import TextForm
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


@pytest.mark.parametrize("name", ["validation", "Valid", "val", "DEV", "eval"])
def test_the_validation_split_goes_by_several_names_in_any_case(tmp_path: Path, name: str) -> None:
    folder_with(tmp_path, write_parallel, "", train=[("a", "b")], **{name: [("v", "w")]}, test=[("t", "u")])
    assert pairs_of(load(tmp_path), "validation") == [("v", "w")]


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "tsv", "parallel text"])
def test_a_byte_order_mark_is_not_text(tmp_path: Path, kind: str) -> None:
    write, suffix = KINDS[kind]
    folder_with(tmp_path, write, suffix, **GOOD)
    for path in tmp_path.iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert pairs_of(load(tmp_path), "test") == GOOD["test"]


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


def test_parquet_text_that_is_not_utf8_is_named_with_its_row(tmp_path: Path) -> None:
    texts = pa.array([b"a"] * 1500 + [b"\xfc"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"en": texts, "de": texts}), tmp_path / "train.parquet")
    loading_fails(tmp_path, r"train\.parquet, row 1501: the text is not UTF-8")


def test_both_sides_of_a_parallel_text_are_needed_once(tmp_path: Path) -> None:
    write_parallel(tmp_path / "train", [(f"a {i}", f"b {i}") for i in range(100)])
    # One side names both.
    sides = [load(tmp_path / name, held_out_fraction=0.2) for name in ("train.de", "train")]
    assert pairs_of(sides[0]) == pairs_of(sides[1])


def test_corpora_that_no_split_takes_are_named(tmp_path: Path) -> None:
    folder_with(tmp_path, write_jsonl, ".jsonl", train=PAIRS, Test=GOOD["test"], devtest=[("v", "w")])
    write_jsonl(tmp_path / "vaildation.jsonl", [("v", "w")])
    write_parallel(tmp_path / "newstest2013", [("n", "m")])
    (tmp_path / "notes.csv").write_text("page,remark\n1,long\n", encoding="utf-8")
    assert pairs_of(load(tmp_path), "test") == GOOD["test"]
    data = DataConfig(path=str(tmp_path), src="en", tgt="de")
    assert [said.removeprefix(f"{tmp_path}/") for said in unread_files(data)] == [
        "devtest.jsonl is not read: name it validation.jsonl.",
        "newstest2013 is not read: name it validation.",
        "vaildation.jsonl is not read: name it validation.jsonl.",
    ]
    (tmp_path / "vaildation.jsonl").rename(tmp_path / "Validation.jsonl")
    assert "devtest.jsonl is not read: score it with mt evaluate" in next(unread_files(data))
    write_jsonl(tmp_path / "training.jsonl", [("v", "w")])  # The usual name comes first.
    assert pairs_of(load(tmp_path)) == PAIRS
    (tmp_path / "devtest.jsonl").rename(tmp_path / "test.jsonl")
    loading_fails(tmp_path, r"the test split more than once: .*Test\.jsonl or .*test\.jsonl")


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
    loading_fails("~no_such_user/corpus", "there is no file.*no_such_user")
    loading_fails("corpora/brokn", r"no file or folder 'corpora/brokn'.*Did you mean 'corpora/broken'\?")
    config = DataConfig(path="corpora/brokn", src="en", tgt="de")
    with pytest.raises(DataError, match="Did you mean"):
        check_sources(config)
    with pytest.raises(DataError, match="there is no file 'corpora/brokn'"):
        external_tokenizer(TokenizerConfig(kind="file", path="corpora/brokn", shared=True), limit_seconds=1)


PAIRS = [(f"a {number}", f"ein {number}") for number in range(60)]
JSONL = "".join(json.dumps({"en": en, "de": de}) + "\n" for en, de in PAIRS)


def num_pairs(corpus: Corpus) -> int:
    return len(corpus.train) + len(corpus.validation) + len(corpus.test)


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


def test_rows_that_a_quotation_mark_swallows_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A cell may have lines, whose commas are text; where most look like rows, they may be some."""
    file = tmp_path / "train.csv"
    file.write_text('en,de\n"No,b\n' + "c,d\n" * 8 + 'Yes",b\n', encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        check_sources(DataConfig(path=str(file), src="en", tgt="de"))
    assert "train.csv, lines 2 to 11 are one cell, but look like rows" in caplog.text


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
    def warnings(*, unescape_html: bool = False) -> str:
        form = TextForm(unescape_html=unescape_html)
        return "\n".join(text_warnings({"train": sample_of(load(tmp_path).train, form)}))

    named = [(f"Tom &amp; Ann &quot;met&quot; {number}.", "Er sagte &quot;ja&quot;.") for number in range(9)]
    write_parallel(tmp_path / "train", PAIRS + named)
    assert "% of the lines of the train split have HTML's names of characters, such as &amp;" in warnings()
    assert "cleaning.unescape_html" in warnings()
    # It is not advised where it is set, though what is held out is read as it is.
    assert warnings(unescape_html=True) == ""
    pairs = load(tmp_path, CleaningConfig(unescape_html=True)).train
    assert any(text.startswith('Tom & Ann "met" ') for text in pairs["src"])
    assert 'Er sagte "ja".' in pairs["tgt"]
    assert not any("&amp;" in text for text in pairs["src"])
    write_parallel(tmp_path / "train", [*PAIRS, *[("<url>http://x</url>", "<p>")] * 3] * 3)
    assert "tags, such as <p>" in warnings()
    write_parallel(tmp_path / "train", PAIRS * 3)
    assert warnings() == ""
