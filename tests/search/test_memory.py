"""What search holds beside the model takes no room for what is never written."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mt.search.request import SearchRequest
from mt.search.vocabulary import log_normalisers
from mt.transformer.packed_transformer import PackedTransformer


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
