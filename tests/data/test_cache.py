"""What takes long is computed once, appears whole, and is made again where it is damaged or out of date."""

import errno
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

import mt.data.cache
import mt.data.chunks
import mt.data.prepare
from mt.config.config import Config
from mt.config.data import CleaningConfig, TokenizerConfig
from mt.data import corpus as corpus_module
from mt.data.batches import alignment, dataset
from mt.data.batches.alignment import align
from mt.data.batches.pairs import EncodedPairs, EncodedSentences
from mt.data.batches.sampler import Share
from mt.data.cache import cache_folder, cached
from mt.data.corpus import Corpus, PairTable, load_corpus
from mt.data.prepare import Prepared, prepare
from mt.data.tokenizers.train import train_tokenizer
from mt.errors import DataError
from mt.run_directory import RunDirectory
from mt.sides import Sides
from tests.data.corpora import data_config, jsonl, pairs_of, parquet, write
from tests.fixture_types import MakeConfig

KEY = {"what": "text", "number": 7}


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(mt.data.cache, "MANY_PAIRS", 50)
    monkeypatch.setattr(corpus_module, "CHUNK_SIZE", 20)
    monkeypatch.setattr(mt.data.chunks, "CHUNK_SIZE", 20)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The results that were computed and not found, in order; the validation pairs always are."""
    notes: list[str] = []
    for module, name in (
        (corpus_module, "_read"),
        (dataset, "write_pairs"),
        (alignment, "_aligned"),
    ):
        original = getattr(module, name)

        def noted(*arguments: Any, original: Any = original, name: str = name, **more: Any) -> Any:
            notes.append(name)
            return original(*arguments, **more)

        monkeypatch.setattr(module, name, noted)
    return notes


def get(key: object, text: str, num_pairs: int = 100) -> str:
    """The text of an entry, which is ``text`` where it is made."""

    def fill(folder: Path) -> int:
        (folder / "text").write_text(text)
        (folder / "more").write_text("more of it")
        return num_pairs

    return cached(key, fill, lambda folder: (folder / "text").read_text())


def entries() -> list[Path]:
    return sorted((cache_folder() / "data").iterdir())


def test_an_entry_is_found_by_an_equal_key_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert get(KEY, "first") == get({"number": 7, "what": "text"}, "again") == "first"
    for other in ({**KEY, "number": 8}, {**KEY, "number": "7"}, {"what": "text"}, None, [KEY]):
        assert get(other, "other") == "other"
    for library in ("", "datasets", "numpy", "pyarrow", "tokenizers"):
        with monkeypatch.context() as patch:
            patch.setattr(mt.data.cache, "version", lambda name, newer=library: f"0.{name == newer}")
            assert get(KEY, f"of a newer {library}") == f"of a newer {library}"
    monkeypatch.setattr(mt.data.cache, "RECIPE_VERSION", 1000)
    assert get(KEY, "of another recipe") == "of another recipe"


def test_what_is_not_worth_keeping_leaves_nothing() -> None:
    assert [get(KEY, text, num_pairs=50) for text in ("one", "two")] == ["one", "two"]
    assert entries() == []
    assert [get(KEY, text, num_pairs=51) for text in ("three", "four")] == ["three", "three"]


def test_a_flipped_bit_a_cut_and_a_missing_file_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    damages: list[Callable[[bytes], bytes]] = [
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: data[:-2],
        lambda data: b"",
    ]
    for name in ("text", "more", "entry.json"):
        for number, damage in enumerate(damages):
            get(KEY, "sound")
            file = entries()[0] / name
            file.write_bytes(damage(file.read_bytes()))
            caplog.clear()
            assert get(KEY, f"again {number}") == f"again {number}"
            assert "is damaged" in caplog.text
    (entries()[0] / "text").unlink()
    assert get(KEY, "mended") == "mended"


def test_of_two_writers_the_first_wins_and_both_have_a_result() -> None:
    def slow(folder: Path) -> bool:
        (folder / "text").write_text("slow")
        assert get(KEY, "quick") == "quick"
        return True

    assert cached(KEY, slow, lambda folder: (folder / "text").read_text()) == "slow"
    assert get(KEY, "late") == "quick"
    assert len(entries()) == 1


def test_what_fails_leaves_nothing() -> None:
    def fail(folder: Path) -> bool:
        (folder / "text").write_text("half")
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        cached(KEY, fail, lambda folder: None)
    assert entries() == []


def test_only_what_is_unused_is_removed() -> None:
    for number in range(3):
        get(number, str(number))
    by_number = {json.loads((path / "entry.json").read_text())["key"][0]: path for path in entries()}
    # The cache is in a folder that may hold other things.
    not_ours = cache_folder() / "photos"
    not_ours.mkdir()
    for path, num_days in ((by_number[0], 31), (by_number[1], 31), (by_number[2], 29), (not_ours, 31)):
        opened = time.time() - num_days * 24 * 3600
        for file in (*path.iterdir(), path):
            os.utime(file, (opened, opened))
    get(1, "found")
    before = set(entries())
    get(3, "new")
    assert before - set(entries()) == {by_number[0]}
    assert not_ours.exists()


def test_what_a_killed_process_left_is_removed_after_a_day() -> None:
    get(KEY, "text")
    for name, num_hours in ((".old.making-x", 25), (".new.making-y", 23)):
        folder = cache_folder() / "data" / name
        folder.mkdir()
        left = time.time() - num_hours * 3600
        os.utime(folder, (left, left))
    get({}, "more")
    assert [path.name for path in entries() if path.name[0] == "."] == [".new.making-y"]


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MT_CACHE", "~/here")
    assert cache_folder() == tmp_path / "here"
    monkeypatch.delenv("MT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "mt"
    # A relative path is ignored, as the specification says.
    for folder in ("", "xdg"):
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
        assert cache_folder() == tmp_path / ".cache" / "mt"


@pytest.mark.parametrize("count", [0, 1, 20, 333])
def test_a_table_gives_back_what_was_put_in(count: int, tmp_path: Path) -> None:
    pairs = [(f"sentence {i} " + "x" * (i % 50), f"Satz {i} äöü") for i in range(count)]
    table = PairTable.write(tmp_path / "table", pairs)
    assert table.num_pairs == count
    assert pairs_of(table.load()) == pairs


def numbered(count: int) -> list[dict[str, str]]:
    return [{"en": f"sentence number {i}", "de": f"Satz Nummer {i}"} for i in range(count)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {f"{name}.jsonl": jsonl(numbered(count)) for name, count in (("train", 400), ("test", 5))}
    return write(tmp_path / "corpus", files)


def content(corpus: Corpus) -> object:
    return [split[:] for split in corpus.by_name().values()], corpus.shares, corpus.report


@pytest.mark.parametrize("path", ["folder", "builtin:primer", "builtin:reverse"])
def test_the_corpus_that_is_found_is_what_was_read(path: str, folder: Path, made: list[str]) -> None:
    given = data_config(folder if path == "folder" else path, num_train_pairs=300)
    assert content(load_corpus(given)) == content(load_corpus(given))
    assert made == ["_read"]


def test_whatever_could_matter_is_read_again(folder: Path, made: list[str]) -> None:
    given = [
        data_config(folder),
        data_config(folder, num_train_pairs=300),
        data_config(folder, held_out_fraction=0.2),
        data_config(folder, src="de", tgt="en"),
        data_config(folder, mix=f"{folder / 'test.jsonl'} weight=2"),
        data_config(folder, mix=f"{folder / 'test.jsonl'} weight=3"),
        data_config("builtin:primer", num_train_pairs=300),
        data_config("builtin:primer", num_train_pairs=301),
    ]
    corpora = [content(load_corpus(each)) for each in given]
    assert len(made) == len(given)
    assert all(one != other for i, one in enumerate(corpora) for other in corpora[:i])
    load_corpus(data_config(folder), CleaningConfig(max_characters=17))
    load_corpus(data_config(folder), CleaningConfig(max_characters=18))
    assert len(made) == len(given) + 2


def test_a_corpus_that_changed_under_the_same_name_is_read_again(folder: Path, made: list[str]) -> None:
    load_corpus(data_config(folder))
    for name, old, new in (("train.jsonl", "number 7", "nUmber 7"), ("test.jsonl", "Satz", "satz")):
        file = folder / name
        before = file.stat()
        file.write_text(file.read_text().replace(old, new))
        # As long as before, and said to be as old.
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        corpus = load_corpus(data_config(folder))
        assert any(new in text for text in [*corpus.train["src"], *corpus.test["tgt"]])
    assert len(made) == 3
    # The same bytes as another kind of file.
    write(folder, {"train.tsv": "en\tde\n" + "".join(f'"{i}"\tb\n' for i in range(60))})
    (folder / "train.jsonl").unlink()
    assert load_corpus(data_config(folder, held_out_fraction=0.4)).train["src"][0][0] == '"'
    (folder / "train.tsv").rename(folder / "train.csv")
    assert load_corpus(data_config(folder, held_out_fraction=0.4)).train["src"][0][0] != '"'
    for word in ("one", "two"):
        rows = [{"en": f"{word} {i}", "de": word} for i in range(60)]
        datasets.Dataset.from_list(rows).save_to_disk(folder / "saved")
        saved = load_corpus(data_config(folder / "saved", held_out_fraction=0.4))
        assert set(saved.train["tgt"]) == {word}


def test_a_corpus_that_changes_while_it_is_read_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = corpus_module._read

    def read_and_changed(*arguments: Any) -> Any:
        report = read(*arguments)
        (folder / "test.jsonl").write_text('{"en": "new", "de": "neu"}')
        return report

    monkeypatch.setattr(corpus_module, "_read", read_and_changed)
    with pytest.raises(DataError, match="changed while it was read: start again"):
        load_corpus(data_config(folder))


def _fill_up_after(num_pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk of the cache has room for so many pairs of each table."""
    write = PairTable.write

    def write_if_there_is_room(file: Path, pairs: Iterable[tuple[str, str]]) -> PairTable:
        if cache_folder() not in file.parents:
            return write(file, pairs)
        write(file, islice(pairs, num_pairs))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))

    monkeypatch.setattr(PairTable, "write", write_if_there_is_room)


@pytest.mark.parametrize(
    "kind", ["", "train.jsonl", "c.csv", "c.parquet", "text", "saved", "builtin:primer", "builtin:reverse"]
)
def test_a_full_disk_of_the_cache_loses_no_pair(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = numbered(400)
    write(folder, {f"text.{side}": "\n".join(row[side] for row in rows) for side in ("en", "de")})
    write(folder, {"c.csv": "en,de\n" + "".join(f"text {i},Text {i}\n" for i in range(400))})
    write(folder, {"c.parquet": parquet(rows)})
    datasets.Dataset.from_list(rows).save_to_disk(folder / "saved")
    caplog.clear()
    path = kind if kind.startswith("builtin") else folder / kind
    given = data_config(path, mix=f"{folder}/c.csv weight=2", num_train_pairs=300)
    monkeypatch.setattr(mt.data.cache, "MANY_PAIRS", 10_000)
    cleaning = CleaningConfig(remove_duplicates=True, max_characters=30)
    expected = content(load_corpus(given, cleaning))
    _fill_up_after(70, monkeypatch)
    assert content(load_corpus(given, cleaning)) == expected
    [warning] = caplog.messages
    assert "No space left on device" in warning


def test_ids_that_a_full_disk_does_not_take_are_an_error(tmp_path: Path) -> None:
    sentence = datasets.Dataset.from_dict({"src": ["a"], "tgt": ["b"]})
    tokenizer = train_tokenizer(["a b"], TokenizerConfig(min_frequency=1))
    (tmp_path / "tgt_ids").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        dataset.write_pairs(tmp_path, sentence, Sides(tokenizer, tokenizer), max_length=9, shares=())


@pytest.fixture
def prepared(tmp_path: Path) -> Callable[[Config], Prepared]:
    """Prepares a config in a run directory of its own."""
    numbers: Iterator[int] = iter(range(100))

    def run(config: Config) -> Prepared:
        directory = RunDirectory(tmp_path / f"run-{next(numbers)}")
        directory.path.mkdir()
        return prepare(config, directory, resuming=False)

    return run


@pytest.mark.parametrize("length", [20, 80])
def test_a_run_records_what_its_corpus_is(
    length: int,
    folder: Path,
    tmp_path: Path,
    prepared: Callable[[Config], Prepared],
    make_config: MakeConfig,
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = [("a b", "a b c d")] * 5 + [("1 2", "..."), ("a " * 16, "b"), ("a", "\u200b")]
    example = "e" * length
    dev = [
        ("s" * 19, "x"),
        ("l" * 81, "x"),
        (example, "x"),
        ("too " * 16, "x"),
        ("A later example of it.", "x"),
    ]
    for name, pairs in (("train", rows), ("dev", dev)):
        write(folder, {f"{name}.jsonl": jsonl({"en": en, "de": de} for en, de in pairs)})
    with caplog.at_level("INFO", "mt"):
        prepared(make_config(f"data.path={folder}", "data.held_out_fraction=0.4"))
    recorded = json.loads((tmp_path / "run-0/corpus.json").read_text())
    assert recorded["example"] == example
    assert recorded["dropped_in_training"] == {"empty": 0, "too long": 1}
    assert recorded["vocabulary_sizes"] == {"src": 4 + len("ab12"), "tgt": 4 + len("abcd") + len([".", "￭."])}
    assert recorded["target_ratio"] == pytest.approx((5 * 5 + 4) / (6 * 3))
    assert recorded["lines_without_letters"] == 1
    assert "6 training pairs, 5 validation, 5 test; vocabulary 8 source, 10 target" in caplog.text
    assert "1 validation pair longer than data.max_length: translated in parts" in caplog.text
    assert "of 8 training pairs, 2 were dropped" in caplog.text


def assert_equal(one: Prepared, other: Prepared) -> None:
    for left, right in ((one.train.src, other.train.src), (one.train.tgt, other.train.tgt)):
        assert np.array_equal(left.ids, right.ids)
        assert np.array_equal(left.offsets, right.offsets)
        assert np.array_equal(left.lengths, right.lengths)
    assert np.array_equal(one.train.src_positions, other.train.src_positions)  # type: ignore[arg-type]
    assert one.corpus.report == other.corpus.report


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("training.seed=5", ["write_pairs"]),
        ("data.hub_timeout_seconds=5", ["write_pairs"]),
        ("data.max_length=8", ["write_pairs", "write_pairs", "_aligned"]),
        ("tokenizer.max_size=20", ["write_pairs", "write_pairs", "_aligned"]),
        ("cleaning.max_characters=20", ["_read", "write_pairs", "write_pairs", "_aligned"]),
    ],
)
def test_each_option_that_changes_a_result_and_no_other_makes_it_again(
    override: str,
    expected: list[str],
    make_config: MakeConfig,
    prepared: Callable[[Config], Prepared],
    made: list[str],
) -> None:
    prepared(make_config("training.guided_alignment=0.1"))
    assert made == ["_read", "write_pairs", "write_pairs", "_aligned"]
    made.clear()
    prepared(make_config("training.guided_alignment=0.1", override))
    assert made == expected


def test_the_same_pairs_with_other_weights_or_another_tokenizer_are_encoded_again() -> None:
    pairs = datasets.Dataset.from_dict({"src": ["a b"] * 60, "tgt": ["b"] * 60})
    small, large = (train_tokenizer([text], TokenizerConfig(min_frequency=1)) for text in ("a", "a b"))
    for weight in (1.0, 2.0):
        for tokenizers in (Sides(small, small), Sides(small, large), Sides(large, small)):
            shares = [Share(60, weight)]
            encoded, _ = dataset.encode_pairs(pairs, tokenizers, max_length=9, shares=shares)
            assert encoded.shares == tuple(shares)
            expected = tokenizers[0].encode("a b"), tokenizers[1].encode("b")
            assert (encoded.src[0].tolist(), encoded.tgt[0].tolist()) == expected


def test_the_same_sources_with_other_targets_are_aligned_again() -> None:
    src = EncodedSentences.of([[5, 6]] * 60)
    for length in (1, 2):
        places = align(EncodedPairs(src, EncodedSentences.of([[7] * length] * 60)))
        assert len(places) == 60 * length


def test_a_cache_that_cannot_be_written_costs_a_warning_only(
    make_config: MakeConfig,
    prepared: Callable[[Config], Prepared],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    guided = make_config("training.guided_alignment=0.1")
    expected = prepared(guided)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MT_CACHE", str(tmp_path / "file" / "cache"))
    caplog.clear()
    assert_equal(prepared(guided), expected)
    assert "cannot be used" in caplog.text
