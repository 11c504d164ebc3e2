"""What search holds beside the model: no second copy of the logits, and no room for what is never written."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mt.search.beam import beam_search
from mt.search.greedy import greedy_search
from mt.search.request import SearchRequest
from mt.search.strategy import Beam
from mt.search.vocabulary import log_normalisers
from mt.transformer.packed_transformer import PackedTransformer

VOCAB_SIZE = 16_384


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The most bytes of any tensor that is made in this context."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.layout == torch.strided:
            self.num_bytes = max(self.num_bytes, result.numel() * result.element_size())
        return result


class Step(NamedTuple):
    logits: Tensor
    alignment_scores: Tensor | None = None


class NoCache:
    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        pass


class Bf16Model:
    """Random logits of a large vocabulary, in bf16."""

    def __init__(self, rows: int) -> None:
        generator = torch.Generator().manual_seed(5)
        self.logits = torch.randn(rows, VOCAB_SIZE, generator=generator).bfloat16()

    def encode(self, src_ids: Tensor, src_mask: Tensor) -> Tensor:
        return src_ids

    def start_cache(self, memory: Tensor, src_mask: Tensor, max_length: int) -> NoCache:
        return NoCache()

    def decode_step(self, ids: Tensor, cache: NoCache, *, with_alignment: bool = False) -> Step:
        return Step(self.logits[: len(ids)].clone())


@pytest.mark.parametrize("beam_size", [1, 4])
def test_logits_in_16_bits_are_never_copied_as_a_whole(beam_size: int) -> None:
    request = SearchRequest(torch.full((40, 1), 5), [3] * 40, with_scores=False)
    model = Bf16Model(40 * beam_size)
    with Largest() as largest:
        if beam_size == 1:
            greedy_search(model, request)
        else:
            beam_search(model, request, Beam(beam_size))
    assert largest.num_bytes == model.logits.numel() * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 32, 70])
def test_log_normalisers_are_those_of_the_whole_vocabulary(rows: int, dtype: torch.dtype) -> None:
    logits = (torch.randn(rows, 1000, generator=torch.Generator().manual_seed(rows)) * 4).to(dtype)
    expected = logits.double().logsumexp(-1, keepdim=True)
    torch.testing.assert_close(log_normalisers(logits).double(), expected, atol=1e-5, rtol=0.0)


@pytest.mark.parametrize("rows_per_sentence", [1, 4])
def test_a_high_limit_takes_no_memory_before_it_is_reached(
    rows_per_sentence: int,
    packed: PackedTransformer,
    sentences: list[list[int]],
    make_request: Callable[..., SearchRequest],
) -> None:
    request = make_request(sentences)
    with Largest() as largest:
        memory = packed.encode(request.src_ids, request.src_mask)
        cache = packed.start_cache(memory, request.src_mask, 100_000)
        ids = request.src_ids[:, 0].clamp(max=13)
        packed.decode_step(ids, cache)
        cache.select(torch.arange(len(ids)).repeat_interleave(rows_per_sentence), None)
        packed.decode_step(ids.repeat_interleave(rows_per_sentence), cache)
    assert largest.num_bytes < 100_000
