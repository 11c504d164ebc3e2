"""The end of a training as users have it: the engine is made from what the run keeps, or left for later."""

import errno
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from mt.data.tokenizers.tokenizer import Tokenizer
from mt.inference.engine import convert as conversion
from mt.inference.translator import Translator
from mt.inference.verify import keep_pairs, verification_pairs
from mt.run_directory import RunDirectory
from mt.training.run import run_training
from tests.fixture_types import MakeConfig
from tests.tiny import tiny_pairs

FAILURES = [
    (OSError(errno.ENOSPC, "No space left"), "No space left"), (RuntimeError("bad_alloc"), "bad_alloc"),
    (MemoryError(), "MemoryError"), (None, "SIGTERM"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "reason"), FAILURES)
def test_a_training_does_not_fail_because_of_its_engine(
    error: Exception | None,
    reason: str,
    make_config: MakeConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*arguments: Any) -> None:
        if error is not None:
            raise error
        os.kill(os.getpid(), signal.SIGTERM)

    run = RunDirectory(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.delenv("MT_ENGINE")
        patch.setattr(conversion, "write_ctranslate2", fail)
        outcome = run_training(make_config("training.max_steps=1"), run)
    assert (outcome.exit_code, outcome.finished) == (0, "training.max_steps (1) reached")
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    [warning] = [text for text in warnings if "engine" in text]
    assert warning.startswith("the fast engine is left for the first translation: ")
    assert warning.endswith(reason)
    # Nothing is left half done, and the first translation makes it; a model of one step may be refused.
    assert not list(run.path.rglob(".*partial*"))
    assert any(conversion.convert(run, "best").iterdir())


def test_a_model_that_cannot_be_converted_is_translated_by_torch(
    trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MT_ENGINE")
    with monkeypatch.context() as patch:
        patch.setattr(conversion, "_linear", lambda spec, *layers: layers[0].gain)
        assert "not converted (AttributeError: 'Linear' object has no" in Translator.from_run(trained).why
    # It is not tried again.
    assert "not converted" in Translator.from_run(trained).why


def test_a_run_keeps_the_pairs_that_its_model_can_read(
    make_config: MakeConfig, tmp_path: Path, tiny_corpus: Path
) -> None:
    run = RunDirectory(tmp_path / "run")
    sides = [(tiny_corpus / f"validation.{side}").read_text().splitlines() for side in ("en", "de")]
    for steps in (1, 2):
        # The second time as a run from before, which keeps them from when it continues.
        run.verification_file.unlink(missing_ok=True)
        run_training(make_config(f"training.max_steps={steps}", "data.max_length=6"), run)
        files = (run.src_tokenizer_file, run.tgt_tokenizer_file)
        ids = [Tokenizer.load(file).encode_batch(side) for file, side in zip(files, sides, strict=True)]
        pairs = zip(*sides, *ids, strict=True)
        fitting = [(src, tgt) for src, tgt, *both in pairs if max(map(len, both)) < 6]
        assert 0 < len(fitting) < len(sides[0])
        assert verification_pairs(run) == fitting


def test_few_short_pairs_with_text_are_kept(trained: RunDirectory) -> None:
    tokenizers = Tokenizer.load(trained.src_tokenizer_file), Tokenizer.load(trained.tgt_tokenizer_file)
    pair = tiny_pairs()[0]
    long, many = "x" * 2001, "Milch " * 16
    odd = [("", "Anna"), ("Anna", " "), (long, "Anna"), ("Anna", long), (many, "Anna"), ("Anna", many)]
    keep_pairs(trained, [*odd, *[pair] * 501], tokenizers, 16)
    assert verification_pairs(trained) == [pair] * 500
    trained.verification_file.write_text(json.dumps([pair] * 2000))
    assert verification_pairs(trained) == [pair] * 500


DAMAGED = [
    b"", b"\xff", b"{}", b'[["a"]]', b'[["a", "b"], ["a", 5]]', b'[["a", "\\ud800"]]', b"[" * 100_000,
    b" " * 16_000_001,
]  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_what_a_run_keeps_is_not_used_if_it_is_damaged(content: bytes, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.verification_file.write_bytes(content)
    assert verification_pairs(run) == []
