"""Search on a CUDA device, without a GPU: no mixed devices, and one wait for the device a token."""

from typing import Any

import pytest
import torch
from torch import Tensor

from mt.config.model import ModelConfig
from mt.device import SearchPrecision
from mt.search.beam import beam_search
from mt.search.greedy import greedy_search
from mt.search.request import SearchRequest
from mt.search.sampling import sample
from mt.search.strategy import Beam, Constraints, Sampling
from mt.special_tokens import EOS_ID
from mt.transformer.packed_transformer import PackedTransformer
from tests.fake_cuda import CUDA, fake_cuda, on_cuda

NUM_SENTENCES = 4
MOST_READS_A_SEARCH = 4
"""Besides those of its steps: whether sources are padded or may be copied, and what was found."""


def model_on_cuda(precision: SearchPrecision) -> PackedTransformer:
    config = ModelConfig(d_model=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, d_ff=32)
    return PackedTransformer(on_cuda(config, vocab_size=300), precision)


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


def reads(search: str, precision: SearchPrecision, limit: int, **rules: Any) -> tuple[int, int]:
    """How often a search waits for the device, and its steps."""
    # Not in inference mode, in which tensors without data would be computed.
    with fake_cuda() as device, torch.no_grad():
        model, request = Counting(model_on_cuda(precision)), request_on_cuda(limit, **rules)
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
    ("search", "precision"),
    [("greedy", "float32"), ("beam", "bf16"), ("sampling", "bf16")],
)
def test_the_host_waits_once_for_each_token(search: str, precision: SearchPrecision) -> None:
    num_reads, num_steps = reads(search, precision, 12)
    assert num_steps > 10
    assert num_reads <= num_steps + MOST_READS_A_SEARCH


@pytest.mark.parametrize(
    "rules",
    [
        {"with_scores": False},
        {"constraints": Constraints(5, 3, [[EOS_ID + 1]] * NUM_SENTENCES)},
    ],
    ids=["no scores", "constraints"],
)
def test_constraints_do_not_wait(rules: dict[str, Any]) -> None:
    num_reads, num_steps = reads("beam", "bf16", 12, **rules)
    assert num_reads <= num_steps + MOST_READS_A_SEARCH


def test_copying_waits_at_most_once_for_each_sentence_that_ends() -> None:
    for search in ("greedy", "beam"):
        num_reads, num_steps = reads(search, "bf16", 12, copying=True)
        assert num_reads <= num_steps + MOST_READS_A_SEARCH + NUM_SENTENCES
