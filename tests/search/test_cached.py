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
from mt.search.top_k import top_k
from mt.transformer.transformer import Transformer
from tests.fixture_types import MakeRequest
from tests.uncached import UncachedTransformer

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
def test_search_finds_what_it_finds_without_a_cache(
    search: Callable[[Any, SearchRequest], list[list[Hypothesis]]],
    constraints: Constraints,
    copies: bool,
    transformer: Transformer,
    sentences: list[list[int]],
    make_request: MakeRequest,
) -> None:
    request = make_request(sentences, constraints=constraints)
    if copies:
        request = replace(request, copyable=request.src_ids % 5 == 0)
    expected = search(UncachedTransformer(transformer), request)
    for ours, theirs in zip(search(transformer, request), expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert (list(a.ids), a.finished, list(a.copied)) == (list(b.ids), b.finished, list(b.copied))
            assert a.score == pytest.approx(b.score, abs=1e-4, rel=1e-4)


@pytest.mark.parametrize("num_rows", [1, 17])
@pytest.mark.parametrize(("length", "k"), [(5, 1), (5, 5), (128, 3), (1000, 1), (1000, 10), (1000, 1000)])
def test_top_k_are_the_highest_of_each_row(length: int, k: int, num_rows: int) -> None:
    torch.manual_seed(0)
    # Rounded, so that several numbers are equal.
    x = torch.randn(num_rows, length).mul(4).round()
    x[0] = -torch.inf
    x[0, -1] = -9.0
    values, indices = top_k(x, k)
    assert values.equal(x.topk(k).values)
    is_finite = values.isfinite()
    assert x.gather(1, indices)[is_finite].equal(values[is_finite])
    if k == 1:
        assert indices[:, 0].equal(x.argmax(-1))
