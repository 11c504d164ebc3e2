"""Greedy search with a real Transformer against a loop without a cache or a batch."""

import math
from dataclasses import replace

import pytest

from mt.search.greedy import greedy_search
from mt.special_tokens import UNK_ID
from mt.transformer.transformer import Transformer
from tests.fixture_types import MakeRequest
from tests.search.reference import naive_search


@pytest.mark.parametrize("padding", [0, 5])
@pytest.mark.parametrize("keep_unk", [False, True])
def test_greedy_search_equals_a_naive_loop_in_any_batch_order_and_padding(
    keep_unk: bool,
    padding: int,
    transformer: Transformer,
    sentences: list[list[int]],
    make_request: MakeRequest,
) -> None:
    request = make_request(sentences, keep_unk=keep_unk)
    expected = [
        naive_search(transformer, sentence, limit, keep_unk=keep_unk)
        for sentence, limit in zip(sentences, request.limits, strict=True)
    ]
    for group in (range(12), range(11, -1, -1), [3], [5, 5, 5, 0], [4, 7, 1, 2, 6]):
        request = make_request([sentences[i] for i in group], padding, keep_unk=keep_unk)
        for ours, i in zip(greedy_search(transformer, request), group, strict=True):
            assert (list(ours.ids), ours.finished) == (expected[i].ids, expected[i].finished)
            assert ours.score == pytest.approx(expected[i].score, abs=1e-4, rel=1e-4)
    # Otherwise the comparison would prove little.
    assert {hypothesis.finished for hypothesis in expected} == {True, False}
    assert len({len(hypothesis.ids) for hypothesis in expected}) > 4
    assert any(UNK_ID in hypothesis.ids for hypothesis in expected) == keep_unk


def test_without_scores_the_same_is_found(
    transformer: Transformer, sentences: list[list[int]], make_request: MakeRequest
) -> None:
    request = make_request(sentences)
    found = greedy_search(transformer, replace(request, with_scores=False))
    assert [each.ids for each in found] == [each.ids for each in greedy_search(transformer, request)]
    assert all(math.isnan(each.score) for each in found)
