"""The sentences of the primer are a file: whole, and the same as those that all scores were measured with."""

import hashlib

import pytest

from mt.builtin.primer import MAX_TRAIN_PAIRS, primer_pairs


@pytest.mark.parametrize(
    ("split", "num_pairs", "digest"),
    [
        # A smaller number gives the first of these.
        ("train", MAX_TRAIN_PAIRS, "d5f5c719849332572f1ddd358a5f07c8c927f9ab0d75564225c54da924367bf7"),
        ("validation", 500, "95d83191bbe0a3881592b42e6b71469c15cfaf81c113f779e2e459126cf37514"),
        ("test", 1_000, "81dededa10c3a4f7f64204198606faff91ad5dd86fe06bb78fe6953b0212183f"),
    ],
)
def test_pairs_are_those_of_the_grammar(split: str, num_pairs: int, digest: str) -> None:
    pairs = list(primer_pairs(split, num_pairs))
    assert len(pairs) == num_pairs
    lines = "".join(f"{english}\t{german}\n" for english, german in pairs)
    assert hashlib.sha256(lines.encode()).hexdigest() == digest
