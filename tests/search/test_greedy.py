"""Greedy search with a real Transformer against a loop without a cache or a batch."""

import math
from dataclasses import replace

import pytest

from mt.search.greedy import greedy_search
from mt.search.hypothesis import Hypothesis
from mt.special_tokens import UNK_ID
from mt.transformer.transformer import Transformer
from tests.fixture_types import MakeRequest
from tests.search.reference import naive_search


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert list(ours.ids) == list(theirs.ids)
        assert ours.score == pytest.approx(theirs.score, abs=1e-4, rel=1e-4)
        assert ours.finished == theirs.finished


@pytest.mark.parametrize("keep_unk", [False, True])
def test_greedy_search_equals_a_naive_loop(
    keep_unk: bool, transformer: Transformer, sentences: list[list[int]], make_request: MakeRequest
) -> None:
    request = make_request(sentences, keep_unk=keep_unk)
    found = greedy_search(transformer, request)
    expected = [
        naive_search(transformer, sentence, limit, keep_unk=keep_unk)
        for sentence, limit in zip(sentences, request.limits, strict=True)
    ]
    assert_same(found, expected)
    # Otherwise the comparison would prove little.
    assert {hypothesis.finished for hypothesis in found} == {True, False}
    assert len({len(hypothesis.ids) for hypothesis in found}) > 4
    assert any(UNK_ID in hypothesis.ids for hypothesis in found) == keep_unk


@pytest.mark.parametrize("padding", [0, 5])
@pytest.mark.parametrize(
    "groups",
    [
        [[i] for i in range(12)],
        [list(range(12))[::-1]],
        [[3, 7, 1], [0, 2, 4, 5, 6], [11, 10], [9, 8]],
        [[5, 5, 5, 0], [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]],
    ],
    ids=["alone", "reversed", "grouped", "repeated"],
)
def test_same_sentence_same_translation_in_any_batch_order_and_padding(
    groups: list[list[int]],
    padding: int,
    transformer: Transformer,
    sentences: list[list[int]],
    make_request: MakeRequest,
) -> None:
    expected = greedy_search(transformer, make_request(sentences))
    for group in groups:
        found = greedy_search(transformer, make_request([sentences[i] for i in group], padding))
        assert_same(found, [expected[i] for i in group])


def test_without_scores_the_same_is_found(
    transformer: Transformer, sentences: list[list[int]], make_request: MakeRequest
) -> None:
    request = make_request(sentences)
    found = greedy_search(transformer, replace(request, with_scores=False))
    assert [each.ids for each in found] == [each.ids for each in greedy_search(transformer, request)]
    assert all(math.isnan(each.score) for each in found)
