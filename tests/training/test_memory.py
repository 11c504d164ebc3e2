"""A full memory while translating, while validating, and where nothing can be split."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import mt.training.run
from mt.errors import DataError, RunError
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam, Sampling, Strategy
from mt.training.resume import describe_environment
from mt.training.run import run_training
from mt.transformer.transformer import Transformer
from tests.fixture_types import MakeConfig

ERROR = torch.OutOfMemoryError("CUDA out of memory.")


@pytest.fixture
def room_for(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """Lets the search have room for so many sentences; the sizes that were tried."""

    def make(room: int) -> list[int]:
        start_cache = Transformer.start_cache
        tried: list[int] = []

        def cramped(self: Transformer, memory: Tensor, src_mask: Tensor) -> Any:
            tried.append(len(memory))
            if len(memory) > room:
                raise ERROR
            return start_cache(self, memory, src_mask)

        monkeypatch.setattr(Transformer, "start_cache", cramped)
        return tried

    return make


@pytest.mark.parametrize(
    "strategy", [None, Sampling(1.0, seed=3), Beam(3, 0.6)], ids=["greedy", "sampling", "beam"]
)
def test_translating_in_halves_gives_the_same(
    strategy: Strategy,
    trained: RunDirectory,
    tiny_corpus: Path,
    room_for: Callable[[int], list[int]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = (tiny_corpus / "test.en").read_text(encoding="utf-8").splitlines()
    translator = ModelTranslator.from_run(trained, device=torch.device("cpu"))
    expected = translator.translate(lines, strategy=strategy)
    tried = room_for(3)
    assert translator.translate(lines, strategy=strategy) == expected
    assert max(tried) == 8
    assert "a batch of 8 sentences was split in two" in caplog.text


def test_a_sentence_that_does_not_fit_is_named(
    trained: RunDirectory, room_for: Callable[[int], list[int]]
) -> None:
    translator = ModelTranslator.from_run(trained, device=torch.device("cpu"))
    room_for(0)
    with pytest.raises(DataError, match=r"line 7 has a sentence of 5 tokens that does not fit into memory"):
        translator.translate(["Anna sees the car."], first_line=7)


def test_a_model_that_does_not_fit_is_a_sentence(
    make_config: MakeConfig, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise ERROR

    monkeypatch.setattr(mt.training.run, "build_model", full)
    with pytest.raises(RunError, match=r"do not fit into memory\. Lower model\.d_model"):
        run_training(make_config(), run)


def test_resuming_elsewhere_says_what_differs_and_continues(
    make_config: MakeConfig,
    run: RunDirectory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run_training(make_config("training.max_steps=2"), run)
    with monkeypatch.context() as patch:
        patch.setattr(
            mt.training.resume,
            "describe_environment",
            lambda *known: describe_environment(*known) | {"num_threads": 64, "torch": "9.9"},
        )
        assert run_training(make_config("training.max_steps=4"), run).counters.step == 4
    warnings = [message for message in caplog.messages if "not bit-exact" in message]
    assert warnings == [
        f"resuming is not bit-exact, because this has changed: torch: {torch.__version__} -> 9.9",
        f"resuming is not bit-exact, because this has changed: num_threads: {torch.get_num_threads()} -> 64",
    ]
    caplog.clear()
    # And where nothing differs, nothing is said; the newest checkpoint is of the other place.
    assert run_training(make_config("training.max_steps=5"), run).counters.step == 5
    assert caplog.text.count("not bit-exact") == 2
    caplog.clear()
    run_training(make_config("training.max_steps=6"), run)
    assert "not bit-exact" not in caplog.text
