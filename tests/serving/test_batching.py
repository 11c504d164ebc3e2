"""Batching without HTTP: whatever shares a batch, each answer is that of the text alone."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mt.errors import LinesError
from mt.inference.model_translator import ModelTranslator
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam
from mt.serving.api import Result, TranslateRequest
from mt.serving.batching import BatchedTranslator
from tests.serving.conftest import Gate

start = asyncio.ensure_future


def texts_of(results: Sequence[Result]) -> list[str]:
    return [result.translations[0].text for result in results]


def asked(beam: int = 1, n_best: int = 1) -> TranslateRequest:
    return TranslateRequest.model_validate({"text": "", "beam": beam, "n_best": n_best})


def waiting(batched: BatchedTranslator) -> object:
    return batched.health()["waiting"]


async def entered(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.entered.wait, 60)


def test_concurrent_answers_are_those_of_each_text_alone(
    translator: ModelTranslator, reference: ModelTranslator, tiny_corpus: Path
) -> None:
    batched = BatchedTranslator(lambda: translator, "tiny", max_waiting=100)
    lines = (tiny_corpus / "train.en").read_text(encoding="utf-8").splitlines()
    sources = [*lines[:30], "", "the zebra sees milk."]
    requests = [(source, beam) for source in sources for beam in (1, 4)]

    async def ask() -> list[list[Result]]:
        return await asyncio.gather(
            *(batched.translate([source], asked(beam, min(beam, 3))) for source, beam in requests)
        )

    for (source, beam), [result] in zip(requests, asyncio.run(ask()), strict=True):
        [alone] = reference.n_best([source], strategy=Beam(4) if beam > 1 else None, num_best=min(beam, 3))
        assert [each.text for each in result.translations] == [each.text for each in alone]
        for answer, expected in zip(result.translations, alone, strict=True):
            assert answer.score == pytest.approx(expected.score, abs=1e-4)


def test_what_waits_with_the_same_settings_is_searched_together(
    gate: Gate, batched: BatchedTranslator
) -> None:
    async def ask() -> None:
        answers = [start(batched.translate(["Anna"], asked()))]
        await entered(gate)
        for texts, beam in ((["a"] * 5, 1), (["b"] * 5, 1), (["c"], 4), (["d"] * 2, 1), (["e"], 4)):
            answers.append(start(batched.translate(texts, asked(beam))))
        answers.append(start(batched.translate(["f"], asked(4, n_best=2))))
        # As many characters as a batch may have, and so too many beside others.
        answers.append(start(batched.translate([64 * 8 * "g"], asked())))
        # With a beam, a character counts once for each hypothesis.
        answers.append(start(batched.translate([127 * "h"], asked(4))))
        await asyncio.sleep(0)
        assert waiting(batched) == 17
        gate.opened.set()
        assert [len(results) for results in await asyncio.gather(*answers)] == [1, 5, 5, 1, 2, 1, 1, 1, 1]

    asyncio.run(ask())
    searched = ["".join(texts) for texts in gate.searched]
    assert searched == ["Anna", "aaaaabbbbbdd", "ce", "f", 512 * "g", 127 * "h"]


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_a_large_request_makes_way_for_smaller_ones(
    engine: Any, trained: RunDirectory, reference: ModelTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(engine)
    translator = Translator.from_run(trained, engine=engine, device="cpu", precision="float32")
    texts = ["\n".join(["Anna buys milk.", "the dog sees a house.", "my aunt finds milk."] * 30)] * 3
    searched, really = list[int](), translator.engine.search

    def search(sentences: Sequence[Any], *arguments: Any) -> Any:
        searched.append(len(sentences))
        return really(sentences, *arguments)

    async def ask() -> None:
        large = start(batched.translate(texts, asked(4)))
        while not searched:
            await asyncio.sleep(0.001)
        assert texts_of(await batched.translate(["Anna buys milk."], asked())) == ["Anna kauft Milch."]
        assert not large.done()
        assert texts_of(await large) == reference.translate(texts, strategy=Beam(4))

    monkeypatch.setattr("mt.serving.batching._TURN_SECONDS", 0.0)
    monkeypatch.setattr(translator.engine, "search", search)
    batched = BatchedTranslator(lambda: translator, "tiny", max_waiting=20)
    asyncio.run(ask())
    assert sum(searched) == 270 + 1
    # CTranslate2, which does not stop before it is done, gets few sentences at a time.
    assert engine == "torch" or max(searched) < 270


@pytest.mark.usefixtures("little_memory")
def test_a_bad_text_fails_its_own_request_alone_and_by_its_own_number(
    gate: Gate, batched: BatchedTranslator, reference: ModelTranslator
) -> None:
    good = ["Anna buys milk.", "the dog sees a house."]
    bad = [*good * 6, "milk " * 14]
    expected = reference.translate(good)

    async def ask() -> None:
        first = start(batched.translate(good[:1], asked()))
        await entered(gate)
        others = [start(batched.translate(texts, asked())) for texts in (good, bad, good[1:])]
        await asyncio.sleep(0)
        gate.opened.set()
        results = await asyncio.gather(first, *others, return_exceptions=True)
        refused = results.pop(2)
        assert isinstance(refused, LinesError)
        assert "line 13 has a sentence of 14 tokens that does not fit into memory" in str(refused)
        answers = [texts_of(each) for each in results if not isinstance(each, BaseException)]
        assert answers == [expected[:1], expected, expected[1:]]

    asyncio.run(ask())


def test_a_full_queue_refuses_and_what_is_cancelled_leaves_it(gate: Gate, batched: BatchedTranslator) -> None:
    async def ask() -> None:
        first = start(batched.translate(["one"], asked()))
        await entered(gate)
        # An empty queue takes whatever a request may have.
        second = start(batched.translate(["two"] * 25, asked()))
        await asyncio.sleep(0)
        with pytest.raises(asyncio.QueueFull):
            await batched.translate(["three"], asked())
        second.cancel()
        await asyncio.sleep(0)
        assert waiting(batched) == 0
        third = start(batched.translate(["four"], asked()))
        await asyncio.sleep(0)
        # While it is being searched, too.
        first.cancel()
        gate.opened.set()
        assert len(await third) == 1

    asyncio.run(ask())
    assert [list(texts) for texts in gate.searched] == [["one"], ["four"]]


def test_a_search_that_is_cancelled_ends_at_its_next_step(
    translator: ModelTranslator, batched: BatchedTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun = threading.Event()

    def search_without_end(sentences: Any, rules: Any, check: Callable[[], None], after: Any) -> None:
        has_begun.set()
        end = time.monotonic() + 60
        while time.monotonic() < end:
            check()
            time.sleep(0.001)

    async def ask() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(translator.engine, "search", search_without_end)
            first = start(batched.translate(["Anna buys milk."], asked()))
            assert await asyncio.to_thread(has_begun.wait, 60)
        first.cancel()
        assert texts_of(await batched.translate(["Anna buys milk."], asked())) == ["Anna kauft Milch."]

    asyncio.run(ask())
