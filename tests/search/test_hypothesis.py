"""How long a translation may become."""

import pytest

from mt.search.hypothesis import length_limit


@pytest.mark.parametrize(
    ("src_length", "max_length", "expected"),
    [(1, 100, 12), (2, 100, 14), (45, 100, 100), (46, 100, 100), (90, 100, 100), (1, 8, 8)],
)
def test_twice_the_source_plus_ten_within_the_model(src_length: int, max_length: int, expected: int) -> None:
    assert length_limit(src_length, max_length) == expected
