"""Vocabularies and ids of a large corpus are cached, and made again for whatever would change them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

import mt.data.corpus
import mt.data.pair_table
import mt.data.prepare
import mt.data.prepared_cache
from mt.config.config import Config
from mt.data.prepare import Prepared, prepare
from mt.run_directory import RunDirectory
from mt.training.run import run_training

MakeConfig = Callable[..., Config]


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MT_CACHE", str(tmp_path / "cache"))
    for module in (mt.data.corpus, mt.data.pair_table, mt.data.prepared_cache):
        monkeypatch.setattr(module, "PAIRS_IN_MEMORY", 50)
    monkeypatch.setattr(mt.data.prepared_cache, "_WORTH_KEEPING", 50)
    monkeypatch.setattr(mt.data.pair_table, "CHUNK_SIZE", 20)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The results that were computed and not found, in order."""
    notes: list[str] = []
    for module, name in (
        (mt.data.corpus, "_read"),
        (mt.data.prepare, "make_tokenizers"),
        (mt.data.prepared_cache, "encode_pairs"),
        (mt.data.prepared_cache, "align"),
    ):
        original = getattr(module, name)

        def noted(*arguments: Any, original: Any = original, name: str = name, **more: Any) -> Any:
            notes.append(name)
            return original(*arguments, **more)

        monkeypatch.setattr(module, name, noted)
    return notes


@pytest.fixture
def prepared(tmp_path: Path) -> Callable[[Config], Prepared]:
    """Prepares a config in a run directory of its own."""
    numbers: Iterator[int] = iter(range(100))

    def run(config: Config) -> Prepared:
        directory = RunDirectory(tmp_path / f"run-{next(numbers)}")
        directory.path.mkdir()
        return prepare(config, directory, resuming=False)

    return run


def assert_equal(one: Prepared, other: Prepared) -> None:
    assert one.src_tokenizer.to_json() == other.src_tokenizer.to_json()
    assert one.tgt_tokenizer.to_json() == other.tgt_tokenizer.to_json()
    for left, right in ((one.train.src, other.train.src), (one.train.tgt, other.train.tgt)):
        assert np.array_equal(left.ids, right.ids)
        assert np.array_equal(left.offsets, right.offsets)
        assert np.array_equal(left.lengths, right.lengths)
    assert one.corpus.report == other.corpus.report


def test_another_run_on_the_same_corpus_uses_the_cache(
    make_config: MakeConfig,
    prepared: Callable[[Config], Prepared],
    made: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = prepared(make_config())
    assert made == ["_read", "make_tokenizers", "encode_pairs"]
    second = prepared(make_config("model.d_model=32", "training.seed=5"))
    assert made == ["_read", "make_tokenizers", "encode_pairs"]
    monkeypatch.setattr(mt.data.prepared_cache, "PAIRS_IN_MEMORY", 10**9)
    in_memory = prepared(make_config())
    assert_equal(first, second)
    assert_equal(first, in_memory)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("data.max_length=8", ["make_tokenizers", "encode_pairs"]),
        ("tokenizer.max_size=20", ["make_tokenizers", "encode_pairs"]),
        # One of the 160 lines, and all of them.
        ("tokenizer.max_lines=1", ["make_tokenizers", "encode_pairs"]),
        ("tokenizer.max_lines=160", []),
        ("cleaning.max_characters=20", ["_read", "make_tokenizers", "encode_pairs"]),
        # Which the text is in already.
        ("cleaning.unicode_form=NFKC", ["_read", "make_tokenizers", "encode_pairs"]),
    ],
)
def test_each_option_that_changes_a_result_and_no_other_makes_it_again(
    override: str,
    expected: list[str],
    make_config: MakeConfig,
    prepared: Callable[[Config], Prepared],
    made: list[str],
) -> None:
    prepared(make_config())
    made.clear()
    prepared(make_config(override))
    assert made == expected


@pytest.mark.parametrize(
    ("module", "constant", "expected"),
    [
        (mt.data.corpus, "CORPUS_VERSION", ["_read"]),
        (mt.data.prepared_cache, "TOKENIZER_VERSION", ["make_tokenizers"]),
        (mt.data.prepared_cache, "ENCODING_VERSION", ["encode_pairs"]),
        (mt.data.prepared_cache, "ALIGNMENT_VERSION", ["align"]),
    ],
)
def test_another_version_of_a_recipe_repeats_that_recipe_alone(
    module: ModuleType,
    constant: str,
    expected: list[str],
    make_config: MakeConfig,
    prepared: Callable[[Config], Prepared],
    made: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = make_config("training.guided_alignment=0.1")
    prepared(config)
    assert made == ["_read", "make_tokenizers", "encode_pairs", "align"]
    made.clear()
    monkeypatch.setattr(module, constant, 1_000)
    prepared(config)
    assert made == expected


def test_another_tokenizer_in_the_same_file_is_read(
    make_config: MakeConfig, prepared: Callable[[Config], Prepared], tmp_path: Path
) -> None:
    file, written = tmp_path / "tokenizer.json", set[str]()
    shared = ("tokenizer.shared=true", "data.max_length=200")
    external = make_config("tokenizer.kind=file", f"tokenizer.path={file}", *shared)
    for size in (300, 330):
        bpe = make_config("tokenizer.kind=bpe", f"tokenizer.max_size={size}", *shared)
        own = prepared(bpe).src_tokenizer
        own.save(file)
        written.add(own.to_json())
        assert prepared(external).tgt_tokenizer.to_json() == own.to_json()
    assert len(written) == 2


def test_a_cache_that_cannot_be_written_costs_a_warning_only(
    make_config: MakeConfig,
    prepared: Callable[[Config], Prepared],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected = prepared(make_config())
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MT_CACHE", str(tmp_path / "file" / "cache"))
    caplog.clear()
    assert_equal(prepared(make_config()), expected)
    assert caplog.text.count("cannot be written") >= 3


def test_a_run_with_the_cache_is_the_run_without_bit_for_bit(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_training(make_config("training.max_steps=5"), RunDirectory(tmp_path / "cached"))
    run_training(make_config(), RunDirectory(tmp_path / "cached"))  # Resumed, from what is found.
    for module in (mt.data.corpus, mt.data.pair_table, mt.data.prepared_cache):
        monkeypatch.setattr(module, "PAIRS_IN_MEMORY", 10**9)
    run_training(make_config(), RunDirectory(tmp_path / "plain"))
    one, other = (
        load_file(tmp_path / name / "checkpoints" / "step_0000012" / "model.safetensors")
        for name in ("cached", "plain")
    )
    assert one.keys() == other.keys()
    assert all(one[name].equal(other[name]) for name in one)
