"""The vocabulary of a very large corpus is made from a part of it, evenly spread; that of others from all."""

from collections.abc import Callable

import datasets
import pytest

from mt.config.config import Config
from mt.data.prepare import make_tokenizers, num_vocabulary_pairs

MakeConfig = Callable[..., Config]

NUM_PAIRS = 60_000


@pytest.fixture(scope="module")
def pairs() -> datasets.Dataset:
    """Each source is a word of its own, so that the vocabulary tells which lines were read."""
    numbers = range(NUM_PAIRS)
    return datasets.Dataset.from_dict({"src": [f"s{i}" for i in numbers], "tgt": [f"t{i}" for i in numbers]})


def words(pairs: datasets.Dataset, config: Config) -> list[set[str]]:
    tokenizers = make_tokenizers(pairs, config)
    return [set(tokenizer.tokens(range(4, tokenizer.size))) for tokenizer in tokenizers]


@pytest.mark.parametrize("max_lines", [1, 7, 25_000])
def test_the_lines_are_spread_evenly(
    max_lines: int, pairs: datasets.Dataset, make_config: MakeConfig
) -> None:
    config = make_config(f"tokenizer.max_lines={max_lines}", "tokenizer.max_size=1000000")
    src, tgt = words(pairs, config)
    rows = sorted(int(word[1:]) for word in src)
    assert sorted(int(word[1:]) for word in tgt) == rows
    assert len(rows) == max_lines == num_vocabulary_pairs(pairs, config)
    gaps = {after - before for before, after in zip(rows, [*rows[1:], NUM_PAIRS + rows[0]], strict=True)}
    assert gaps <= {NUM_PAIRS // max_lines, -(-NUM_PAIRS // max_lines)}
