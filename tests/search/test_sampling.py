"""Frequencies of samples must be those of softmax(logits / T), within a chi-square bound."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from mt.search.greedy import greedy_search
from mt.search.hypothesis import Hypothesis
from mt.search.sampling import sample
from mt.search.strategy import Sampling
from mt.special_tokens import BOS_ID, EOS_ID, UNK_ID
from mt.transformer.transformer import Transformer
from tests.fixture_types import MakeRequest

A, B, C, D = 4, 5, 6, 7
#             PAD  UNK  BOS  EOS   a    b     c    d
LOGITS = [5.0, 4.0, 3.0, 0.5, 2.0, 1.0, -0.5, 0.0]
TABLE = dict.fromkeys([BOS_ID, UNK_ID, A, B, C, D], LOGITS)
NUM_DRAWS = 6000


def probabilities(temperature: float, allowed: list[int]) -> dict[int, float]:
    weights = {token: math.exp(LOGITS[token] / temperature) for token in allowed}
    return {token: weight / sum(weights.values()) for token, weight in weights.items()}


def chi_square(counts: Counter[Any], expected: dict[Any, float]) -> float:
    total = sum(counts.values())
    assert set(counts) <= set(expected)
    return sum((counts[key] - total * p) ** 2 / (total * p) for key, p in expected.items())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0, 1e300])
@pytest.mark.parametrize("keep_unk", [False, True])
def test_frequencies_are_those_of_the_softmax(
    keep_unk: bool, temperature: float, table_model: Callable[..., Any], table_request: MakeRequest
) -> None:
    found = sample(
        table_model(TABLE),
        table_request([0] * NUM_DRAWS, [1] * NUM_DRAWS, keep_unk=keep_unk),
        Sampling(temperature),
        range(NUM_DRAWS),
    )
    counts = Counter(hypothesis.ids[0] if hypothesis.ids else EOS_ID for hypothesis in found)
    allowed = [*([UNK_ID] if keep_unk else []), EOS_ID, A, B, C, D]
    # With 5 degrees of freedom chi-square passes 25.7 once in ten thousand times.
    assert chi_square(counts, probabilities(temperature, allowed)) < 25.7


def test_steps_are_drawn_independently(table_model: Callable[..., Any], table_request: MakeRequest) -> None:
    found = sample(
        table_model(TABLE), table_request([0] * NUM_DRAWS, [2] * NUM_DRAWS), Sampling(), range(NUM_DRAWS)
    )
    single = probabilities(1.0, [EOS_ID, A, B, C, D])
    expected: dict[tuple[int, ...], float] = {(EOS_ID,): single[EOS_ID]}
    expected |= {(i, j): single[i] * single[j] for i in single for j in single if i != EOS_ID}
    counts = Counter((*found_ids.ids, EOS_ID)[:2] for found_ids in found)
    assert {len(key) for key in counts} == {1, 2}
    # 20 degrees of freedom: 52.4 once in ten thousand times.
    assert chi_square(counts, expected) < 52.4


def test_score_is_the_log_probability_at_temperature_one(
    table_model: Callable[..., Any], table_request: MakeRequest
) -> None:
    found = sample(table_model(TABLE), table_request([0] * 20, [5] * 20), Sampling(2.0), range(20))
    normaliser = math.log(sum(math.exp(LOGITS[token]) for token in (EOS_ID, A, B, C, D)))
    for hypothesis in found:
        tokens = [*hypothesis.ids, *([EOS_ID] if hypothesis.finished else [])]
        expected = sum(LOGITS[token] - normaliser for token in tokens)
        assert hypothesis.score == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature .* above 0, not 0.0"),
        ({"temperature": math.nan}, "temperature .* above 0, not nan"),
        ({"seed": 2**32}, "seed must be from 0 to 4294967295"),
        ({"top_k": -1}, "top_k must be at least 0"),
        ({"top_p": 1.1}, "0 < top_p <= 1"),
        ({"top_p": 0.0}, "0 < top_p <= 1"),
        ({"temperature": math.inf}, "temperature .* above 0, not inf"),
        ({"seed": -1}, "seed must be from 0 to 4294967295"),
    ],
)
def test_options_have_bounds(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sampling(**options)
    assert Sampling(seed=2**32 - 1).seed == 2**32 - 1


@pytest.mark.parametrize("temperature", [1e-4, 1e-45, 1e-300])
def test_temperature_near_zero_is_greedy(
    temperature: float, transformer: Transformer, sentences: list[list[int]], make_request: MakeRequest
) -> None:
    request = make_request(sentences)
    greedy = greedy_search(transformer, request)
    found = sample(transformer, request, Sampling(temperature), range(len(sentences)))
    assert [list(hypothesis.ids) for hypothesis in found] == [list(hypothesis.ids) for hypothesis in greedy]


def test_seed_and_number_determine_the_draw_in_any_batch(
    transformer: Transformer, sentences: list[list[int]], make_request: MakeRequest
) -> None:
    numbers = [7 * i + 1 for i in range(len(sentences))]

    def draw(rows: list[int], padding: int = 0) -> list[Hypothesis]:
        request = make_request([sentences[i] for i in rows], padding)
        torch.manual_seed(len(rows))  # the global generator must not matter
        return sample(transformer, request, Sampling(seed=0), [numbers[i] for i in rows])

    rows = list(range(len(sentences)))
    expected = draw(rows)
    assert len({tuple(hypothesis.ids) for hypothesis in expected}) == len(expected)
    for group in ([[i] for i in rows], [rows[::-1]], [[5, 2, 2], [0, 1, 9]]):
        for part in group:
            for found, i in zip(draw(part, padding=3), part, strict=True):
                assert list(found.ids) == list(expected[i].ids)
                assert found.score == pytest.approx(expected[i].score, abs=1e-4, rel=1e-4)


@pytest.mark.parametrize(
    ("top_k", "top_p", "temperature", "allowed"),
    [
        (2, 1.0, 2.0, [A, B]),
        (99, 1.0, 1.0, [EOS_ID, A, B, C, D]),
        (1, 1.0, 1.0, [A]),
        # Probabilities of the allowed tokens: 0.553 a, 0.204 b, 0.123 EOS, 0.075 d, 0.045 c.
        (0, 0.55, 1.0, [A]),
        (0, 0.56, 1.0, [A, B]),
        (0, 0.80, 1.0, [A, B, EOS_ID]),
        (0, 1e-9, 1.0, [A]),
        # Among the two of top-k, a has 0.731.
        (2, 0.73, 1.0, [A]),
        (2, 0.74, 1.0, [A, B]),
    ],
)
def test_top_k_and_top_p_renormalise_the_tokens_they_keep(
    top_k: int,
    top_p: float,
    temperature: float,
    allowed: list[int],
    table_model: Callable[..., Any],
    table_request: MakeRequest,
) -> None:
    num = 3000
    found = sample(
        table_model(TABLE),
        table_request([0] * num, [1] * num),
        Sampling(temperature, top_k=top_k, top_p=top_p),
        range(num),
    )
    counts = Counter(hypothesis.ids[0] if hypothesis.ids else EOS_ID for hypothesis in found)
    assert set(counts) == set(allowed)
    # Four degrees of freedom at most: 23.5 once in ten thousand times.
    assert chi_square(counts, probabilities(temperature, allowed)) < 23.5


def test_neighbouring_seeds_and_lines_draw_differently(
    transformer: Transformer, sentences: list[list[int]], make_request: MakeRequest
) -> None:
    request = make_request([sentences[0]] * 12)
    one = sample(transformer, request, Sampling(seed=1), range(1, 13))
    other = sample(transformer, request, Sampling(seed=2), range(12))
    assert sum(ours.ids == theirs.ids for ours, theirs in zip(one, other, strict=True)) < 6
