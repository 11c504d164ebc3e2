"""A large corpus is read once, and again whenever anything that decides it has changed."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mt.config.data import CleaningConfig, DataConfig
from mt.data import corpus as corpus_module
from mt.data import pair_table
from mt.data.corpus import Corpus, load_corpus

NUM_ROWS = 400


def keep_in_memory(monkeypatch: pytest.MonkeyPatch, num_pairs: int) -> None:
    for module in (corpus_module, pair_table):
        monkeypatch.setattr(module, "PAIRS_IN_MEMORY", num_pairs)


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keep_in_memory(monkeypatch, 100)
    monkeypatch.setenv("MT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def count_reading(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often a corpus was read, rather than found."""
    calls = []
    read = corpus_module._read

    def counted(*arguments: object) -> object:
        calls.append(1)
        return read(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(corpus_module, "_read", counted)
    return lambda: len(calls)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    write(folder / "train.jsonl", NUM_ROWS)
    write(folder / "test.jsonl", 5)
    return folder


def write(path: Path, count: int) -> None:
    rows = [{"en": f"sentence number {i}", "de": f"Satz Nummer {i}"} for i in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def config(path: object, **fields: object) -> DataConfig:
    return DataConfig.model_validate({"path": str(path), "src": "en", "tgt": "de", **fields})


def content(corpus: Corpus) -> object:
    splits = [(split["src"][:], split["tgt"][:]) for split in (corpus.train, corpus.validation, corpus.test)]
    return splits, corpus.shares, corpus.report


@pytest.mark.parametrize("path", ["folder", "builtin:primer", "builtin:reverse"])
def test_what_is_found_is_what_was_read(
    path: str, folder: Path, count_reading: Callable[[], int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = config(folder if path == "folder" else path, num_train_pairs=300)
    first, second = load_corpus(given), load_corpus(given)
    assert count_reading() == 1
    monkeypatch.setenv("MT_CACHE", str(tmp_path / "another"))
    keep_in_memory(monkeypatch, 10**9)
    uncached = load_corpus(given)
    assert count_reading() == 2
    assert content(first) == content(second) == content(uncached)
    assert not (tmp_path / "another").exists()


def test_whatever_could_matter_is_read_again(folder: Path, count_reading: Callable[[], int]) -> None:
    given = [
        config(folder),
        config(folder, num_train_pairs=300),
        config(folder, held_out_fraction=0.2),
        config(folder, src="de", tgt="en"),
        config(folder, mix=f"{folder / 'test.jsonl'} weight=2"),
        config(folder, mix=f"{folder / 'test.jsonl'} weight=3"),
        config("builtin:primer", num_train_pairs=300),
        config("builtin:primer", num_train_pairs=301),
    ]
    corpora = [content(load_corpus(each)) for each in given]
    assert count_reading() == len(given)
    assert all(one != other for i, one in enumerate(corpora) for other in corpora[:i])
    load_corpus(config(folder), CleaningConfig(max_characters=17))
    load_corpus(config(folder), CleaningConfig(max_characters=18))
    assert count_reading() == len(given) + 2


def test_a_corpus_that_changed_under_the_same_name_is_read_again(
    folder: Path, count_reading: Callable[[], int]
) -> None:
    load_corpus(config(folder))
    for name, old, new in (("train.jsonl", "number 7", "nUmber 7"), ("test.jsonl", "Satz", "satz")):
        file = folder / name
        before = file.stat()
        file.write_text(file.read_text().replace(old, new))
        # As long as before, and said to be as old.
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert file.stat().st_size == before.st_size
        corpus = load_corpus(config(folder))
        assert any(new in text for text in [*corpus.train["src"], *corpus.test["tgt"]])
    assert count_reading() == 3


def test_damage_is_noticed_and_mended(
    folder: Path, count_reading: Callable[[], int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = content(load_corpus(config(folder)))
    for number, name in enumerate(("train.arrow", "validation.arrow", "test.arrow", "facts.json"), start=2):
        [file] = (tmp_path / "cache").glob(f"*/{name}")
        damaged = bytearray(file.read_bytes())
        damaged[len(damaged) // 2] ^= 4
        file.write_bytes(damaged)
        caplog.clear()
        assert content(load_corpus(config(folder))) == expected
        assert "is damaged" in caplog.text
        assert count_reading() == number
