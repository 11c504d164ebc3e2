"""The plain loop around `torch.nn.Transformer`, with the batches and the first weights that `mt` has."""

import math

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from scripts.benchmark.session import Channel, Job, TrainingSession
from scripts.benchmark.sides.plain_loop import PaddedBatch, train
from scripts.benchmark.sizes import Size
from scripts.benchmark.workload import PAD_ID, Description

DROPOUT = 0.1


class TorchTransformer(nn.Module):
    """Embeddings, positions, `nn.Transformer` and a tied output projection."""

    positions: Tensor

    def __init__(self, size: Size, workload: Description) -> None:
        super().__init__()
        self.scale = math.sqrt(size.d_model)
        self.src_embedding = nn.Embedding(workload.src_vocabulary_size, size.d_model)
        self.tgt_embedding = nn.Embedding(workload.tgt_vocabulary_size, size.d_model)
        self.register_buffer("positions", sinusoids(workload.max_length, size.d_model))
        self.dropout = nn.Dropout(DROPOUT)
        self.transformer = nn.Transformer(
            size.d_model,
            size.num_heads,
            size.num_layers,
            size.num_layers,
            size.d_ff,
            DROPOUT,
            batch_first=True,
        )
        # Post-norm stacks end with a norm already; torch would put a second one on top.
        self.transformer.encoder.norm = None
        self.transformer.decoder.norm = None
        for module in self.transformer.modules():
            # Dropout where the paper has it: after each sub-layer, not inside of attention and feed-forward.
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = 0.0

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """``(B, S)`` and ``(B, T)`` -> logits ``(B, T, V)``."""
        padding = src == PAD_ID
        future = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool, device=tgt.device).triu(1)
        hidden = self.transformer(
            self._embed(self.src_embedding, src),
            self._embed(self.tgt_embedding, tgt),
            tgt_mask=future,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return nn.functional.linear(hidden, self.tgt_embedding.weight)

    def _embed(self, embedding: nn.Embedding, ids: Tensor) -> Tensor:
        embedded: Tensor = self.dropout(embedding(ids) * self.scale + self.positions[: ids.size(1)])
        return embedded


def sinusoids(num_positions: int, d_model: int) -> Tensor:
    """Sines and cosines by turns: ``(num_positions, d_model)``."""
    angle = torch.arange(num_positions)[:, None] * 10_000.0 ** (-torch.arange(0, d_model, 2) / d_model)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)


def state_from_mt(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The names that `torch.nn.Transformer` has for the weights of `mt`."""
    parts = {
        "self_attention": "self_attn",
        "cross_attention": "multihead_attn",
        "feed_forward.inner": "linear1",
        "feed_forward.outer": "linear2",
        "self_attention_residual.norm": "norm1",
    }
    state: dict[str, Tensor] = {}
    for name, weight in weights.items():
        stack, *rest = name.split(".")
        if stack not in ("encoder", "decoder"):
            state[name.replace(".tokens", "")] = weight
            continue
        layer = f"transformer.{stack}.layers.{rest[1]}."
        part, kind = ".".join(rest[2:-1]), rest[-1]
        if part.endswith((".query", ".key", ".value")):
            attention = part.split(".")[0]
            if part.endswith(".query"):
                prefix = name.removesuffix(f"query.{kind}")
                three = [weights[f"{prefix}{which}.{kind}"] for which in ("query", "key", "value")]
                state[f"{layer}{parts[attention]}.in_proj_{kind}"] = torch.cat(three)
        elif part.endswith("attention.output"):
            state[f"{layer}{parts[part.split('.')[0]]}.out_proj.{kind}"] = weight
        elif part == "cross_attention_residual.norm":
            state[f"{layer}norm2.{kind}"] = weight
        elif part == "feed_forward_residual.norm":
            state[f"{layer}norm{2 if stack == 'encoder' else 3}.{kind}"] = weight
        else:
            state[f"{layer}{parts[part]}.{kind}"] = weight
    return state


def run(channel: Channel, job: Job) -> None:
    description = job.workload.description
    model = TorchTransformer(job.size, description)
    state = state_from_mt(load_file(job.first_weights))
    model.load_state_dict({**state, "positions": model.positions})
    model.to(job.device)

    def logits_of(batch: PaddedBatch) -> Tensor:
        logits: Tensor = model(batch.src, batch.tgt)
        return logits

    train(model, logits_of, TrainingSession(channel, job.device), job)
