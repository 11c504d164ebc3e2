"""Positional encodings against the paper's formula in plain Python."""

import math

import pytest
import torch

from mt.transformer.embedding import positional_encoding


@pytest.mark.parametrize("d_model", [2, 6, 16, 512])
def test_every_element_equals_the_formula(d_model: int) -> None:
    table = positional_encoding(6001, d_model)
    assert table.shape == (6001, d_model)
    assert table.dtype == torch.float32
    for position in (0, 1, 2, 17, 999, 6000):
        expected = []
        for i in range(d_model // 2):
            angle = position / 10_000 ** (2 * i / d_model)
            expected += [math.sin(angle), math.cos(angle)]
        assert table[position].tolist() == pytest.approx(expected, abs=1e-6)


def test_distant_positions_are_as_exact() -> None:
    position = 200_000
    expected = [math.sin(position), math.cos(position), math.sin(position / 100), math.cos(position / 100)]
    assert positional_encoding(position + 1, 4)[-1].tolist() == pytest.approx(expected, abs=1e-6)
