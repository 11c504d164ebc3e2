"""Tables as people have them: other column names, other delimiters, no header; and two files named anyhow."""

import csv
import gzip
import io
import json
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from mt.config.data import DataConfig
from mt.data.corpus import load_corpus, load_parts, load_split
from mt.data.sources.find import find_source
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
    source = find_source(config)
    rows = load_parts(source.splits["train"]) if source.kind == "files" else load_split(config, "test")
    return list(zip(rows["src"], rows["tgt"], strict=True))


def quoted(rows: list[tuple[str, ...]], delimiter: str) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=CHARACTERS[delimiter]).writerows(rows)
    return text.getvalue()


def write(path: Path, text: str) -> Path:
    content = text.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


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


@pytest.mark.parametrize("columns", ["english", "a,b,c", "a,", ",", "a,a", "0,1", "1,0", "1,1", ""])
def test_columns_that_are_not_two(columns: str) -> None:
    with pytest.raises(ValidationError, match=r"data\.columns"):
        DataConfig(path="p", src="en", tgt="de", columns=columns)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
@pytest.mark.parametrize("delimiter", CHARACTERS)
def test_a_csv_with_each_delimiter_with_and_without_a_header(
    tmp_path: Path, delimiter: str, ending: str
) -> None:
    rows: list[tuple[str, ...]] = [("7", de, en) for en, de in PAIRS]
    file = write(tmp_path / f"named{ending}", quoted([("id", " de", "en "), *rows], delimiter))
    assert load(file) == load(file, delimiter=delimiter) == PAIRS
    file = write(tmp_path / f"numbered{ending}", quoted(rows, delimiter))
    assert load(file, columns="3,2", delimiter=delimiter) == PAIRS


def test_a_wrong_name_among_very_many_columns_is_reported_in_a_moment(tmp_path: Path) -> None:
    file = write(tmp_path / "wide.csv", ",".join(f"column{i}" for i in range(20_000)) + "\n")
    started = time.process_time()
    with pytest.raises(DataError, match=r"no column 'en'.* 'column19' and 19980 more\."):
        load(file)
    assert time.process_time() - started < 4
