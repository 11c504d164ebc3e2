"""Corpora of many files by a pattern: what is read, in which order, and the answer to each mistake."""

import json
from pathlib import Path

import pytest

from mt.config.data import DataConfig
from mt.data.corpus import Corpus, load_corpus, load_parts
from mt.data.sources.find import find_source
from mt.errors import DataError

FRACTION = 0.2


def load(path: Path | str) -> Corpus:
    return load_corpus(DataConfig(path=str(path), src="en", tgt="de", held_out_fraction=FRACTION))


def write_table(path: Path, numbers: range) -> None:
    rows = [json.dumps({"en": f"sentence {i}", "de": f"Satz {i}"}) for i in numbers]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def write_parallel(stem: Path, numbers: range) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    for language, word in (("en", "sentence"), ("de", "Satz")):
        text = "".join(f"{word} {i}\n" for i in numbers)
        stem.with_name(f"{stem.name}.{language}").write_text(text, encoding="utf-8")


def numbers_of(corpus: Corpus) -> list[int]:
    """The numbers of the sentences that are trained on, where each target has that of its source."""
    numbers = [int(text.split()[1]) for text in corpus.train["src"]]
    assert [int(text.split()[1]) for text in corpus.train["tgt"]] == numbers
    return numbers


def loading_fails(path: Path | str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def assert_is_the_whole(corpus: Corpus, count: int) -> None:
    """All pairs are in one of the splits, and the training pairs are in the order of their numbers."""
    held_out = [int(text.split()[1]) for split in (corpus.validation, corpus.test) for text in split["src"]]
    trained = numbers_of(corpus)
    assert trained == sorted(trained)
    assert sorted(trained + held_out) == list(range(count))


def test_tables_in_the_order_of_their_names(tmp_path: Path) -> None:
    for i in (2, 0, 1):
        write_table(tmp_path / f"part-{i}.jsonl", range(100 * i, 100 * i + 100))
    (tmp_path / ".part-3.jsonl").write_text("hidden", encoding="utf-8")
    corpus = load(tmp_path / "part-*.jsonl")
    assert_is_the_whole(corpus, 300)
    assert corpus.report.sources[0].kind == "files"
    source = find_source(DataConfig(path=f"{tmp_path}/*", src="en", tgt="de"))
    assert len(load_parts(source.splits["train"])) == 300


@pytest.mark.parametrize("pattern", ["part-?", "part-*.en", "part-[012].*", "**/part-*"])
def test_parallel_text_by_either_side_or_both(tmp_path: Path, pattern: str) -> None:
    for i in (2, 0, 1):
        write_parallel(tmp_path / f"part-{i}", range(100 * i, 100 * i + 100))
    if pattern == "part-?":  # Matches no file, for the endings are part of the names.
        loading_fails(tmp_path / pattern, r"there is no file or folder .*part-\?")
    else:
        assert_is_the_whole(load(tmp_path / pattern), 300)


def test_folders_and_formats_may_be_mixed(tmp_path: Path) -> None:
    write_table(tmp_path / "a" / "train.jsonl", range(100))
    write_parallel(tmp_path / "b" / "train", range(100, 200))
    assert_is_the_whole(load(tmp_path / "*" / "train.*"), 200)
    assert_is_the_whole(load(tmp_path / "**" / "train.*"), 200)


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path: Path) -> None:
    write_table(tmp_path / "part-[1].jsonl", range(100))
    assert_is_the_whole(load(tmp_path / "part-[1].jsonl"), 100)


def test_what_is_wrong_among_many_files_is_named(tmp_path: Path) -> None:
    loading_fails(tmp_path / "*.jsonl", r"there is no file or folder .*\*\.jsonl")
    for i in range(3):
        write_table(tmp_path / f"{i}.jsonl", range(3))
    (tmp_path / "1.jsonl").write_text('{"en": "a", "de": "b"}\n{"en": "a"', encoding="utf-8")
    loading_fails(tmp_path / "*.jsonl", r"/1\.jsonl, line 2: .*complete JSON")
    (tmp_path / "readme.txt").touch()
    loading_fails(tmp_path / "*", r"readme\.txt has no extension that shows its format")
    (tmp_path / "part-2.de").write_text("x\n", encoding="utf-8")
    loading_fails(tmp_path / "part-*", r"part-2\.de has no counterpart")
