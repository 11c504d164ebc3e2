"""What is checked, dropped, carved and described, whatever the source; and the report, read back."""

import gzip
import json
import logging
import shutil
import subprocess
import tracemalloc
from math import sqrt
from pathlib import Path

import pytest

from mt.config.config import Config
from mt.config.data import CleaningConfig, TokenizerConfig
from mt.data import chunks, corpus_report
from mt.data.batches.dataset import encode_pairs
from mt.data.corpus import Corpus, load_corpus, load_split
from mt.data.corpus_report import CorpusReport, LeakReport, SourceReport, SplitReport, recorded_fingerprints
from mt.data.sources.source import held_out_split
from mt.data.suspicions import corpus_warnings
from mt.data.tokenizers.train import train_tokenizer
from mt.errors import DataError
from mt.sides import Sides
from tests.data.corpora import data_config, jsonl, parallel, parquet, write

SPLITS = ("train", "validation", "test")


def numbered(count: int, start: int = 0) -> list[dict[str, str]]:
    return [{"en": f"sentence number {i}", "de": f"Satz {i}"} for i in range(start, start + count)]


def sources(corpus: Corpus, split: str) -> list[str]:
    return list(getattr(corpus, split)["src"])


def splits_of(corpus: Corpus) -> dict[str, dict[str, object]]:
    """The splits of the report, as they are in corpus.json."""
    splits: dict[str, dict[str, object]] = corpus.report.model_dump(mode="json")["splits"]
    return splits


def test_training_rows_without_text_are_dropped_and_counted_under_their_reason(tmp_path: Path) -> None:
    bad = [
        {"en": "a", "de": None},
        {"en": "a"},
        {"en": None, "de": None},
        {"en": " \t\u3000", "de": "b"},
        {"en": "a", "de": ""},
        {"en": 7, "de": "b"},
        {"en": "a", "de": ["b"]},
    ]
    write(tmp_path, {"train.jsonl": jsonl([*numbered(2), *bad, *numbered(1, start=2)])})
    write(tmp_path, {"dev.jsonl": jsonl(numbered(1))})
    write(tmp_path, {"test.jsonl": jsonl(numbered(1))})
    corpus = load_corpus(data_config(tmp_path))
    assert sources(corpus, "train") == ["sentence number 0", "sentence number 1", "sentence number 2"]
    assert splits_of(corpus)["train"]["dropped"] == {
        "the target is missing": 2,
        "the source is missing": 1,
        "the source is empty": 1,
        "the target is empty": 1,
        "the source is not text": 1,
        "the target is a list, not one text": 1,
    }


def test_evaluation_lines_with_text_are_never_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, parallel("train", [("a", "x"), ("", "y"), ("c", "")]))
    for name, empty in (("dev", [("", " ")]), ("test", [("", ""), ("\u200b", " ")])):
        write(tmp_path, parallel(name, [("", "x"), ("b", "y"), ("c", ""), *empty]))
    with caplog.at_level(logging.WARNING):
        corpus = load_corpus(data_config(tmp_path))
    assert corpus.train[:] == {"src": ["a"], "tgt": ["x"]}
    for split in (corpus.validation, corpus.test):
        assert split[:] == {"src": ["", "b", "c"], "tgt": ["x", "y", ""]}
    for name, count in (("dev", "1 pair"), ("test", "2 pairs")):
        assert f"{tmp_path}/{name}.de: {count} empty on both sides are left out" in caplog.text


def test_carved_splits_are_those_that_the_sources_belong_to(tmp_path: Path) -> None:
    rows = numbered(10_000)
    write(tmp_path, {"train.jsonl": jsonl(rows)})
    corpus = load_corpus(data_config(tmp_path, held_out_fraction=0.1))
    for split in SPLITS:
        own = [row["en"] for row in rows if held_out_split(row["en"], 0.1) == split]
        assert sources(corpus, split) == own
        # Five standard deviations of a binomial distribution.
        assert split == "train" or abs(len(own) - 1000) < 5 * sqrt(10_000 * 0.1 * 0.9)
    assert [splits_of(corpus)[split]["origin"] for split in SPLITS] == ["given", "carved", "carved"]


@pytest.mark.skipif(shutil.which("b2sum") is None, reason="b2sum comes with GNU coreutils")
def test_carving_follows_the_blake2b_of_coreutils_however_words_are_spaced() -> None:
    for text in ("A man sleeps.", "Ein Mädchen klettert.", "中文"):
        digest = subprocess.run(["b2sum", "-l", "64"], input=text.encode(), capture_output=True, check=True)
        position = int(digest.stdout.split()[0], 16) / 2**64
        for fraction in (0.1, 0.3, 0.49):
            expected = "validation" if position < fraction else "test" if position < 2 * fraction else "train"
            for spaced in (text, f" {text}", text.replace(" ", " \t"), text.replace(" ", "\u00a0")):
                assert held_out_split(spaced, fraction) == expected


def test_only_the_missing_split_is_carved_and_from_its_own_place(tmp_path: Path) -> None:
    write(tmp_path, {"train.jsonl": jsonl(numbered(1000))})
    both = load_corpus(data_config(tmp_path))
    write(tmp_path, {"valid.jsonl": jsonl(numbered(3))})
    corpus = load_corpus(data_config(tmp_path))
    assert sources(corpus, "validation") == [f"sentence number {i}" for i in range(3)]
    assert sources(corpus, "test") == sources(both, "test")
    assert len(corpus.train) == len(both.train) + len(both.validation)
    assert [splits_of(corpus)[split]["origin"] for split in SPLITS] == ["given", "given", "carved"]
    files = [tmp_path / f"{name}.jsonl" for name in ("train", "valid", "train")]
    assert [splits_of(corpus)[split]["from"] for split in SPLITS] == [[str(file)] for file in files]


def test_the_number_of_training_pairs_limits_only_training(tmp_path: Path) -> None:
    write(tmp_path, {"train.jsonl": jsonl([*numbered(1000), {"en": "a"}])})
    whole, limited = (
        load_corpus(data_config(tmp_path)),
        load_corpus(data_config(tmp_path, num_train_pairs=100)),
    )
    assert sources(limited, "train") == sources(whole, "train")[:100]
    assert sources(limited, "test") == sources(whole, "test")
    # What is wrong beyond the limit is nobody's business.
    assert splits_of(limited)["train"]["dropped"] == {}
    write(tmp_path, {"dev.jsonl": jsonl(numbered(3))})
    write(tmp_path, {"test.jsonl": jsonl(numbered(3))})
    assert sources(load_corpus(data_config(tmp_path, num_train_pairs=2)), "train") == [
        "sentence number 0",
        "sentence number 1",
    ]


def test_a_corpus_too_small_to_be_split_says_so(tmp_path: Path) -> None:
    write(tmp_path, {"train.jsonl": jsonl(numbered(3))})
    message = r"too small to be split: .* {} at data\.held_out_fraction={}\. Change it"
    with pytest.raises(DataError, match=message.format("validation or test", "0.01")):
        load_corpus(data_config(tmp_path, held_out_fraction=0.01))
    write(tmp_path, {"dev.jsonl": jsonl(numbered(1))})
    with pytest.raises(DataError, match=message.format("test", "0.02")):
        load_corpus(data_config(tmp_path))
    # All are held out.
    held_out = [row for row in numbered(50) if held_out_split(row["en"], 0.3) == "test"]
    write(tmp_path, {"train.jsonl": jsonl(held_out)})
    with pytest.raises(DataError, match=message.format("train", "0.3")):
        load_corpus(data_config(tmp_path, held_out_fraction=0.3))


def test_the_fingerprint_tells_texts_apart_and_nothing_else(tmp_path: Path) -> None:
    def fingerprints(folder: str, rows: list[object]) -> list[object]:
        write(tmp_path / folder, {f"{name}.jsonl": jsonl(rows) for name in SPLITS})
        return [
            split["fingerprint"] for split in splits_of(load_corpus(data_config(tmp_path / folder))).values()
        ]

    first = fingerprints("first", [{"en": "a", "de": "bc"}])
    assert len(set(first)) == 1
    assert fingerprints("extra column", [{"de": "bc", "en": "a", "fr": "x"}]) == first
    assert fingerprints("shifted", [{"en": "ab", "de": "c"}]) != first


def test_one_split_is_the_same_as_that_of_the_whole_corpus(tmp_path: Path) -> None:
    write(tmp_path, {"train.jsonl": jsonl(numbered(1000))})
    write(tmp_path, {"test.jsonl": jsonl(numbered(5, start=2000))})
    corpus = load_corpus(data_config(tmp_path))
    assert load_split(data_config(tmp_path), "train")[:] == corpus.train[:]
    assert load_split(data_config(tmp_path), "validation")[:] == corpus.validation[:]
    assert load_split(data_config(tmp_path), "test")[:] == corpus.test[:]
    write(tmp_path, {"train.jsonl": jsonl(["damaged"])})
    assert len(load_split(data_config(tmp_path), "test")) == 5


def test_a_chunk_has_a_number_of_pairs_or_of_characters_on_both_sides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 12)
    for pair, most, expected in ((("aaa", "bbb"), 9, 2), (("a", "b" * 11), 9, 1), (("a", "bb"), 3, 3)):
        pairs = iter([pair] * 9)
        assert chunks.next_pairs(pairs, most) == [pair] * expected
        assert len([*pairs]) == 9 - expected


@pytest.mark.parametrize("kind", ["jsonl.gz", "parquet"])
def test_long_rows_are_read_and_encoded_a_few_at_a_time(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 2**18)
    rows = [{"en": f"{i} " + "a dog " * 4000, "de": f"{i} " + "ein Hund " * 2700} for i in range(150)]
    for split, count in (("train", 150), ("dev", 1), ("test", 1)):
        table = parquet(rows[:count]) if kind == "parquet" else gzip.compress(jsonl(rows[:count]).encode())
        write(tmp_path, {f"{split}.{kind}": table})
    num_bytes = sum(len(text) for row in rows for text in row.values())
    whole = Config.model_validate({"data": data_config(tmp_path), "training": {"max_steps": 1}})
    tokenizer = train_tokenizer(["a dog ein Hund"], TokenizerConfig(min_frequency=1))
    tracemalloc.start()
    corpus = load_corpus(whole.data, CleaningConfig(max_characters=30_000))
    assert all("below 100" in warning for warning in corpus_warnings(whole, corpus))
    pairs, _ = encode_pairs(corpus.train, Sides(tokenizer, tokenizer), max_length=None)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pairs.tgt.lengths.tolist() == [5402] * 150
    assert most < 0.8 * num_bytes


GOLDEN = Path(__file__).parent.parent / "golden"
REPORT = CorpusReport(
    sources=[SourceReport("corpus", "folder", None, "en", "de", None, 1.0, 2, "0a")],
    splits={
        "train": SplitReport("given", ["a", "b"], 2, "0a", {"empty": 1}, {"empty": [["", "x"], ["y", ""]]}),
        "validation": SplitReport("given", ["v"], 1, "0b"),
        "test": SplitReport("carved", ["t"], 1, "0c"),
    },
    leaks={"test": LeakReport(1, source=2, target=0, pair=0)},
    leaks_removed=False,
)


def test_the_fingerprints_are_read_back_from_what_was_written() -> None:
    content = REPORT.model_dump_json().encode()
    assert recorded_fingerprints(content) == {"train": "0a", "validation": "0b", "test": "0c"}
    assert CorpusReport.model_validate_json(content) == REPORT
    first = content.replace(b'"source":2', b'"source":{"exact":1,"normalised":2}')
    assert first != content
    assert CorpusReport.model_validate_json(first) == REPORT


@pytest.mark.parametrize(
    "file", sorted(GOLDEN.glob("format_*/run/corpus.json")), ids=lambda file: file.parts[-3]
)
def test_the_fingerprints_of_golden_runs_can_be_read(file: Path) -> None:
    expected = {name: split["fingerprint"] for name, split in json.loads(file.read_bytes())["splits"].items()}
    assert recorded_fingerprints(file.read_bytes()) == expected


@pytest.mark.parametrize("content", [b"", b"{}", b'{"splits": {"train": {}}}', b"[]", b"[" * 100_000])
def test_a_damaged_corpus_json_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        recorded_fingerprints(content)


def test_what_was_dropped_is_shown_as_shares_of_all_rows() -> None:
    assert corpus_report.cleaning_table(REPORT.splits["train"], {"too long": 1, "never": 0}).splitlines() == [
        "of 3 training pairs, 2 were dropped:",
        "reason        pairs   share  example",
        "empty             1  33.33%   ||| x",
        "too long          1  33.33%",
        "all of these      2  66.67%",
    ]
    assert corpus_report.cleaning_table(REPORT.splits["test"], {"never": 0}) == ""


def test_a_report_says_in_words_what_leaked_and_where_a_split_is_from() -> None:
    assert [split.where_from for split in REPORT.splits.values()] == ["given", "given", "held out"]
    assert REPORT.leak_sentence == "also in training: 0 pairs, 2 sources and 0 targets of 1 in test"
    assert not REPORT.has_leaked
    both = {"validation": LeakReport(1, 0, 1, pair=1), **REPORT.leaks}
    leaked = REPORT.model_copy(update={"leaks": both})
    assert leaked.has_leaked
    assert leaked.leak_sentence == (
        "also in training: 1 pair, 0 sources and 1 target of 1 in validation; 0 pairs, 2 sources and 0 "
        "targets of 1 in test; cleaning.remove_leaks: true removes the pairs from training"
    )
    assert not leaked.model_copy(update={"leaks_removed": True}).has_leaked
