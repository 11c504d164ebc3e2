"""Two models to search with: a table written by hand, and a tiny random Transformer."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from mt.config.model import ModelConfig
from mt.search.hypothesis import length_limit
from mt.search.request import EncoderDecoder, SearchRequest
from mt.special_tokens import EOS_ID
from mt.transformer.build import build_transformer
from mt.transformer.transformer import Transformer
from tests.fixture_types import MakeRequest

FIRST_SOURCE = 4
"""The source id that names the first table."""


class FakeStep(NamedTuple):
    logits: Tensor
    alignment_scores: Tensor | None = None


class TableCache:
    def __init__(self, which: Tensor) -> None:
        self.which = which

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        self.which = self.which[rows]


class TableModel:
    """The newest token and the sentence's own table decide the logits of the next; a source is one id."""

    def __init__(self, tables: Sequence[dict[int, list[float]]]) -> None:
        """``tables[k][newest]`` are the logits after ``newest`` for the source id ``4 + k``."""
        self.tables = tables
        self.batch_sizes: list[int] = []

    def encode(self, src_ids: Tensor, src_mask: Tensor) -> Tensor:
        return src_ids[:, :1]

    def start_cache(self, memory: Tensor, src_mask: Tensor) -> TableCache:
        return TableCache(memory[:, 0] - FIRST_SOURCE)

    def decode_step(self, ids: Tensor, cache: TableCache, *, with_alignment: bool = False) -> FakeStep:
        self.batch_sizes.append(len(ids))
        pairs = zip(cache.which.tolist(), ids.tolist(), strict=True)
        # A finished sentence may stay for some steps; nobody reads what would follow its EOS.
        unread = [0.0] * len(next(iter(self.tables[0].values())))
        rows = [
            self.tables[which].get(newest, unread) if newest == EOS_ID else self.tables[which][newest]
            for which, newest in pairs
        ]
        return FakeStep(torch.tensor(rows))


def satisfies_the_protocol() -> list[EncoderDecoder[Any]]:
    """The type checker's proof that both models satisfy the Protocol."""
    table: EncoderDecoder[TableCache] = TableModel([])
    transformer: EncoderDecoder[Any] = random_transformer()
    return [table, transformer]


def random_transformer(seed: int = 0, **sizes: Any) -> Transformer:
    """Large weights give it clear preferences, and an untied output layer keeps it from repeating its input.

    With this seed some sentences end, some reach their limit, and UNK would be written.
    """
    small = {"d_model": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 2, "d_ff": 32}
    config = ModelConfig(**(small | {"tie_output": False} | sizes))
    torch.manual_seed(seed)
    model = build_transformer(config, src_vocab_size=20, tgt_vocab_size=14, max_length=64).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model.requires_grad_(False)


@pytest.fixture
def table_model() -> Callable[..., Any]:
    """Makes a `TableModel` of these tables."""
    return lambda *tables: TableModel(tables)


@pytest.fixture
def table_request() -> MakeRequest:
    """Makes the request of a batch of sentences, each given by the number of its table."""

    def make(which: Sequence[int], limits: Sequence[int], **rules: Any) -> SearchRequest:
        return SearchRequest(torch.tensor(which)[:, None] + FIRST_SOURCE, limits, **rules)

    return make


@pytest.fixture
def transformer() -> Transformer:
    return random_transformer()


@pytest.fixture
def sentences() -> list[list[int]]:
    """Twelve random sources of 1 to 9 tokens and EOS."""
    generator = torch.Generator().manual_seed(11)
    lengths = torch.randint(1, 10, (12,), generator=generator).tolist()
    return [[*torch.randint(4, 20, (n,), generator=generator).tolist(), EOS_ID] for n in lengths]


@pytest.fixture
def make_request() -> MakeRequest:
    """Makes the request of a batch of sentences, with more padding than needed if ``padding`` says so."""

    def make(sentences: Sequence[list[int]], padding: int = 0, **rules: Any) -> SearchRequest:
        src_ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(s) for s in sentences], batch_first=True)
        src_ids = torch.nn.functional.pad(src_ids, (0, padding))
        return SearchRequest(src_ids, [length_limit(len(s), 64) for s in sentences], **rules)

    return make
