"""Search with a cache finds what it finds without one, and the shortcuts of search are exact."""

from dataclasses import replace

import pytest
import torch

from mt.search.strategy import Beam, Constraints, Sampling, Strategy
from mt.search.top_k import top_k
from mt.transformer.transformer import Transformer
from tests.fixture_types import MakeRequest
from tests.search.reference import search
from tests.uncached import UncachedTransformer


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("constraints", [Constraints(), Constraints(3, 2)], ids=["free", "constrained"])
@pytest.mark.parametrize("strategy", [None, Beam(4), Sampling(1.0, 3)], ids=["greedy", "beam", "sampling"])
def test_search_finds_what_it_finds_without_a_cache(
    strategy: Strategy,
    constraints: Constraints,
    copies: bool,
    transformer: Transformer,
    sentences: list[list[int]],
    make_request: MakeRequest,
) -> None:
    request = make_request(sentences, constraints=constraints)
    if copies:
        request = replace(request, copyable=request.src_ids % 5 == 0)
    expected = search(UncachedTransformer(transformer), request, strategy)
    for ours, theirs in zip(search(transformer, request, strategy), expected, strict=True):
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
