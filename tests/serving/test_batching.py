"""Batching without HTTP: whatever shares a batch, each answer is that of the text alone."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from mt.errors import LinesError
from mt.inference.model_translator import ModelTranslator
from mt.inference.segments import Translation
from mt.search.strategy import Beam
from mt.serving import batching
from mt.serving.batching import Answer, BatchedTranslator, QueueFullError, SearchSettings, StoppingError

if TYPE_CHECKING:
    from tests.serving.conftest import Gate

GREEDY = SearchSettings()
BEAM = SearchSettings(Beam(4), num_best=3)
TOO_LONG = "milk " * 40
SECONDS = 60


def texts_of(answers: Sequence[Answer]) -> list[str]:
    return [answer.translations[0].text for answer in answers]


def answers_of(future: "Future[list[Answer]]") -> list[str]:
    return texts_of(future.result(SECONDS))


def test_concurrent_answers_are_those_of_each_text_alone(
    batched: BatchedTranslator, reference: ModelTranslator, sources: list[str]
) -> None:
    sources = [*sources[:40], "", "the zebra sees milk."]
    requests = [(source, settings) for source in sources for settings in (GREEDY, BEAM)]
    random.Random(1).shuffle(requests)

    def ask(request: tuple[str, SearchSettings]) -> Answer:
        source, settings = request
        [answer] = batched.submit([source], settings).result(SECONDS)
        return answer

    with ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(ask, requests))
    for (source, settings), answer in zip(requests, answers, strict=True):
        [alone] = reference.n_best([source], strategy=settings.strategy, num_best=settings.num_best)
        assert [each.text for each in answer.translations] == [each.text for each in alone]
        for found, expected in zip(answer.translations, alone, strict=True):
            assert found.score == pytest.approx(expected.score, abs=1e-4)


def test_what_waits_together_is_searched_together_in_order(
    gate: "Gate", batched: BatchedTranslator, reference: ModelTranslator, sources: list[str]
) -> None:
    sources = sources[:12]
    first = batched.submit(sources[:1], GREEDY)
    assert gate.entered.wait(SECONDS)
    rest = [batched.submit([source], GREEDY) for source in sources[1:]]
    gate.opened.set()
    translations = [answers_of(each)[0] for each in (first, *rest)]
    assert translations == reference.translate(sources)
    # The model's batches have 8 sentences.
    assert [list(each) for each in gate.searched] == [sources[:1], sources[1:9], sources[9:]]


def test_a_batch_waits_for_those_that_were_just_answered_and_a_client_that_is_alone_for_nobody(
    gate: "Gate", batched: BatchedTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "_SHARE_OF_WAITING", 1e9)
    monkeypatch.setattr(batching, "_MOST_SECONDS_OF_WAITING", 1e6)
    gate.opened.set()
    for text in ("one", "two"):
        batched.submit([text], GREEDY).result(SECONDS)
    gate.opened.clear()
    gate.entered.clear()
    first = batched.submit(["three"], GREEDY)
    assert gate.entered.wait(SECONDS)
    waiting = batched.submit(["four"], GREEDY)
    gate.opened.set()
    first.result(SECONDS)
    # The first client again, though the other would have been translated without it.
    for each in (batched.submit(["five"], GREEDY), waiting):
        each.result(SECONDS)
    assert [list(texts) for texts in gate.searched] == [["one"], ["two"], ["three"], ["four", "five"]]


def test_only_equal_settings_share_a_batch_and_nobody_is_overtaken_for_good(
    gate: "Gate", batched: BatchedTranslator
) -> None:
    waiting = [batched.submit(["Anna buys milk."], GREEDY)]
    assert gate.entered.wait(SECONDS)
    for text, settings in (("one", BEAM), ("two", GREEDY), ("three", BEAM), ("four", GREEDY)):
        waiting.append(batched.submit([text], settings))
    gate.opened.set()
    for each in waiting:
        each.result(SECONDS)
    assert gate.searched[1:] == [["one", "three"], ["two", "four"]]


def test_a_request_stays_together_and_small_ones_fill_the_batch(
    gate: "Gate", batched: BatchedTranslator
) -> None:
    waiting = [batched.submit(["Anna buys milk."], GREEDY)]
    assert gate.entered.wait(SECONDS)
    for texts in (["a"] * 5, ["b"] * 5, ["c"] * 2):
        waiting.append(batched.submit(texts, GREEDY))
    gate.opened.set()
    assert [len(each.result(SECONDS)) for each in waiting] == [1, 5, 5, 2]
    assert gate.searched[1:] == [[*"aaaaacc"], [*"bbbbb"]]


def test_a_bad_text_fails_its_own_request_alone_and_by_its_own_number(
    gate: "Gate", batched: BatchedTranslator, reference: ModelTranslator
) -> None:
    good = ["Anna buys milk.", "the dog sees a house."]
    waiting = [batched.submit(good[:1], GREEDY)]
    assert gate.entered.wait(SECONDS)
    waiting.append(batched.submit(good, GREEDY))
    bad = batched.submit([good[0], TOO_LONG], GREEDY)
    waiting.append(batched.submit(good[1:], GREEDY))
    gate.opened.set()
    with pytest.raises(LinesError, match="line 2 has a sentence of 41 tokens"):
        bad.result(SECONDS)
    expected = reference.translate(good)
    assert [answers_of(each) for each in waiting] == [expected[:1], expected, expected[1:]]
    # All at first, then the bad one, then all others together.
    assert [len(texts) for texts in gate.searched] == [1, 5, 2, 3]


def test_a_full_queue_refuses_and_says_when_to_try_again(gate: "Gate", batched: BatchedTranslator) -> None:
    first = batched.submit(["milk"], GREEDY)
    assert gate.entered.wait(SECONDS)
    assert batched.num_waiting == 0
    # Into an empty queue goes whatever a request may have.
    second = batched.submit(["milk"] * 25, GREEDY)
    assert batched.num_waiting == 25
    with pytest.raises(QueueFullError) as full:
        batched.submit(["milk"], GREEDY)
    assert full.value.retry_after_seconds >= 1
    gate.opened.set()
    assert len(first.result(SECONDS)) + len(second.result(SECONDS)) == 26
    assert batched.submit(["milk"], GREEDY).result(SECONDS)


def test_leaving_answers_what_was_accepted_and_accepts_nothing_more(
    translator: ModelTranslator, gate: "Gate", reference: ModelTranslator
) -> None:
    with BatchedTranslator(translator, max_waiting=20) as batched:
        waiting = [batched.submit(["milk"], GREEDY) for _ in range(12)]
        assert gate.entered.wait(SECONDS)
        gate.opened.set()
    assert [answers_of(each) for each in waiting] == [reference.translate(["milk"])] * 12
    with pytest.raises(StoppingError):
        batched.submit(["milk"], GREEDY)


def test_what_is_cancelled_is_not_searched_and_leaves_the_queue(
    gate: "Gate", batched: BatchedTranslator
) -> None:
    first = batched.submit(["one"], GREEDY)
    assert gate.entered.wait(SECONDS)
    second = batched.submit(["two"] * 15, GREEDY)
    third = batched.submit(["three"] * 5, GREEDY)
    assert second.cancel()
    assert batched.num_waiting == 5
    # While it is being searched, too.
    assert first.cancel()
    gate.opened.set()
    assert len(third.result(SECONDS)) == 5
    assert [text for texts in gate.searched for text in texts] == ["one", *["three"] * 5]
    with pytest.raises(CancelledError):
        first.result(SECONDS)


def test_what_is_cancelled_while_it_is_searched_ends_at_the_next_step(
    translator: ModelTranslator, batched: BatchedTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun = threading.Event()

    def search_without_end(*_: Any, check: Callable[[], None], **__: Any) -> None:
        has_begun.set()
        end = time.monotonic() + 2 * SECONDS
        while time.monotonic() < end:
            check()
            time.sleep(0.001)

    with monkeypatch.context() as patch:
        patch.setattr(translator.engine, "search", search_without_end)
        first = batched.submit(["Anna buys milk."], GREEDY)
        assert has_begun.wait(SECONDS)
    second = batched.submit(["Anna buys milk."], GREEDY)
    assert first.cancel()
    assert answers_of(second) == ["Anna kauft Milch."]


def test_an_unexpected_error_reaches_its_request_and_the_next_is_answered(
    translator: ModelTranslator, batched: BatchedTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(translator, "n_best", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            batched.submit(["milk"], GREEDY).result(SECONDS)
    assert answers_of(batched.submit(["Anna buys milk."], GREEDY)) == ["Anna kauft Milch."]


def test_words_are_aligned_when_that_is_asked_for(batched: BatchedTranslator) -> None:
    assert batched.can_align
    [plain] = batched.submit(["Anna buys milk."], BEAM).result(SECONDS)
    assert plain.alignments is None
    texts = ["Anna buys milk.", "", "milk. " * 20]
    aligned, empty, in_parts = batched.submit(texts, GREEDY, aligned=True).result(SECONDS)
    assert aligned.alignments is not None
    assert empty.alignments == [[]]
    assert in_parts.alignments == [None]
    [pairs] = aligned.alignments
    assert pairs is not None
    assert [target for _, target in pairs] == [0, 1, 2]
    assert all(0 <= source < 3 for source, _ in pairs)


def test_the_others_do_not_wait_for_alignments_which_end_when_nobody_waits_for_them(
    translator: ModelTranslator, gate: "Gate"
) -> None:
    aligned: list[str] = []
    answered_before: list[bool] = []

    def align(source: str, translations: Sequence[Translation]) -> list[None]:
        aligned.append(source)
        answered_before.append(plain.done())
        slow.cancel()
        return [None] * len(translations)

    with BatchedTranslator(translator, max_waiting=100, align=align) as batched:
        first = batched.submit(["the dog"], GREEDY)
        assert gate.entered.wait(SECONDS)
        slow = batched.submit(["a cat", "a car", "a house"], GREEDY, aligned=True)
        plain = batched.submit(["milk"], GREEDY)
        gate.opened.set()
        assert len(first.result(SECONDS)) == len(plain.result(SECONDS)) == 1
    assert gate.searched == [["the dog"], ["a cat", "a car", "a house", "milk"]]
    assert aligned == ["a cat"]
    assert answered_before == [True]
