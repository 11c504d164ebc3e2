"""Corpora of many files by a pattern: what is read, in which order, and the answer to each mistake."""

import json
import os
import re
from pathlib import Path

import pytest

from mt.config.data import DataConfig
from mt.data.corpus import Corpus, load_corpus, load_undivided
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
    assert corpus.report.kind == "files"
    whole = load_undivided(DataConfig(path=f"{tmp_path}/*", src="en", tgt="de"))
    assert whole is not None
    assert len(whole) == 300


@pytest.mark.parametrize(
    "pattern", ["part-*.{en,de}", "part-*.{de, en}", "part-?", "part-*.en", "part-[012].*", "**/part-*"]
)
def test_parallel_text_by_either_side_or_both(tmp_path: Path, pattern: str) -> None:
    for i in (2, 0, 1):
        write_parallel(tmp_path / f"part-{i}", range(100 * i, 100 * i + 100))
    if pattern == "part-?":  # Matches no file, for the endings are part of the names.
        loading_fails(tmp_path / pattern, r"No file matches .*part-\?: .*contains 'part-0\.de', 'part-0\.en'")
    else:
        assert_is_the_whole(load(tmp_path / pattern), 300)


def test_packed_parallel_text_and_one_stem_in_braces(tmp_path: Path) -> None:
    write_parallel(tmp_path / "train", range(200))
    assert_is_the_whole(load(tmp_path / "train.{en,de}"), 200)


def test_folders_and_formats_may_be_mixed(tmp_path: Path) -> None:
    write_table(tmp_path / "a" / "train.jsonl", range(100))
    write_parallel(tmp_path / "b" / "train", range(100, 200))
    assert_is_the_whole(load(tmp_path / "*" / "train.*"), 200)
    assert_is_the_whole(load(tmp_path / "**" / "train.*"), 200)


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path: Path) -> None:
    write_table(tmp_path / "part-[1].jsonl", range(100))
    assert_is_the_whole(load(tmp_path / "part-[1].jsonl"), 100)


def test_a_match_whose_name_is_not_utf8_is_refused(tmp_path: Path) -> None:
    write_table(tmp_path / os.fsdecode(b"part-\xe9.jsonl"), range(100))
    loading_fails(tmp_path / "*.jsonl", r"\*\.jsonl matches .*part-\\udce9\.jsonl, whose name is not UTF-8")


def test_a_folder_that_may_not_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)  # root may list everything
    loading_fails(tmp_path / "x*", r"No file matches .*x\*\.$")
    loading_fails(tmp_path / "gone.jsonl", "there is no file or folder .*gone")
    loading_fails(f"{tmp_path}/x.en,{tmp_path}/y.de", "there is no file .*x.en")


def test_nothing_matches(tmp_path: Path) -> None:
    loading_fails(tmp_path / "*.jsonl", r"No file matches .*\*\.jsonl: .* contains no files\.")
    loading_fails(tmp_path / "none" / "*.{en,de}", r"No file matches .*: there is no folder .*none\.")
    loading_fails("no\0file*", "No file matches")


@pytest.mark.parametrize("pattern", ["**.jsonl", "a**b", "[", "{en,de}", "*.{en}", "x" * 300 + "*", "***"])
def test_strange_patterns_are_answered_with_a_sentence(tmp_path: Path, pattern: str) -> None:
    write_table(tmp_path / "train.csv", range(3))
    loading_fails(
        tmp_path / pattern,
        r"^(No file matches|.* names the languages 'en'|data\.path: there is no|.* cannot be read)|csv",
    )


def test_other_languages_in_the_braces(tmp_path: Path) -> None:
    loading_fails(
        tmp_path / "*.{en,fr}", r"names the languages 'en', 'fr', but .* are 'en' and 'de': write \.\{en,de\}"
    )


def test_what_is_not_a_corpus_is_named(tmp_path: Path) -> None:
    write_table(tmp_path / "a.jsonl", range(3))
    (tmp_path / "readme.txt").touch()
    loading_fails(
        tmp_path / "*", r"matches .*readme\.txt, which is neither a table nor parallel text: narrow"
    )
    (tmp_path / "readme.txt").rename(tmp_path / "a.txt")
    (tmp_path / "folder.jsonl").mkdir()
    loading_fails(tmp_path / "*l", r"matches .*folder\.jsonl, which is a folder: narrow the pattern")


def test_a_side_without_its_partner(tmp_path: Path) -> None:
    write_parallel(tmp_path / "part-1", range(3))
    (tmp_path / "part-2.de").write_text("x\n", encoding="utf-8")
    for pattern in ("part-*.{en,de}", "part-*"):
        loading_fails(tmp_path / pattern, r"part-2\.de has no counterpart: .*part-2\.en is missing")


def test_a_table_that_is_there_packed_and_unpacked_is_not_read_twice(tmp_path: Path) -> None:
    write_table(tmp_path / "a.jsonl", range(3))
    (tmp_path / "a.jsonl.gz").touch()
    loading_fails(tmp_path / "a*", r"matches both .*a\.jsonl\.gz and .*a\.jsonl: keep only one")


def test_a_link_to_another_match_is_not_read_twice(tmp_path: Path) -> None:
    write_table(tmp_path / "a.jsonl", range(3))
    (tmp_path / "newest.jsonl").symlink_to("a.jsonl")
    loading_fails(tmp_path / "*.jsonl", r"newest\.jsonl and .*a\.jsonl: keep only one of them")


def test_a_broken_file_among_many_is_named_with_its_line(tmp_path: Path) -> None:
    for i in range(3):
        write_table(tmp_path / f"{i}.jsonl", range(3))
    (tmp_path / "1.jsonl").write_text('{"en": "a", "de": "b"}\n{"en": "a"', encoding="utf-8")
    loading_fails(
        tmp_path / "*.jsonl", rf"{re.escape(str(tmp_path))}/1\.jsonl, line 2: this is not a complete JSON"
    )
    (tmp_path / "1.jsonl").write_text('{"en": "a", "fr": "b"}\n', encoding="utf-8")
    loading_fails(tmp_path / "*.jsonl", r"1\.jsonl has no column 'de', which data\.tgt names; .* 'en', 'fr'")
