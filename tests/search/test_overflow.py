"""A sentence whose logits are NaN or infinite is reported, not translated by an empty line."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from mt.search.hypothesis import NotFiniteError
from mt.search.strategy import Beam, Sampling, Strategy
from mt.special_tokens import BOS_ID
from tests.fixture_types import MakeRequest
from tests.search.reference import search

#              PAD  UNK  BOS  EOS   a    b    c
ENDING = [0.0, 0.0, 0.0, 99.0, 1.0, 1.0, 1.0]
SHORT = dict.fromkeys(range(7), ENDING) | {BOS_ID: [0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0]}
AT_ONCE = {token: [math.nan] * 7 for token in range(7)}
# A beam has finished a hypothesis before the logits of the others are NaN.
LATER = AT_ONCE | {BOS_ID: [0.0, 0.0, 0.0, 1.0, 99.0, 0.0, 0.0]}
INFINITE = SHORT | {BOS_ID: [0.0, 0.0, 0.0, 0.0, math.inf, math.inf, 0.0]}


@pytest.mark.parametrize("with_scores", [True, False])
@pytest.mark.parametrize("strategy", [None, Beam(3), Sampling(top_k=2, top_p=0.9)])
@pytest.mark.parametrize("table", [AT_ONCE, LATER, INFINITE], ids=["at once", "later", "infinite"])
def test_the_sentences_whose_logits_are_not_finite_are_named(
    table: dict[int, list[float]],
    strategy: Strategy,
    with_scores: bool,
    table_model: Callable[..., Any],
    table_request: MakeRequest,
) -> None:
    model = table_model(SHORT, table)
    # More than the few rows whose maximum is found at once, too.
    for which in ([0, 1, 0, 0], [0] * 20 + [1, 0, 1]):
        request = table_request(which, [5] * len(which), with_scores=with_scores)
        with pytest.raises(NotFiniteError) as overflow:
            search(model, request, strategy)
        assert list(overflow.value.sentences) == [place for place, is_nan in enumerate(which) if is_nan]
    search(model, table_request([0] * 20, [5] * 20, with_scores=with_scores), strategy)
