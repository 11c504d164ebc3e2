"""Decoding token by token with a model that is a table: every path and score is computed by hand."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from mt.inference.engines import Rules, Sentence
from mt.inference.torch_engine import TorchEngine
from mt.search.greedy import greedy_search
from mt.search.strategy import Beam, Sampling, Strategy
from mt.special_tokens import BOS_ID, EOS_ID, UNK_ID
from tests.fixture_types import MakeConfig, MakeRequest

A, B, C = 4, 5, 6
#          PAD  UNK  BOS  EOS   a    b    c
TABLE = {
    BOS_ID: [9.0, 8.0, 7.0, 0.0, 2.0, 1.0, 0.0],
    A: [0.0, 9.0, 0.0, 1.0, 0.0, 3.0, 2.0],
    B: [9.9, 0.0, 0.0, 1.0, 1.0, 0.0, 1.5],
    C: [0.0, 0.0, 9.0, 2.0, 1.0, 0.0, 0.0],
    UNK_ID: [0.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0],
}
ENDLESS = {BOS_ID: [0.0] * 4 + [1.0, 0.0, 0.0], A: [0.0] * 4 + [3.0, 0.0, 0.0]}
SHORT = {BOS_ID: [0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0], A: [0.0, 0.0, 0.0, 4.0, 1.0, 1.0, 1.0]}


def log_prob(logits: list[float], token: int) -> float:
    """The log-probability among the tokens that may be written."""
    return logits[token] - math.log(sum(math.exp(logits[each]) for each in (EOS_ID, A, B, C)))


def test_path_and_score_by_hand(table_model: Callable[..., Any], table_request: MakeRequest) -> None:
    """PAD, UNK and BOS are the likeliest tokens everywhere, but are never written."""
    (found,) = greedy_search(table_model(TABLE), table_request([0], [10]))
    path = [(BOS_ID, A), (A, B), (B, C), (C, EOS_ID)]
    assert list(found.ids) == [A, B, C]
    assert found.score == pytest.approx(sum(log_prob(TABLE[here], there) for here, there in path), abs=1e-5)
    assert found.finished


@pytest.mark.parametrize("strategy", [None, Beam(2), Sampling()])
def test_a_search_is_given_up_before_any_step(
    strategy: Strategy, table_model: Callable[..., Any], make_config: MakeConfig
) -> None:
    never_ends = [0.0, 0.0, 0.0, -100.0, 0.0, 0.0, 0.0]
    model, calls = table_model(dict.fromkeys((BOS_ID, A, B, C), never_ends)), []

    def stop_before_the_third_step() -> None:
        calls.append(1)
        # The first call is before the batch.
        if len(calls) == 4:
            raise InterruptedError

    engine = TorchEngine(model, torch.device("cpu"), make_config(), "float32")
    with pytest.raises(InterruptedError):
        engine.search([Sentence(1, [A], limit=10)], Rules(strategy), stop_before_the_third_step, len)
    assert len(model.batch_sizes) == 2


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_a_translation_without_eos_stops_at_its_limit(
    limit: int, table_model: Callable[..., Any], table_request: MakeRequest
) -> None:
    model = table_model(ENDLESS)
    (found,) = greedy_search(model, table_request([0], [limit]))
    assert list(found.ids) == [A] * limit
    expected = log_prob(ENDLESS[BOS_ID], A) + (limit - 1) * log_prob(ENDLESS[A], A)
    assert found.score == pytest.approx(expected, abs=1e-5)
    assert not found.finished
    assert len(model.batch_sizes) == limit


def test_sentences_that_are_done_leave_the_batch_a_quarter_at_a_time(
    table_model: Callable[..., Any], table_request: MakeRequest
) -> None:
    model = table_model(ENDLESS, SHORT)
    # The first and the last are done after two tokens, and are a quarter of it; the second after three,
    # which alone is too few, and the third after four.
    found = greedy_search(model, table_request([1, 0, 0, 0, 0, 0, 0, 1], [9, 3, 4, 6, 6, 6, 6, 9]))
    assert [len(each.ids) for each in found] == [1, 3, 4, 6, 6, 6, 6, 1]
    assert model.batch_sizes == [8, 8, 6, 6, 4, 4]
