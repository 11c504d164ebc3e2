"""Tiny models of every variant with random weights, as if they had been loaded from a checkpoint."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

from mt.checkpoint.record import MODEL, Checkpoint
from mt.config.config import Config
from mt.config.load import load_config
from mt.data.batches.batch import collate
from mt.data.corpus import load_split
from mt.data.tokenizers.external import external_tokenizer
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.train import train_tokenizer
from mt.inference.loaded_model import LoadedModel, build_model, facts_of
from mt.special_tokens import EOS_ID, SPECIAL_TOKENS
from mt.transformer.transformer import Transformer
from tests.data.conftest import new_hub as new_hub

MakeLoaded = Callable[..., LoadedModel]
Pairs = tuple[list[str], list[str]]
WIDTH = 32
BOTH_WAYS = [
    "data.sources.back.path=unread", "data.sources.back.src=de", "data.sources.back.tgt=en",
    "tokenizer.shared=true", "model.share_embeddings=true", "model.output_bias=true",
]  # fmt: skip
SHARE_OF_EOS = 0.2
"""How often EOS is the likeliest token after random ones."""


@pytest.fixture(scope="session")
def pairs(tiny_config_file: Path) -> Pairs:
    """200 sentences with their translations."""
    splits = [
        load_split(load_config(tiny_config_file).data, split) for split in ("train", "test", "validation")
    ]
    sources, targets = ([text for split in splits for text in split[side]] for side in ("src", "tgt"))
    repeated = [f"{text} {more}" for text, more in pairwise(sources)]
    return [*sources, *repeated][:200], [*targets, *targets][:200]


@pytest.fixture(scope="session")
def tokenizer_of(pairs: Pairs) -> Callable[[Config, int], Tokenizer]:
    """The tokenizer of a config for one side, made once for each kind."""
    made: dict[str, Tokenizer] = {}

    def make(config: Config, side: int) -> Tokenizer:
        texts = [*pairs[0], *pairs[1]] if config.tokenizer.shared else pairs[side]
        key = f"{config.tokenizer.model_dump_json()} {config.tokenizer.shared or side}"
        if config.tokenizer.kind == "file":
            return external_tokenizer(config.tokenizer, limit_seconds=1)
        if key not in made:
            made[key] = train_tokenizer(texts, config.tokenizer)
        return made[key]

    return make


@pytest.fixture
def both_ways(make_loaded: MakeLoaded) -> Callable[[str], LoadedModel]:
    """A model of two directions with this kind of tokenizer, which would rather write their ids than text."""

    def make(kind: str) -> LoadedModel:
        size = ["tokenizer.max_size=330", "data.max_length=60"] if kind == "bpe" else []
        loaded = make_loaded(*BOTH_WAYS, f"tokenizer.kind={kind}", *size, reserved=["<to:de>", "<to:en>"])
        with torch.no_grad():
            loaded.model.output.bias[[*loaded.tgt_tokenizer.reserved.values()]] = 50.0
        return loaded

    return make


@pytest.fixture(scope="session")
def make_loaded(
    make_config: Callable[..., Config], tokenizer_of: Callable[[Config, int], Tokenizer], pairs: Pairs
) -> MakeLoaded:
    """A model with random weights, scaled so that its outputs vary from sentence to sentence."""

    def make(*overrides: str, seed: int = 1, reserved: Sequence[str] = ()) -> LoadedModel:
        config = make_config(
            f"model.d_model={WIDTH}", "model.num_heads=4", "model.num_encoder_layers=2",
            "model.num_decoder_layers=2", "model.dropout=0", "data.max_length=20", *overrides,
        )  # fmt: skip
        tokenizers = tokenizer_of(config, 0), tokenizer_of(config, 1)
        if reserved:
            src, tgt = (tokenizer.with_entries(reserved, is_new=True) for tokenizer in tokenizers)
            tokenizers = src, tgt
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            model = build_model(config, *tokenizers)
            _scale(model)
            _let_it_end(model.eval(), [tokenizers[0].encode(text)[:19] for text in pairs[0][:24]])
        folder = Path("checkpoints/step_0000001")
        checkpoint = Checkpoint(folder=folder, step=1, best=True, checksums={MODEL: ""})
        return LoadedModel(
            config, model, *tokenizers, facts_of(config, {"target_ratio": 1.2}, folder.name), checkpoint
        )

    return make


@torch.no_grad()
def _scale(model: Transformer) -> None:
    """Make outputs depend on the source, and no bias or norm be what it is at the start of training."""
    for name, parameter in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
        elif ".layers." in name:
            parameter.mul_(4.0 if "cross_attention" in name else 2.0)
    for matrix in {model.output.weight, model.tgt_embedding.tokens.weight}:
        matrix /= matrix.norm(dim=1, keepdim=True)
    last = model.decoder.norm
    if not isinstance(last, nn.LayerNorm):
        last = cast(Any, model.decoder.layers[-1]).feed_forward_residual.norm
    last.weight.mul_(2.0)


@torch.no_grad()
def _let_it_end(model: Transformer, sources: list[list[int]]) -> None:
    """Give EOS, which is never read, the output weights that make it the likeliest now and then."""
    size = model.output.out_features
    batch = collate(sources, [torch.randint(4, size, (12,)).tolist() for _ in sources])
    memory = model.encode(batch.src_ids, batch.src_mask)
    hidden = model.decode(batch.tgt_ids, memory, batch.src_mask, batch.tgt_mask).hidden.flatten(0, 1)
    best = model.project(hidden)[:, len(SPECIAL_TOKENS) :].amax(-1)
    direction = torch.randn(hidden.size(1))
    direction *= (hidden @ direction).mean().sign()
    along = hidden @ direction
    needed = torch.where(along > 0, best / along, torch.inf)
    model.output.weight[EOS_ID] = direction * needed.quantile(SHARE_OF_EOS)
