"""Tables as people have them: other column names, other delimiters, no header; and two files named anyhow."""

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from mt.config.data import DataConfig
from mt.data.corpus import load_corpus, load_split, load_undivided
from mt.data.sources import files
from mt.errors import DataError

PAIRS = [
    ("Go.", "Geh."),
    ('"Stop!", he said; twice.', "„Halt“, sagte er | zweimal."),
    ("NA", "null"),
    *((f"line {i}", f"Zeile {i}") for i in range(40)),
]
CHARACTERS = {"comma": ",", "semicolon": ";", "pipe": "|", "tab": "\t"}


def load(path: Path | str, **fields: object) -> list[tuple[str, str]]:
    """All pairs of a corpus, in the order of the file for a file that is taken whole."""
    config = DataConfig.model_validate({"path": str(path), "src": "en", "tgt": "de", **fields})
    rows = load_undivided(config) or load_split(config, "test")
    return list(zip(rows["src"], rows["tgt"], strict=True))


def fails(path: Path | str, **fields: object) -> str:
    with pytest.raises(DataError) as caught:
        load(path, **fields)
    message = str(caught.value)
    assert "\n" not in message
    return message


def quoted(rows: list[tuple[str, ...]], delimiter: str) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=CHARACTERS[delimiter]).writerows(rows)
    return text.getvalue()


def write(path: Path, text: str) -> Path:
    content = text.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
@pytest.mark.parametrize("delimiter", CHARACTERS)
def test_the_delimiter_of_a_csv_with_a_header_is_found(tmp_path: Path, delimiter: str, ending: str) -> None:
    text = quoted([("id", "de", "en"), *(("7", de, en) for en, de in PAIRS)], delimiter)
    file = write(tmp_path / f"corpus{ending}", text)
    assert load(file) == PAIRS
    assert load(file, delimiter=delimiter) == PAIRS


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
@pytest.mark.parametrize("delimiter", CHARACTERS)
def test_a_csv_without_a_header(tmp_path: Path, delimiter: str, ending: str) -> None:
    file = write(tmp_path / f"corpus{ending}", quoted([(de, "x", en) for en, de in PAIRS], delimiter))
    assert load(file, columns="3,1", delimiter=delimiter) == PAIRS


@pytest.mark.parametrize("name", ["corpus.tsv", "corpus.TSV.gz", "deu.txt", "deu.txt.gz"])
def test_a_tsv_without_a_header_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    text = "".join(f"{en}\t{de}\tCC-BY 2.0\r\n" for en, de in PAIRS)
    file = write(tmp_path / name, text)
    assert load(file, columns="1,2", delimiter="tab") == PAIRS
    if "tsv" in name.lower():
        assert load(file, columns="1, 2") == PAIRS
    else:
        message = fails(file, columns="1,2")
        assert "no extension that shows its format" in message
        assert "data.delimiter" in message


def test_text_that_is_not_csv_has_no_quoting_whatever_the_delimiter(tmp_path: Path) -> None:
    file = write(tmp_path / "corpus.txt", '"one"; two|"eins\nthree|drei\n')
    assert load(file, columns="1,2", delimiter="pipe") == [('"one"; two', '"eins'), ("three", "drei")]


def test_other_column_names_in_each_kind_of_table(tmp_path: Path) -> None:
    rows = [{"english": en, "german": de, "en": "wrong", "de": "wrong"} for en, de in PAIRS]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    lines = [tuple(rows[0]), *(tuple(row.values()) for row in rows)]
    write(tmp_path / "c.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    write(tmp_path / "n.jsonl", "".join(json.dumps({"translation": row}) + "\n" for row in rows))
    write(tmp_path / "c.json", json.dumps(rows))
    write(tmp_path / "c.csv", quoted(lines, "semicolon"))
    write(tmp_path / "c.tsv", "".join("\t".join(line) + "\n" for line in lines))
    pq.write_table(pa.table(columns), tmp_path / "c.parquet")
    pq.write_table(pa.table({"translation": rows}), tmp_path / "n.parquet")
    for file in sorted(tmp_path.iterdir()):
        assert load(file, columns="english,german") == PAIRS, file
        assert load(file, columns="german, english", src="de", tgt="en") == [(t, s) for s, t in PAIRS], file
    pattern = f"{tmp_path}/c.*"
    assert load(pattern, columns="english,german") == PAIRS * 5


def test_a_parquet_file_that_names_a_column_twice(tmp_path: Path) -> None:
    names = ["en", "de", "en"]
    texts = [pa.array([text]) for text in ("first", "zuerst", "second")]
    pq.write_table(pa.Table.from_arrays(texts, names=names), tmp_path / "c.parquet")
    inner = pa.StructArray.from_arrays(texts, names=names)
    pq.write_table(pa.Table.from_arrays([inner], names=["translation"]), tmp_path / "n.parquet")
    for file in sorted(tmp_path.iterdir()):
        with pytest.raises(DataError, match=r"parquet has several columns 'en': rename all but one of them"):
            load(file)
    # One of them in the table, the other in a column of it.
    pq.write_table(pa.Table.from_arrays([*texts[:2], inner], names=["en", "de", "translation"]), file)
    assert load(file) == [("first", "zuerst")]


def test_a_parquet_file_with_two_columns_of_nested_pairs(tmp_path: Path) -> None:
    halves = [pa.array([{"en": "Go."}]), pa.array([{"de": "Geh."}])]
    pq.write_table(pa.Table.from_arrays(halves, names=["translation"] * 2), tmp_path / "c.parquet")
    with pytest.raises(DataError, match=r"parquet has several columns 'translation': rename all but one"):
        load(tmp_path / "c.parquet")


def test_names_in_a_header_may_have_spaces_around_and_within(tmp_path: Path) -> None:
    file = write(tmp_path / "c.csv", "nr ; English text ;German\n1;Go.;Geh.\n")
    assert load(file, columns="English text,German") == [("Go.", "Geh.")]


def test_the_splits_of_a_folder_have_the_same_columns(tmp_path: Path) -> None:
    for split in ("train", "val", "test"):
        write(tmp_path / f"{split}.txt", f"1|{split}|{split} auf Deutsch\n")
    config = DataConfig(path=str(tmp_path), src="en", tgt="de", columns="2,3", delimiter="pipe")
    corpus = load_corpus(config)
    assert corpus.train[0] == {"src": "train", "tgt": "train auf Deutsch"}
    assert corpus.validation[0] == {"src": "val", "tgt": "val auf Deutsch"}


def test_each_source_of_a_mix_has_columns_of_its_own(tmp_path: Path) -> None:
    own = write(
        tmp_path / "own.csv", "english;german\n" + "".join(f"{s} {i};{i}\n" for i in range(50) for s in "ab")
    )
    more = write(tmp_path / "more.txt", "1\tmore\tmehr\n")
    usual = write(tmp_path / "usual.tsv", "de\ten\nüblich\tusual\n")
    mix = f"{more} columns=2,3 delimiter=tab\n{usual}"
    config = DataConfig(
        path=str(own), src="en", tgt="de", columns="english,german", mix=mix, held_out_fraction=0.1
    )
    assert load_corpus(config).train[-2:] == {"src": ["more", "usual"], "tgt": ["mehr", "üblich"]}


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_two_files_named_anyhow(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    english = write(tmp_path / f"english sentences.txt{ending}", "".join(en + "\n" for en, _ in PAIRS))
    (tmp_path / "elsewhere").mkdir()
    german = write(tmp_path / "elsewhere" / f"deutsch{ending}", "".join(de + "\r\n" for _, de in PAIRS))
    assert load(f"{english},{german}") == PAIRS
    assert load(f"{german}, {english}") == [(de, en) for en, de in PAIRS]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load(f"~/{english.name},~/elsewhere/{german.name}") == PAIRS
    # As where a run that learnt from a table is scored on parallel text.
    assert load(f"{english},{german}", columns="2,1", delimiter="tab") == PAIRS


def test_a_file_with_a_comma_in_its_name_is_that_file(tmp_path: Path) -> None:
    assert load(write(tmp_path / "a.txt,b.jsonl", '{"en": "a", "de": "b"}\n')) == [("a", "b")]


def test_two_files_that_cannot_be_a_parallel_text(tmp_path: Path) -> None:
    english = write(tmp_path / "english.txt", "a\nb\n")
    message = fails(f"{english},{tmp_path}/germna.txt")
    assert f"there is no file '{tmp_path}/germna.txt'" in message
    write(tmp_path / "german.txt", "a\n")
    message = fails(f"{english},{tmp_path}/germna.txt")
    assert message.endswith(f"Did you mean '{tmp_path}/german.txt'?")
    assert "english.txt has 2 lines and" in fails(f"{english},{tmp_path}/german.txt")
    table = write(tmp_path / "test.csv", "en,de\na,b\n")
    message = fails(f"{table},{english}")
    assert "test.csv is a table, which has both" in message
    assert "part-*.csv" in message


def test_a_table_without_its_columns_says_what_was_found_and_what_would_work(tmp_path: Path) -> None:
    message = fails(write(tmp_path / "c.tsv", "Go, now.\tGeh.\nStop!\tHalt!\n"))
    assert "its columns are 'Go, now.', 'Geh.'" in message
    assert "If the first line is already a pair, give numbers: data.columns: 1,2" in message
    message = fails(write(tmp_path / "c.csv", "english;german\nGo.;Geh.\n"))
    assert (
        "its columns are 'english', 'german'. Did you mean 'english'? Set data.columns if they have "
        "other names" in message
    )
    message = fails(tmp_path / "c.csv", columns="english,deutsch")
    assert "no column 'deutsch', which data.columns names; its columns are 'english', 'german'" in message
    message = fails(tmp_path / "c.csv", columns="english,german", delimiter="tab")
    assert "its columns are 'english;german'" in message
    assert "split at each tab; data.delimiter may also be tab, comma, semicolon or pipe" in message
    message = fails(write(tmp_path / "c.jsonl", '{"english": "Go.", "german": "Geh."}\n'), columns="1,2")
    assert "no column '1', which data.columns names; its columns are 'english', 'german'" in message


def test_a_parquet_file_without_one_of_the_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"en": ["Go."], "translation": ["Geh."]}), tmp_path / "c.parquet")
    assert "no column 'de', which data.tgt names; its columns are 'en', 'translation'" in fails(
        tmp_path / "c.parquet"
    )


def test_a_column_without_a_name_is_not_what_was_meant(tmp_path: Path) -> None:
    file = write(tmp_path / "c.csv", ",english,german\n0,Go.,Geh.\n")
    assert "its columns are '', 'english', 'german'. Did you mean 'english'?" in fails(file)


def test_a_tsv_may_have_lines_of_line_ends(tmp_path: Path) -> None:
    file = write(tmp_path / "c.tsv", "\r\r\nen\tde\r\nGo.\tGeh.\r\n\r\r\nStop!\tHalt!\r\n")
    assert load(file) == [("Go.", "Geh."), ("Stop!", "Halt!")]


@pytest.mark.parametrize("rows", ["", "en;de\nGo.;Geh.\n"])
def test_a_line_of_line_ends_is_not_a_header(rows: str, tmp_path: Path) -> None:
    file = write(tmp_path / "c.csv", "\r\r\n" + rows)
    if rows:
        assert load(file) == [("Go.", "Geh.")]
    else:
        assert "c.csv is empty" in fails(file)


def test_numbers_of_columns_that_a_file_does_not_have(tmp_path: Path) -> None:
    file = write(tmp_path / "c.csv", "Go.;Geh.\n")
    message = fails(file, columns="1,2")
    assert (
        "c.csv, line 1: data.columns asks for column 2, but there is 1 cell, split at each comma" in message
    )
    assert "'Go.;Geh.'" in message
    assert "set data.delimiter: tab, comma, semicolon or pipe" in message
    assert load(file, columns="1,2", delimiter="semicolon") == [("Go.", "Geh.")]


def test_commas_within_sentences_do_not_become_columns_in_silence(tmp_path: Path) -> None:
    file = write(tmp_path / "c.csv", "Hello, you;Hallo, du\nGo.;Geh.\n")
    assert "line 2: found 1 cell, but the first line has 3 columns" in fails(file, columns="1,2")


def test_a_header_is_not_a_pair_where_columns_are_numbers(tmp_path: Path) -> None:
    for header in ("en\tde", "DE\tEN"):
        file = write(tmp_path / "c.tsv", f"{header}\nGo.\tGeh.\n")
        assert "line 1 names the columns" in fails(file, columns="1,2")


def test_a_column_may_be_called_by_a_number_where_the_language_is(tmp_path: Path) -> None:
    file = write(tmp_path / "c.tsv", "0\t1\nGo.\tGeh.\n")
    assert load(file, src="0", tgt="1") == [("Go.", "Geh.")]


@pytest.mark.parametrize("columns", ["english", "a,b,c", "a,", ",", "a,a", "0,1", "1,0", "1,1", ""])
def test_columns_that_are_not_two(columns: str) -> None:
    with pytest.raises(ValidationError, match=r"data\.columns"):
        DataConfig(path="p", src="en", tgt="de", columns=columns)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("columns=english", r"data\.mix: in .*columns must be two columns"),
        ("delimiter=;", r"data\.mix: .*delimiter="),
        ("delimiter=comma delimiter=tab", r"data\.mix: .*delimiter"),
        ("delimiter=dots", r"the delimiter must be one of auto, tab, comma, semicolon, pipe"),
    ],
)
def test_columns_of_a_mix_that_cannot_be_understood(words: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DataConfig(path="p", src="en", tgt="de", mix=f"more.csv {words}")


@pytest.mark.parametrize("name", ["c.csv.gz", "c.tsv.gz", "c.txt.gz", "two"])
def test_an_endless_line_is_refused_with_and_without_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1000)
    path: Path | str = write(tmp_path / name.replace("two", "two.gz"), "x" * 1_000_000)
    path = f"{path},{write(tmp_path / 'other.gz', 'x' * 1_000_000)}" if name == "two" else path
    for fields in ({}, {"columns": "1,2", "delimiter": "tab"}):
        if name != "c.txt.gz" or fields:
            assert "line 1 is longer than 1,000 bytes" in fails(path, **fields)


def test_a_column_may_have_a_slash_in_its_name(tmp_path: Path) -> None:
    rows = [json.dumps({"en/US": en, "de": de}) + "\n" for en, de in PAIRS]
    write(tmp_path / "train.jsonl", "".join(rows))
    fields = {"path": str(tmp_path), "src": "en/US", "tgt": "de", "held_out_fraction": 0.2}
    corpus = load_corpus(DataConfig.model_validate(fields))
    assert set(zip(corpus.train["src"], corpus.train["tgt"], strict=True)) < set(PAIRS)


def test_names_of_two_files_may_look_like_a_pattern_or_be_long_together(tmp_path: Path) -> None:
    for name in ("set[2]", "x" * 150):
        for language, side in (("en", 0), ("de", 1)):
            write(tmp_path / f"{name}-{language}.txt", "".join(pair[side] + "\n" for pair in PAIRS))
        assert load(f"{tmp_path}/{name}-en.txt,{tmp_path}/{name}-de.txt") == PAIRS


def test_a_first_row_without_a_translation_is_one_pair_without_text(tmp_path: Path) -> None:
    rows = [{"translation": None}, *({"translation": {"en": en, "de": de}} for en, de in PAIRS)]
    file = write(tmp_path / "corpus.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    fields = {"path": str(file), "src": "en", "tgt": "de", "held_out_fraction": 0.2}
    corpus = load_corpus(DataConfig.model_validate(fields))
    assert corpus.report.splits.train.dropped == {"the source is missing": 1}


def test_other_columns_of_a_parquet_file_are_not_read_to_name_them(tmp_path: Path) -> None:
    beyond = pa.array([2**62], pa.timestamp("us"))
    pq.write_table(pa.table({"english": ["a"], "german": ["b"], "when": beyond}), tmp_path / "c.parquet")
    assert "its columns are 'english', 'german', 'when'" in fails(tmp_path / "c.parquet")
    said = fails(tmp_path / "c.parquet", columns="english,when")
    assert "row 1: this is not text" in said
    assert said.endswith("Name two columns of text.")
