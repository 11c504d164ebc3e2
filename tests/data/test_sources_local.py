"""Corpora on disk, also by a pattern and as tools leave them: each kind loads, or a sentence says why not."""

import gzip
import json
import logging
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mt.config.data import CleaningConfig, TokenizerConfig
from mt.data.corpus import Corpus, load_corpus
from mt.data.sources import hub
from mt.data.sources.find import check_sources, find_source, unread_files
from mt.data.tokenizers.external import external_tokenizer
from mt.errors import DataError
from tests.data.corpora import KINDS, Pairs, corpus, data_config, jsonl, pairs_of, parallel, parquet, write

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
GOOD: dict[str, Pairs] = {"train": NASTY, "validation": [("v", "w")], "test": [("t", "u"), ("t2", "u2")]}
PAIRS = [(f"a {number}", f"ein {number}") for number in range(60)]
ROWS = [{"en": en, "de": de} for en, de in PAIRS]


def load(path: Path | str, cleaning: CleaningConfig | None = None, **fields: object) -> Corpus:
    return load_corpus(data_config(path, held_out_fraction=0.2, **fields), cleaning or CleaningConfig())


def splits_of(path: Path | str) -> dict[str, Pairs]:
    return {split: pairs_of(rows) for split, rows in load(path).by_name().items()}


def num_pairs(path: Path) -> int:
    return sum(len(pairs) for pairs in splits_of(path).values())


def loading_fails(
    path: Path | str, message: str, cleaning: CleaningConfig | None = None, **fields: object
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(path, cleaning, **fields)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_each_kind_gives_back_the_very_texts_also_if_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for split, pairs in GOOD.items():
        write(tmp_path / "corpus:v1", corpus(kind, split, pairs))
    assert splits_of("corpus:v1") == GOOD
    if "parquet" not in kind:
        for path in list(Path("corpus:v1").iterdir()):
            path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        assert splits_of("corpus:v1") == GOOD  # A byte order mark is not text.
        for path in list(Path("corpus:v1").iterdir()):
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
        assert splits_of("corpus:v1") == GOOD


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_file_of_each_kind_whatever_its_columns_are_called(tmp_path: Path, kind: str) -> None:
    def read(name: str, **fields: object) -> Pairs:
        source = find_source(data_config(tmp_path / name, **fields))
        assert (source.kind, list(source.splits)) == ("files", ["train"])
        return [(str(src), str(tgt)) for part in source.splits["train"] for _, src, tgt in part.pairs()]

    first, second = corpus(kind, "c", NASTY), corpus(kind, "d", NASTY, ("english", "german"))
    write(tmp_path, first | second)
    assert [read(name) for name in first] == [NASTY] * len(first)  # One side of parallel text names both.
    swapped = [(tgt, src) for src, tgt in NASTY]
    if kind == "parallel text":
        assert read("d", src="german", tgt="english") == swapped
        return
    [named], [unnamed] = first, second
    assert read(unnamed, columns="english,german") == NASTY
    assert read(unnamed, columns="german, english") == swapped
    loading_fails(
        tmp_path / named, r"c\..* no column 'eng', .*data\.src .*'de'.*Did you mean 'en'\?", src="eng"
    )
    loading_fails(tmp_path / named, r"no column 'it', which data\.tgt names", tgt="it")


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_file_of_each_kind(tmp_path: Path, kind: str) -> None:
    for split in GOOD:
        write(tmp_path, corpus(kind, split, [] if split == "train" else [("v", "w")]))
    loading_fails(tmp_path, r"No pair of .*train.* can be trained on: there are no rows")
    write(tmp_path, corpus(kind, "train", [("a", "b")]) | corpus(kind, "validation", []))
    loading_fails(tmp_path, r"validation.* is empty")


def test_splits_go_by_several_names_in_any_case(tmp_path: Path) -> None:
    names = {
        "train": "Train training",
        "validation": "validation Valid val DEV development eval",
        "test": "TEST testing devtest",
    }
    for split, others in names.items():
        for name in others.split():
            for written, pairs in GOOD.items():
                write(tmp_path / name, parallel(name if written == split else written, pairs[:2]))
            assert splits_of(tmp_path / name) == {written: pairs[:2] for written, pairs in GOOD.items()}
    # Beside the usual name, some are those of another set.
    for name in ("Training", "development", "eval", "testing", "devtest"):
        write(tmp_path / "validation", parallel(name, PAIRS))
        assert len(load(tmp_path / "validation").train) == 2
        assert splits_of(tmp_path / "validation")["test"] == GOOD["test"]


def test_the_splits_of_a_folder_have_the_same_columns(tmp_path: Path) -> None:
    write(
        tmp_path, {f"{split}.txt": f"1|{split}|{split} auf Deutsch\n" for split in ("train", "val", "test")}
    )
    splits = load(tmp_path, columns="2,3", delimiter="pipe").by_name()
    assert [pairs_of(rows)[0][1] for rows in splits.values()] == [
        f"{split} auf Deutsch" for split in ("train", "val", "test")
    ]


def test_corpora_that_no_split_takes_are_named(tmp_path: Path) -> None:
    def unread() -> list[str]:
        return [said.removeprefix(f"{tmp_path}/") for said in unread_files(data_config(tmp_path))]

    write(tmp_path, {"train.jsonl": jsonl(ROWS), "devtset.jsonl": jsonl(ROWS[:1]), "facts.json": jsonl(ROWS)})
    assert unread() == ["devtset.jsonl is not read: name it validation.jsonl or test.jsonl."]
    (tmp_path / "devtset.jsonl").rename(tmp_path / "devtest.jsonl")
    write(tmp_path, {"Test.jsonl": jsonl(ROWS[:2]), "vaildation.jsonl": jsonl(ROWS[:1])})
    write(tmp_path, parallel("newstest2013", [("n", "m")]) | {"notes.csv": "page,remark\n1,long\n"})
    assert len(load(tmp_path).test) == 2
    assert unread() == [
        "devtest.jsonl is not read: name it validation.jsonl.",
        "newstest2013 is not read: name it validation.",
        "vaildation.jsonl is not read: name it validation.jsonl.",
    ]
    (tmp_path / "vaildation.jsonl").rename(tmp_path / "Validation.jsonl")
    assert unread()[0] == "devtest.jsonl is not read: score it with mt evaluate --data."
    (tmp_path / "devtest.jsonl").rename(tmp_path / "test.jsonl")
    loading_fails(tmp_path, r"the test split more than once: .*Test\.jsonl or .*test\.jsonl")


def test_a_small_file_that_unpacks_to_an_endless_line_is_refused(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "train.jsonl.gz", "wb", compresslevel=1) as file:
        for _ in range(260):
            file.write(b"[" * 2**20)
    loading_fails(tmp_path, "line 1 is longer than 268,435,456 bytes.* shorter lines")


def test_a_small_table_that_unpacks_to_very_long_texts_is_not_kept_in_memory(tmp_path: Path) -> None:
    rows = [{"en": "a" * length, "de": "b"} for length in (*[1_000_001] * 150, 1_000_000)]
    write(tmp_path, {"train.parquet": parquet(rows)})
    assert (tmp_path / "train.parquet").stat().st_size < 100_000
    check_sources(data_config(tmp_path))
    loading_fails(tmp_path, "too small to be split")
    write(tmp_path, {"train.parquet": parquet(rows[:-1])})
    loading_fails(tmp_path, "No pair .*: in 150 rows a side has over 1,000,000 characters")


def test_parquet_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    file = tmp_path / "train.parquet"
    texts = pa.array([b"a"] * 1500 + [b"\xfc"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"en": texts, "de": texts}), file)
    loading_fails(tmp_path, r"train\.parquet cannot be read")
    pq.write_table(pa.table({"qqen": ["a"], "de": ["b"]}), file, store_schema=False)
    file.write_bytes(file.read_bytes().replace(b"qqen", b"\xff\xfeen"))
    loading_fails(tmp_path, r"train\.parquet cannot be read")
    # A date that Python does not have.
    pq.write_table(pa.table({"en": pa.array([2**30], pa.date32()), "de": ["b"]}), file)
    loading_fails(tmp_path, r"train\.parquet")
    sources, targets = zip(*PAIRS, strict=True)
    pq.write_table(pa.table({"en": sources, "de": targets}), file)
    pq.write_table(pa.table({"en": ["a"], "de": [["b"]]}), tmp_path / "test.parquet")
    loading_fails(tmp_path, r"test\.parquet, row 1: the target is a list")


def test_a_check_reads_the_first_pairs_alone(tmp_path: Path) -> None:
    def check(path: Path | str, **fields: str) -> None:
        check_sources(data_config(path, **fields))

    rows = [{"en": "a dog", "de": "ein Hund"}, {"en": "a cat"}]
    write(tmp_path, {"rows.json": json.dumps(rows), "valid.jsonl": jsonl(rows), "train.jsonl": jsonl(ROWS)})
    check(tmp_path)
    check(tmp_path / "rows.json")
    with pytest.raises(DataError, match=r"valid\.jsonl has no column 'fr'"):
        check(tmp_path / "valid.jsonl", tgt="fr")
    with pytest.raises(DataError, match=r"data\.sources\.mix1: .*there is no file"):
        check(tmp_path, mix="nowhere")
    # A corpus on the Hub is left to training.
    check("someone/some-corpus", mix="wmt14")
    # Each split is looked at.
    write(tmp_path, {"valid.jsonl": jsonl([{"en": "a", "fr": "b"}])})
    with pytest.raises(DataError, match=r"valid\.jsonl has no column 'de'"):
        check(tmp_path)


def test_a_path_in_a_folder_that_exists_is_never_a_hub_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delattr(hub, "get_session")
    write(tmp_path / "corpora", parallel("broken", [("a", "b")]))
    loading_fails("~no_such_user/corpus", "there is no file.*no_such_user")
    loading_fails("corpora/brokn", r"no file or folder 'corpora/brokn'.*Did you mean 'corpora/broken'\?")
    loading_fails("mutli30k", r"Did you mean 'multi30k'\?")
    with pytest.raises(DataError, match="Did you mean"):
        check_sources(data_config("corpora/brokn"))
    with pytest.raises(DataError, match="there is no file 'corpora/brokn'"):
        external_tokenizer(TokenizerConfig(kind="file", path="corpora/brokn", shared=True), limit_seconds=1)


def test_names_from_before_hub_ids_had_a_namespace_are_still_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub, "hub_source", lambda hub_id, config: hub_id)
    ids = {"opus_books": "Helsinki-NLP/opus_books", "opus100": "Helsinki-NLP/opus-100"}
    ids |= {"opus-100": "Helsinki-NLP/opus-100", "iwslt2017": "IWSLT/iwslt2017"}
    ids |= {"multi30k": "bentrevett/multi30k", "wmt14": "wmt/wmt14", "wmt19": "wmt/wmt19", "a/b": "a/b"}
    found: dict[str, object] = {name: find_source(data_config(name)) for name in ids}
    assert found == ids


def test_bad_rows_are_counted_and_dropped_on_request_but_never_from_a_test_set(tmp_path: Path) -> None:
    bad = [b"only one cell\n", b"a\tb\tc\n", b"\xfc\tue\n", b"one more\n"]
    good = "".join(f"{en}\t{de}\n" for en, de in PAIRS).encode()
    write(tmp_path, {"train.tsv": b"".join([b"en\tde\n", bad[0], good, *bad[1:]])})
    loading_fails(
        tmp_path,
        r"train\.tsv, line 2: there are fewer cells .* \(1 instead of 2\); line 63: there are more .*; "
        r"line 64: the text is not UTF-8 .*; and 1 more\. .*cleaning\.skip_bad_rows=true",
    )
    skipping = CleaningConfig(skip_bad_rows=True)
    read = load(tmp_path, skipping)
    assert sum(map(len, read.by_name().values())) == len(PAIRS)
    assert read.report.splits["train"].dropped == {
        "there are fewer cells than in the first line": 2,
        "the text is not UTF-8": 1,
        "there are more cells than in the first line": 1,
    }
    examples = read.report.splits["train"].examples["there are fewer cells than in the first line"]
    assert examples == [["1 instead of 2", ""]] * 2
    write(tmp_path, {"test.jsonl": '{"en": "a", "de": "b"}\n{"en": "a"}\n{"en"\n[]\n'})
    loading_fails(
        tmp_path,
        r"line 2: the target is missing; line 3: .*not complete JSON.*; line 4: [^;]*comparable",
        skipping,
    )


@pytest.mark.parametrize(("rows", "lines", "is_warned_of"), [(6, 0, True), (5, 0, False), (6, 6, False)])
def test_rows_that_a_quotation_mark_swallows_are_warned_of(
    rows: int, lines: int, is_warned_of: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A cell may have lines, whose commas are text; where most look like rows, they may be some."""
    write(tmp_path, {"train.csv": 'en,de\n"No,b\n' + "c,d\n" * rows + "text\n" * lines + 'Yes",b\n'})
    with caplog.at_level(logging.WARNING):
        check_sources(data_config(tmp_path / "train.csv"))
    assert ("train.csv, lines 2 to 9 are one cell, but look like rows" in caplog.text) == is_warned_of


def test_folders_as_tools_leave_them(tmp_path: Path) -> None:
    # A clone of a repository on the Hub.
    clone, table = tmp_path / "clone", parquet(ROWS)
    write(clone, {"README.md": "", "data/train-00000-of-00001.parquet": table})
    write(clone, {".cache/train-00000-of-00001.parquet": table})
    assert num_pairs(clone) == len(PAIRS)
    # Two configurations of it.
    write(clone, {"small/train.parquet": table, "large/train.parquet": table})
    loading_fails(clone, "several corpora.*clone/data, .*clone/large, .*clone/small")
    # datasets.save_to_disk
    dataset = datasets.Dataset.from_list(ROWS)
    dataset.save_to_disk(str(tmp_path / "one"))
    assert num_pairs(tmp_path / "one") == len(PAIRS)
    splits = {"train": 60, "test": 5, "dev": 4, "validation": 3}
    parts = {name: dataset.select(range(count)) for name, count in splits.items()}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "splits"))
    assert [len(rows) for rows in load(tmp_path / "splits").by_name().values()] == [60, 3, 5]
    # An unpacked archive of OPUS.
    opus = tmp_path / "opus"
    write(
        opus, parallel("Books.de-en", PAIRS) | {"README": "x\n", "LICENSE": "x\n", "Books.de-en.ids": "x\n"}
    )
    assert num_pairs(opus) == len(PAIRS)
    write(opus, parallel("Tatoeba.de-en", PAIRS))
    loading_fails(opus, r"several corpora.*Books\.de-en, .*Tatoeba\.de-en")
    loading_fails(tmp_path, r"several corpora.*/one, .*/splits")
