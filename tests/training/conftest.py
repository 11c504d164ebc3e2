"""A tiny model with its loss, and ragged batches."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from mt.config.model import ModelConfig
from mt.data.batches.batch import Batch, collate
from mt.training.loss import Objective
from mt.transformer.build import build_transformer

VOCAB_SIZE = 17


@pytest.fixture
def make_objective() -> Callable[..., Objective]:
    """Builds the same tiny model each time, in training mode, without dropout unless asked."""

    def make(**changes: Any) -> Objective:
        sizes = {"d_model": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1, "d_ff": 24}
        config = ModelConfig(**(sizes | {"dropout": 0.0} | changes))
        torch.manual_seed(1)
        return Objective(
            build_transformer(config, src_vocab_size=VOCAB_SIZE, tgt_vocab_size=VOCAB_SIZE, max_length=24)
        )

    return make


@pytest.fixture
def sentence_pairs() -> list[tuple[list[int], list[int]]]:
    """Eleven random pairs, 1 to 8 tokens a side."""
    generator = np.random.default_rng(4)
    return [
        (
            generator.integers(4, VOCAB_SIZE, generator.integers(1, 9)).tolist(),
            generator.integers(4, VOCAB_SIZE, generator.integers(1, 9)).tolist(),
        )
        for _ in range(11)
    ]


@pytest.fixture
def make_batches(sentence_pairs: list[tuple[list[int], list[int]]]) -> Callable[[Sequence[int]], list[Batch]]:
    """Cuts the pairs, in order, into batches of these sizes."""

    def make(sizes: Sequence[int]) -> list[Batch]:
        ends = np.cumsum(sizes)
        groups = [sentence_pairs[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        return [collate([src for src, _ in group], [tgt for _, tgt in group]) for group in groups]

    return make
