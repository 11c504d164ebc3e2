"""A few kilobytes that unpack to more than fits into memory are refused before they are unpacked whole."""

import csv
import gzip
from pathlib import Path

import pytest

from mt.config.data import DataConfig
from mt.data.corpus import load_corpus
from mt.data.sources import files
from mt.errors import DataError


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("train.jsonl.gz", '{"en": "a", "de": "b"}\n' + "x" * 2000, r"train\.jsonl\.gz, line 2"),
        ("train.en.gz", "a\n" * 3 + "x" * 1_000_000, r"train\.en\.gz, line 4"),
        ("train.tsv.gz", "en\tde\n" + "x" * 2000, r"train\.tsv\.gz, line 2"),
        ("train.json.gz", "[" + "\n" * 2 + "1,\n" * 2000, r"the JSON list in .*train\.json\.gz"),
    ],
)
def test_a_small_file_that_unpacks_to_an_endless_line_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, what: str
) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1000)
    (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    (tmp_path / "train.de").write_text("b\n" * 5)
    if name != "train.en.gz":
        (tmp_path / "train.de").unlink()
    with pytest.raises(DataError, match=what + " is longer than 1,000 bytes"):
        load_corpus(DataConfig(path=str(tmp_path), src="en", tgt="de"))


def test_a_quoted_cell_without_end_is_refused(tmp_path: Path) -> None:
    """Each line of it is short, so that the limit of a line does not help."""
    assert csv.field_size_limit() == files.MAX_LINE_BYTES
    limit = csv.field_size_limit(1000)
    try:
        (tmp_path / "train.csv").write_text('en,de\n"' + "x\n" * 2000)
        with pytest.raises(DataError, match=r"train\.csv, line \d+: .*field larger than"):
            load_corpus(DataConfig(path=str(tmp_path), src="en", tgt="de"))
    finally:
        csv.field_size_limit(limit)
