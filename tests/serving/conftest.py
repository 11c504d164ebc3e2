"""A translator to serve, another copy of it as the reference, and a search that waits until it may begin."""

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.serving.batching import BatchedTranslator
from tests.export.conftest import both_ways as both_ways
from tests.export.conftest import make_loaded as make_loaded
from tests.export.conftest import pairs as pairs
from tests.export.conftest import tokenizer_of as tokenizer_of


@pytest.fixture(scope="session")
def translator(_trained: Path) -> ModelTranslator:
    """The translator that is served."""
    return ModelTranslator.from_run(RunDirectory(_trained), device="cpu")


@pytest.fixture(scope="session")
def reference(_trained: Path) -> ModelTranslator:
    """Another translator of the same run, for one text at a time."""
    return ModelTranslator.from_run(RunDirectory(_trained), device="cpu")


@pytest.fixture
def batched(translator: ModelTranslator) -> BatchedTranslator:
    """With room for 20 texts to wait; its batches have 8."""
    return BatchedTranslator(lambda: translator, "tiny", max_waiting=20)


class Gate:
    """Holds every search until it is opened, and remembers the texts of each."""

    def __init__(self, search: Callable[..., list[list[Any]]]) -> None:
        self.searched: list[Sequence[str]] = []
        self.entered = threading.Event()
        self.opened = threading.Event()
        self._search = search

    def __call__(self, texts: Sequence[str], **options: Any) -> list[list[Any]]:
        self.searched.append(texts)
        self.entered.set()
        assert self.opened.wait(60)
        return self._search(texts, **options)


@pytest.fixture
def gate(translator: ModelTranslator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """In front of the translator's search; opened at the end, whatever happens."""
    made = Gate(translator.n_best)
    monkeypatch.setattr(translator, "n_best", made)
    yield made
    made.opened.set()
