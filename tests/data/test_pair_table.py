"""A table of pairs gives back what was put in, from memory or from its file."""

import gc
import tempfile
from pathlib import Path

import pytest

from mt.data import pair_table
from mt.data.pair_table import PairTable

PAIRS = [(f"sentence {i} " + "x" * (i % 50), f"Satz {i} äöü") for i in range(3333)]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pair_table, "CHUNK_SIZE", 100)
    monkeypatch.setattr(pair_table, "PAIRS_IN_MEMORY", 500)
    monkeypatch.setenv("MT_CACHE", str(tmp_path / "cache"))


def filled(pairs: list[tuple[str, str]]) -> PairTable:
    table = PairTable()
    for pair in pairs:
        table.append(*pair)
    return table


def read(table: PairTable) -> list[tuple[str, str]]:
    dataset = table.to_dataset()
    assert dataset[len(dataset) - 1]["src"] == dataset["src"][-1]
    return list(zip(dataset["src"], dataset["tgt"], strict=True))


@pytest.mark.parametrize("count", [1, 100, 499, 500, 501, 600, 601, 3333])
def test_what_was_put_in_comes_out_in_its_order(count: int, tmp_path: Path) -> None:
    table = filled(PAIRS[:count])
    assert len(table) == count
    assert read(table) == PAIRS[:count]
    assert (tmp_path / "cache").exists() == (count > 500)


def test_a_table_may_grow_after_it_was_read() -> None:
    table = filled(PAIRS[:1234])
    first = table.to_dataset()
    for pair in PAIRS[1234:]:
        table.append(*pair)
    assert read(table) == PAIRS
    assert first["src"][:] == [src for src, _ in PAIRS[:1234]]


def test_the_file_has_no_name_and_outlives_its_table(tmp_path: Path) -> None:
    dataset = filled(PAIRS).to_dataset()
    gc.collect()
    assert list((tmp_path / "cache").iterdir()) == []
    assert dataset["tgt"][-1] == PAIRS[-1][1]


def test_the_fingerprint_is_of_the_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fingerprint = filled(PAIRS).fingerprint
    monkeypatch.setattr(pair_table, "PAIRS_IN_MEMORY", 10**9)
    assert filled(PAIRS).fingerprint == fingerprint
    assert filled(PAIRS[:-1]).fingerprint != fingerprint


def test_where_no_file_can_be_made_the_pairs_stay_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MT_CACHE", str(tmp_path / "file" / "cache"))
    assert read(filled(PAIRS)) == PAIRS
    assert caplog.text.count("the corpus stays in memory") == 1


def test_where_the_disk_fills_up_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = filled(PAIRS[:1000])
    assert table._file is not None
    monkeypatch.setattr(table, "_file", _Full(table._file))
    for pair in PAIRS[1000:]:
        table.append(*pair)
    assert read(table) == PAIRS
    assert "No space left on device" in caplog.text


def test_where_the_disk_was_full_before_the_first_byte_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make = tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **named: _Full(make(**named), room=0))
    assert read(filled(PAIRS)) == PAIRS
    assert "No space left on device" in caplog.text


class _Full:
    """A file on a disk with room for a few more bytes."""

    def __init__(self, file: object, room: int = 10) -> None:
        self._file = file
        self._room = room

    def write(self, data: memoryview) -> int:
        return int(self._file.write(bytes(data)[: self._room]))  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)
