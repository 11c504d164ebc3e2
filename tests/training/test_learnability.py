"""The first proof, as in The Annotated Transformer: all parts together learn a small task from nothing."""

from itertools import product
from typing import Literal

import pytest
import torch

from mt.config.model import ModelConfig
from mt.config.training import ScheduleConfig
from mt.data.batches.batch import collate, pad
from mt.device import Precision
from mt.search.greedy import greedy_search
from mt.search.request import SearchRequest
from mt.special_tokens import EOS_ID
from mt.training.loss import Objective
from mt.training.schedule import learning_rate
from mt.transformer.build import build_transformer
from tests.training.steps import new_state, take_step

SYMBOLS = range(4, 12)


@pytest.mark.parametrize(
    ("norm_first", "numbers"),
    [(True, "float32"), (False, "float32"), pytest.param(False, "bf16", marks=pytest.mark.slow)],
)
def test_tiny_transformer_learns_to_reverse(
    norm_first: bool, numbers: Literal["float32", "bf16"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three symbols of eight, a quarter of all 512 sentences held out."""
    # Any CPU computes in bf16, be it slowly.
    monkeypatch.setattr("mt.device.usable_precisions", lambda _: ["bf16"])
    torch.manual_seed(1)
    sentences = [list(symbols) for symbols in product(SYMBOLS, repeat=3)]
    order = torch.randperm(len(sentences)).tolist()
    training, held_out = ([sentences[i] for i in part] for part in (order[128:], order[:128]))
    config = ModelConfig(
        d_model=32, num_heads=4, num_encoder_layers=1, num_decoder_layers=1, d_ff=64, norm_first=norm_first
    )
    objective = Objective(build_transformer(config, src_vocab_size=12, tgt_vocab_size=12, max_length=8))
    optimizer = torch.optim.Adam(objective.parameters(), betas=(0.9, 0.98), eps=1e-9)
    schedule = ScheduleConfig(learning_rate=0.01, warmup_steps=40)
    state = new_state(
        objective,
        optimizer,
        learning_rate=lambda step: learning_rate(step, schedule, d_model=config.d_model),
        clip_norm=1.0,
    )
    state.precision = Precision(numbers, torch.device("cpu"))
    for _ in range(300):
        rows = [training[i] for i in torch.randint(len(training), (64,)).tolist()]
        take_step(state, [collate(rows, [row[::-1] for row in rows])])
    objective.eval()
    src_ids = pad(held_out, last=EOS_ID)
    with torch.inference_mode():
        found = greedy_search(objective.model, SearchRequest(src_ids, [8] * len(held_out)))
    num_right = sum(list(h.ids) == s[::-1] and h.finished for h, s in zip(found, held_out, strict=True))
    assert num_right / len(held_out) > 0.95
