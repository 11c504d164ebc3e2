"""What search holds beside the model takes no room for what is never written."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mt.search.request import SearchRequest
from mt.transformer.transformer import Transformer


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


@pytest.mark.parametrize("rows_per_sentence", [1, 4])
def test_a_high_limit_takes_no_memory_before_it_is_reached(
    rows_per_sentence: int,
    transformer: Transformer,
    sentences: list[list[int]],
    make_request: Callable[..., SearchRequest],
) -> None:
    request = make_request(sentences)
    with Largest() as largest:
        memory = transformer.encode(request.src_ids, request.src_mask)
        cache = transformer.start_cache(memory, request.src_mask)
        ids = request.src_ids[:, 0].clamp(max=13)
        transformer.decode_step(ids, cache)
        cache.select(torch.arange(len(ids)).repeat_interleave(rows_per_sentence), None)
        transformer.decode_step(ids.repeat_interleave(rows_per_sentence), cache)
    assert largest.num_bytes < 100_000
