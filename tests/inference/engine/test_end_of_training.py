"""The end of a training as users have it: the engine is made from what the run keeps, or left for later."""

import errno
import json
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mt.config.config import Config
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.inference.engine import convert as conversion
from mt.inference.verification import keep_pairs, verification_pairs
from mt.run_directory import RunDirectory
from mt.training.run import run_training
from tests.oracle.cases import tiny_pairs

MakeConfig = Callable[..., Config]


def terminate(*arguments: Any) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def raising(error: Exception) -> Callable[..., None]:
    def fail(*arguments: Any) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (raising(OSError(errno.ENOSPC, "No space left on device")), "No space left on device"),
        (raising(MemoryError()), "MemoryError"),
        (raising(RuntimeError("std::bad_alloc")), "std::bad_alloc"),
        (raising(ValueError("unsupported compute type")), "unsupported compute type"),
        (raising(AttributeError()), "AttributeError"),
        (terminate, "SIGTERM"),
    ],
)
def test_a_training_does_not_fail_because_of_its_engine(
    event: Callable[..., None],
    reason: str,
    make_config: MakeConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.delenv("MT_ENGINE")
    monkeypatch.setattr(conversion, "write_ctranslate2", event)
    run = RunDirectory(tmp_path / "run")
    with caplog.at_level(logging.WARNING, "mt"):
        outcome = run_training(make_config("training.max_steps=1"), run)
    assert (outcome.exit_code, outcome.finished) == (0, "training.max_steps (1) reached")
    [warning] = [record.getMessage() for record in caplog.records if "engine" in record.getMessage()]
    assert warning.startswith("the fast engine is left for the first translation: ")
    assert warning.endswith(reason)
    # Nothing is left half done, and the first translation makes it.
    assert not list(run.path.rglob(".*partial*"))
    monkeypatch.undo()
    assert (conversion.convert(run, "best") / "float32/model.bin").is_file()


def test_the_engine_is_verified_with_what_the_run_keeps(
    make_config: MakeConfig, tmp_path: Path, tiny_corpus: Path
) -> None:
    run = RunDirectory(tmp_path / "run")
    run_training(make_config("training.max_steps=1", "data.max_length=6"), run)
    sources, targets = (
        (tiny_corpus / f"validation.{side}").read_text().splitlines() for side in ("en", "de")
    )
    src, tgt = Tokenizer.load(run.src_tokenizer_file), Tokenizer.load(run.tgt_tokenizer_file)
    fitting = [
        (source, target)
        for source, target in zip(sources, targets, strict=True)
        if len(src.encode_batch([source])[0]) < 6 and len(tgt.encode_batch([target])[0]) < 6
    ]
    assert 0 < len(fitting) < len(sources)
    assert verification_pairs(run) == fitting
    # A run from before keeps them from when it continues.
    run.verification_file.unlink()
    run_training(make_config("training.max_steps=2", "data.max_length=6"), run)
    assert verification_pairs(run) == fitting


def test_few_pairs_with_text_are_kept(trained: RunDirectory) -> None:
    tokenizers = Tokenizer.load(trained.src_tokenizer_file), Tokenizer.load(trained.tgt_tokenizer_file)
    pair = tiny_pairs()[0]
    pairs = [("", "Anna"), ("Anna", " "), ("x" * 2001, "Anna"), *[pair] * 501]
    keep_pairs(trained, pairs, tokenizers, 16)
    assert verification_pairs(trained) == [pair] * 500


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"{}",
        b'[["a"]]',
        b'[["a", "b"], ["a", 5]]',
        b'[["a", "\\ud800"]]',
        b"[" * 100_000,
        json.dumps([["a" * 2001, "b"]]).encode(),
        b" " * 16_000_001,
    ],
)
def test_what_a_run_keeps_is_not_used_if_it_is_damaged(content: bytes, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.verification_file.write_bytes(content)
    assert verification_pairs(run) == []


def test_no_more_pairs_are_used_than_are_kept(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.verification_file.write_text(json.dumps([["a", "b"]] * 2000))
    assert len(verification_pairs(run)) == 500
