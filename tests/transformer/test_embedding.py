"""Embeddings and positional encodings against the paper's formulas in plain Python."""

import math
from itertools import product

import pytest
import torch
from torch import nn

from mt.transformer.embedding import Embedding, positional_encoding
from mt.transformer.weights import without_memory

D, MAX_LENGTH = 16, 20
IDS = torch.tensor([[3, 5, 0], [7, 3, 3]])


def make(dropout: float = 0.0, word_dropout: float = 0.0) -> Embedding:
    return Embedding(nn.Embedding(9, D), MAX_LENGTH, dropout, word_dropout)


def test_embedding_is_scaled_row_plus_position() -> None:
    embedding = make()
    embedded = embedding(IDS)
    positions = positional_encoding(MAX_LENGTH, D)
    for row in range(2):
        for column in range(3):
            token = embedding.tokens.weight[IDS[row, column]]
            expected = token * math.sqrt(D) + positions[column]
            torch.testing.assert_close(embedded[row, column], expected)


def test_its_table_is_real_in_a_model_without_memory_and_may_become_a_parameter() -> None:
    with without_memory():
        embedding = make()
    embedding.tokens = nn.Embedding(9, D)
    assert embedding(IDS).equal(Embedding(embedding.tokens, MAX_LENGTH, 0.0)(IDS))
    del embedding.positions
    embedding.positions = nn.Parameter(torch.zeros(MAX_LENGTH, D))
    assert embedding(IDS).equal(embedding.tokens(IDS) * math.sqrt(D))


def test_every_token_gets_a_gradient_even_pad() -> None:
    embedding = make()
    embedding(IDS).sum().backward()
    gradient = embedding.tokens.weight.grad
    assert gradient is not None
    assert gradient[:, 0].tolist() == pytest.approx([4 * n for n in [1, 0, 0, 3, 0, 1, 0, 1, 0]])


def test_positions_are_the_same_when_longer_sentences_come_later() -> None:
    embedding = Embedding(nn.Embedding(9, D).double(), 5000, 0.0)
    table = positional_encoding(5000, D).double()
    for start in (0, 1500, 3, 4998):
        embedded = embedding(IDS[:, :2], start=start)
        expected = embedding.tokens(IDS[:, :2]) * math.sqrt(D) + table[start : start + 2]
        assert embedded.equal(expected)
    assert Embedding(nn.Embedding(9, D).bfloat16(), 9, 0.0)(IDS).dtype == torch.bfloat16


def test_word_dropout_zeroes_whole_tokens_and_keeps_their_positions() -> None:
    embedding = make(word_dropout=0.25)
    embedded = embedding.train()(IDS.repeat(200, 1))
    tokens = embedded - positional_encoding(MAX_LENGTH, D)[:3]
    expected = embedding.tokens(IDS).repeat(200, 1, 1) * math.sqrt(D) / 0.75
    gone = tokens.abs().amax(-1) < 1e-6
    torch.testing.assert_close(tokens, torch.where(gone[..., None], 0.0, expected))
    # Each position of the batch is drawn independently.
    shares = gone.float().mean(0)
    assert shares.tolist() == pytest.approx([0.25] * 3, abs=0.08)
    assert {tuple(row) for row in gone.tolist()} == set(product((True, False), repeat=3))
    assert embedding.eval()(IDS).equal(Embedding(embedding.tokens, MAX_LENGTH, 0.0)(IDS))


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
