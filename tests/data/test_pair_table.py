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


@pytest.mark.parametrize("count", [1, 500, 501, 3333])
def test_what_was_put_in_comes_out_in_its_order(count: int, tmp_path: Path) -> None:
    table = filled(PAIRS[:count])
    assert len(table) == count
    assert read(table) == PAIRS[:count]
    assert (tmp_path / "cache").exists() == (count > 500)


def test_the_file_has_no_name_and_outlives_its_table(tmp_path: Path) -> None:
    dataset = filled(PAIRS).to_dataset()
    gc.collect()
    assert list((tmp_path / "cache").iterdir()) == []
    assert dataset["tgt"][-1] == PAIRS[-1][1]


def test_where_no_file_can_be_made_the_pairs_stay_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MT_CACHE", str(tmp_path / "file" / "cache"))
    assert read(filled(PAIRS)) == PAIRS
    assert caplog.text.count("the corpus stays in memory") == 1


@pytest.mark.parametrize("room", [0, 30_000])
def test_where_the_disk_is_full_nothing_is_lost(
    room: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make = tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **named: _Full(make(**named), room))
    assert read(filled(PAIRS)) == PAIRS
    assert "No space left on device" in caplog.text


class _Full:
    """A file on a disk with room for so many bytes."""

    def __init__(self, file: object, room: int) -> None:
        self._file = file
        self._room = room

    def write(self, data: memoryview) -> int:
        written = int(self._file.write(bytes(data)[: self._room]))  # type: ignore[attr-defined]
        self._room -= written
        return written

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)
