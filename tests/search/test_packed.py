"""Search with a cache finds what it finds without one, and the shortcuts of search are exact."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from mt.search.beam import beam_search
from mt.search.greedy import greedy_search
from mt.search.hypothesis import Hypothesis
from mt.search.request import SearchRequest
from mt.search.sampling import sample
from mt.search.strategy import Beam, Constraints, Sampling
from mt.search.vocabulary import block_maxima, likeliest
from mt.transformer.packed_transformer import PackedTransformer
from mt.transformer.transformer import Transformer
from tests.uncached import UncachedTransformer

MakeRequest = Callable[..., SearchRequest]
SEARCHES: dict[str, Callable[[Any, SearchRequest], list[list[Hypothesis]]]] = {
    "greedy": lambda model, request: [[found] for found in greedy_search(model, request)],
    "beam": lambda model, request: beam_search(model, request, Beam(4)),
    "sampling": lambda model, request: [
        [found] for found in sample(model, request, Sampling(1.0, 3), range(len(request.limits)))
    ],
}


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("constraints", [Constraints(), Constraints(3, 2)], ids=["free", "constrained"])
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_the_packed_model_finds_what_the_plain_one_does_without_a_cache(
    search: Callable[[Any, SearchRequest], list[list[Hypothesis]]],
    constraints: Constraints,
    copies: bool,
    transformer: Transformer,
    packed: PackedTransformer,
    sentences: list[list[int]],
    make_request: MakeRequest,
) -> None:
    request = make_request(sentences, constraints=constraints)
    if copies:
        request = replace(request, copyable=request.src_ids % 5 == 0)
    expected = search(UncachedTransformer(transformer), request)
    for ours, theirs in zip(search(packed, request), expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert (list(a.ids), a.finished, list(a.copied)) == (list(b.ids), b.finished, list(b.copied))
            assert a.score == pytest.approx(b.score, abs=1e-4)


def test_without_scores_the_same_is_found(
    packed: PackedTransformer, sentences: list[list[int]], make_request: MakeRequest
) -> None:
    request = make_request(sentences)
    scored = greedy_search(packed, request)
    found = greedy_search(packed, replace(request, with_scores=False))
    assert [each.ids for each in found] == [each.ids for each in scored]
    assert all(each.score != each.score for each in found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_rows", [1, 17])
@pytest.mark.parametrize("vocab_size", [5, 128, 1000])
def test_the_likeliest_token_is_the_first_with_the_highest_logit(
    vocab_size: int, num_rows: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    # Rounded, so that several tokens have the highest logit.
    logits = torch.randn(num_rows, vocab_size).mul(4).round().to(dtype)
    logits[0] = -torch.inf
    logits[0, -1] = -9.0
    assert likeliest(logits).equal(logits.argmax(-1))
    assert block_maxima(logits).amax(-1).equal(logits.amax(-1))
