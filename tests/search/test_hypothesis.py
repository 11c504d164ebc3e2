"""Length limits, and the ranking of hypotheses of different length."""

from typing import Any

import pytest

from mt.search.hypothesis import Hypothesis, cut_off, length_limit
from mt.search.strategy import Beam
from mt.special_tokens import UNK_ID


@pytest.mark.parametrize(
    ("src_length", "max_length", "expected"),
    [(1, 100, 12), (2, 100, 14), (45, 100, 100), (46, 100, 100), (90, 100, 100), (1, 8, 8)],
)
def test_limit_is_twice_the_source_plus_ten_up_to_the_maximum(
    src_length: int, max_length: int, expected: int
) -> None:
    assert length_limit(src_length, max_length) == expected
    # A ratio below 1 does not lower it.
    assert length_limit(src_length, max_length, target_ratio=0.5) == expected


def test_the_limit_grows_with_a_ratio_above_one_and_is_rounded_up() -> None:
    assert length_limit(3, 100, target_ratio=1.1) == 17
    assert length_limit(90, 100, target_ratio=1e300) == 100


def test_a_hypothesis_that_is_cut_keeps_the_copies_of_its_tokens() -> None:
    found = Hypothesis([UNK_ID, 7, UNK_ID, UNK_ID], -6.0, finished=True, copied=[5, 2, 3])
    for length, expected in (
        (4, found),
        (3, Hypothesis([UNK_ID, 7, UNK_ID], -6.0, finished=False, copied=[5, 2])),
        (0, Hypothesis([], -6.0, finished=False, copied=[])),
    ):
        # What is equal after that is kept once, with the first score.
        assert cut_off([(found, 2.0), (found, 1.0)], length) == [(expected, 2.0)]
    # What copies another word is not equal.
    other = Hypothesis([UNK_ID, 8], -7.0, finished=True, copied=[4])
    assert [cut.copied for cut, _ in cut_off([(found, 2.0), (other, 1.0)], 1)] == [[5], [4]]


@pytest.mark.parametrize(("finished", "length"), [(True, 4), (False, 3)])
def test_scores_equal_their_formulas(finished: bool, length: int) -> None:
    found = Hypothesis([7, 8, 9], -6.0, finished)
    assert Beam(1, 0.6).normalised_score(found) == pytest.approx(-6.0 / (((5 + length) / 6) ** 0.6))
    assert Beam(1, 1.0, "mean").normalised_score(found) == pytest.approx(-6.0 / length)
    assert Beam(1, 0.5, "mean").normalised_score(found) == pytest.approx(-6.0 / length**0.5)
    assert Beam(1, 0.0, "mean").normalised_score(found) == Beam(1, 0.0).normalised_score(found) == -6.0
    assert Beam(1, 1.0).normalised_score(found) == pytest.approx(-6.0 * 6 / (5 + length))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((0,), "size must be at least 1, not 0"),
        ((1, -0.1), "length_penalty must be finite and at least 0, not -0.1"),
        ((1, float("inf")), "length_penalty must be finite"),
        ((1, 1.0, "marian"), "length_normalization must be gnmt or mean, not 'marian'"),
    ],
)
def test_options_of_a_beam_have_bounds(options: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Beam(*options)
