"""A translator to serve, another copy of it as the reference, and a search that waits until it may begin."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from mt.attention_maps.alignment import word_alignments
from mt.inference.alignment_layer import aligning_layer
from mt.inference.model_translator import ModelTranslator
from mt.inference.segments import Translation
from mt.run_directory import RunDirectory
from mt.serving.app import Service
from mt.serving.batching import Align, BatchedTranslator
from mt.serving.request import Limits, ServedRun
from mt.serving.server import bind, make_server


@pytest.fixture(scope="session")
def translator(_trained: Path) -> ModelTranslator:
    """The translator that is served."""
    return ModelTranslator.from_run(RunDirectory(_trained), device=torch.device("cpu"))


@pytest.fixture(scope="session")
def reference(_trained: Path) -> ModelTranslator:
    """Another translator of the same run, for one text at a time."""
    return ModelTranslator.from_run(RunDirectory(_trained), device=torch.device("cpu"))


@pytest.fixture(scope="session")
def align(translator: ModelTranslator) -> Align:
    layer = aligning_layer(translator)
    return lambda source, translations: word_alignments(translator, source, translations, layer)


class Gate:
    """Holds every search until it is opened, and remembers the texts of each."""

    def __init__(self, search: Callable[..., list[list[Translation]]]) -> None:
        self.searched: list[Sequence[str]] = []
        self.entered = threading.Event()
        self.opened = threading.Event()
        self._search = search

    def __call__(self, texts: Sequence[str], **options: Any) -> list[list[Translation]]:
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


@pytest.fixture
def batched(translator: ModelTranslator, align: Align) -> Iterator[BatchedTranslator]:
    """With room for 20 texts to wait; its batches have 8."""
    with BatchedTranslator(translator, max_waiting=20, align=align) as made:
        yield made


@pytest.fixture
def sources(tiny_corpus: Path) -> list[str]:
    """Sentences that the model has been trained on."""
    return (tiny_corpus / "train.en").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def serving(batched: BatchedTranslator) -> Callable[..., AbstractContextManager[int]]:
    """Serves in a thread of this process, at a port of 127.0.0.1 that the context gives."""

    @contextmanager
    def serve(*, max_seconds: float = 60, token: str | None = None) -> Iterator[int]:
        run = ServedRun("tiny", "en", "de", "best", batched)
        app = Service([run], Limits(max_seconds=max_seconds), token=token).app()
        server = make_server(app, max_seconds=max_seconds)
        with bind("127.0.0.1", 0) as bound:
            thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
            thread.start()
            try:
                yield bound.getsockname()[1]
            finally:
                server.should_exit = True
                thread.join()

    return serve
