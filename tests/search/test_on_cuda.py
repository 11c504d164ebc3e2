"""Search on a CUDA device, without a GPU: no mixed devices, and one wait for the device a token."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mt.config.model import ModelConfig
from mt.search.beam import beam_search
from mt.search.greedy import greedy_search
from mt.search.request import SearchRequest
from mt.search.sampling import sample
from mt.search.strategy import Beam, Constraints, Sampling
from mt.special_tokens import EOS_ID
from mt.transformer.transformer import Transformer
from tests.fake_cuda import CUDA, FakeCuda, fake_cuda, on_cuda

NUM_SENTENCES = 4
MOST_READS_A_SEARCH = 4
"""Besides those of its steps: whether sources are padded or may be copied, and what was found."""


def model_on_cuda() -> Transformer:
    config = ModelConfig(d_model=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, d_ff=32)
    return on_cuda(config, vocab_size=300).eval()


def read_candidates(device: FakeCuda, tensor: Tensor) -> Any:
    """Made-up candidates of a step: few of them are EOS, and each continues the first row."""
    device.num_reads += 1
    if tensor.dtype == torch.bool:
        return np.array(True)
    columns = np.zeros(tuple(tensor.shape))
    columns[np.arange(len(columns)) % 9 == 8, 0] = EOS_ID
    return columns


def request_on_cuda(limit: int, **rules: Any) -> SearchRequest:
    src_ids = torch.full((NUM_SENTENCES, 9), EOS_ID + 1, device=CUDA)
    if rules.pop("copying", False):
        rules["copyable"] = src_ids == EOS_ID + 1
    return SearchRequest(src_ids, [limit] * NUM_SENTENCES, **rules)


class Counting:
    """A model that counts the steps of a search."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.encode, self.start_cache = model.encode, model.start_cache
        self.num_steps = 0
        self.num_aligned = 0

    def decode_step(self, ids: Tensor, cache: Any, *, with_alignment: bool = False) -> Any:
        self.num_steps += 1
        self.num_aligned += with_alignment
        return self.model.decode_step(ids, cache, with_alignment=with_alignment)


def reads(search: str, limit: int, **rules: Any) -> tuple[int, int]:
    """How often a search waits for the device, and its steps."""
    # Not in inference mode, in which tensors without data would be computed.
    with fake_cuda() as device, torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "read", partial(read_candidates, device))
        model, request = Counting(model_on_cuda()), request_on_cuda(limit, **rules)
        if search == "beam":
            beam_search(model, request, Beam(4))
        elif search == "sampling":
            sample(model, request, Sampling(), range(NUM_SENTENCES))
        else:
            greedy_search(model, request)
        # Otherwise nothing is copied.
        assert model.num_aligned == (model.num_steps if rules.get("copying") else 0)
        return device.num_reads, model.num_steps


@pytest.mark.parametrize(
    ("search", "rules"),
    [
        ("greedy", {"copying": True}),
        ("beam", {"constraints": Constraints(5, 3, [[EOS_ID + 1]] * NUM_SENTENCES)}),
        ("sampling", {}),
    ],
)
def test_the_host_waits_once_for_each_token(search: str, rules: dict[str, Any]) -> None:
    num_reads, num_steps = reads(search, 12, **rules)
    assert num_steps > 10
    assert num_reads <= num_steps + MOST_READS_A_SEARCH
