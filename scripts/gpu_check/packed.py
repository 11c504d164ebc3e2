"""An experiment: all sentences of a side in one row of tokens, and a whole step as one CUDA graph.

The rows always have the same length, so that there is one static shape: offsets say where each sentence
begins, dummy sentences without loss fill the end, and torch's attention over sequences of different lengths
needs no padding. It is no part of `mt`. It shows whether this layout would be worth its code.
"""

import inspect
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mt.device import choose_device
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID
from mt.transformer.attention import MultiHeadAttention
from mt.transformer.embedding import Embedding, positional_encoding
from mt.transformer.kernels.cross_entropy import FusedLosses, fused_losses, smoothed_cross_entropy
from mt.transformer.transformer import Transformer
from scripts.benchmark.sizes import SIZES
from scripts.gpu_check.job import Job, head, row
from scripts.gpu_check.steps import new_state, random_pairs

MODELS = (("base", 37_000), ("big", 37_000))
TOKENS = 25_600
"""Of a row."""
LONGEST = 128
MOST_SENTENCES = 2_048
NUM_BATCHES, WARM_UP, ROUNDS = 10, 5, 3


class Offsets(NamedTuple):
    """Where the sentences of queries and of keys begin, in place of a mask."""

    of_queries: Tensor
    of_keys: Tensor
    is_causal: bool


class Rows(NamedTuple):
    """A batch: ids, positions and labels ``(N,)``, and offsets ``(MOST_SENTENCES + 1,)``."""

    src_ids: Tensor
    src_positions: Tensor
    src_offsets: Tensor
    tgt_ids: Tensor
    tgt_positions: Tensor
    tgt_offsets: Tensor
    labels: Tensor


class PackedAttention(nn.Module):
    """Attention within each sentence of a row."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, offsets: Offsets) -> Tensor:
        """Attend with ``(1, H, N, K)`` queries over as many keys and values: ``(1, H, N, K)``."""
        # New in torch 2.10, and with other options in later versions.
        from torch.nn.attention import varlen

        attend: Callable[..., Any] = varlen.varlen_attn
        options: dict[str, Any] = {"window_size": (-1, 0 if offsets.is_causal else -1)}
        if "is_causal" in inspect.signature(attend).parameters:
            options = {"is_causal": offsets.is_causal}
        rows = [each[0].transpose(0, 1) for each in (query, key, value)]
        attended: Tensor = attend(*rows, offsets.of_queries, offsets.of_keys, LONGEST, LONGEST, **options)
        return attended.transpose(0, 1)[None]


def main() -> int:
    job = Job.given()
    device = choose_device(job.device)
    if device.type != "cuda":
        print("Not on a CPU: its attention over sequences of different lengths needs a GPU.")
        return 0
    head("model, words", "layout", "ms a step", "target tokens/s", "first step, s", "GiB", "loss")
    for name, vocabulary in MODELS:
        _measure_model(name, vocabulary, device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return 0


def _measure_model(name: str, vocabulary: int, device: torch.device) -> None:
    model = new_state(SIZES[name], vocabulary, device).objective.model.train()
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.scaled_dot_product = PackedAttention()  # type: ignore[assignment]
        if isinstance(module, Embedding):
            module.positions = positional_encoding(LONGEST, module.positions.size(1)).to(module.positions)
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.compile(dynamic=False)
    fused = torch.compile(fused_losses)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=True)
    random, tokens = zip(*random_rows(vocabulary, NUM_BATCHES), strict=True)
    batches = [Rows(*(each.pin_memory() for each in rows)) for rows in random]
    static = Rows(*(each.to(device) for each in batches[0]))

    def step() -> Tensor:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = loss_of(model, static, fused) / TOKENS
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    def measure(layout: str, do: Callable[[], object], first: float, loss: Tensor) -> None:
        rates = []
        for _ in range(ROUNDS):
            torch.cuda.synchronize()
            started = time.perf_counter()
            for rows in batches:
                for to, of in zip(static, rows, strict=True):
                    to.copy_(of, non_blocking=True)
                do()
            torch.cuda.synchronize()
            rates.append(sum(tokens) / (time.perf_counter() - started))
        row(
            f"{name}, {vocabulary:,}",
            layout,
            f"{1000 * sum(tokens) / NUM_BATCHES / median(rates):.1f}",
            f"{median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})",
            f"{first:.0f}",
            f"{torch.cuda.max_memory_allocated() / 2**30:.1f}",
            f"{loss.item():.2f}",
        )

    # As torch asks for before a graph is captured.
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        started = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        first = time.perf_counter() - started
        for _ in range(WARM_UP):
            step()
        measure("packed, compiled", step, first, loss)
    torch.cuda.current_stream().wait_stream(stream)
    started = time.perf_counter()
    optimizer.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    for _ in range(WARM_UP):
        graph.replay()
    measure("packed, one CUDA graph", graph.replay, time.perf_counter() - started, loss)


def random_rows(vocabulary: int, number: int) -> Iterator[tuple[Rows, int]]:
    """So many batches of random sentences, in random order, with their real target tokens."""
    pairs = random_pairs(2 * number * TOKENS // 20, vocabulary)
    all_pairs = zip(pairs.src, pairs.tgt, strict=True)
    for _ in range(number):
        src, tgt = [list[Any]() for _ in range(2)]
        src_left = tgt_left = TOKENS
        while True:
            of_src, of_tgt = next(all_pairs)
            src_left, tgt_left = src_left - len(of_src) - 1, tgt_left - len(of_tgt) - 1
            if min(src_left, tgt_left) < 0:
                break
            src.append(of_src)
            tgt.append(of_tgt)
        real = sum(len(sentence) + 1 for sentence in tgt)
        src_rows = _row([np.append(sentence, EOS_ID) for sentence in src])
        tgt_rows = _row([np.append(BOS_ID, sentence) for sentence in tgt])
        labels, *_ = _row([np.append(sentence, EOS_ID) for sentence in tgt], filling=PAD_ID)
        yield Rows(*src_rows, *tgt_rows, labels), real


def _row(sentences: Sequence[Any], filling: int = EOS_ID) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, positions and offsets. Dummies fill the row, and sentences without tokens the offsets."""
    offsets = np.cumsum([0, *map(len, sentences)])
    num_dummies = MOST_SENTENCES + 1 - len(offsets)
    dummies = np.minimum(TOKENS, offsets[-1] + LONGEST * np.arange(1, num_dummies + 1))
    offsets = np.concatenate([offsets, dummies])
    ids = np.concatenate([*sentences, np.full(TOKENS - sum(map(len, sentences)), filling)])
    positions = np.arange(TOKENS) - np.repeat(offsets[:-1], np.diff(offsets))
    return torch.from_numpy(ids).long(), torch.from_numpy(positions), torch.from_numpy(offsets).int()


def loss_of(model: Transformer, rows: Rows, fused: FusedLosses) -> Tensor:
    """The summed loss, as `mt.training.loss.Objective` computes it from rectangles."""
    within_src = Offsets(rows.src_offsets, rows.src_offsets, is_causal=False)
    within_tgt = Offsets(rows.tgt_offsets, rows.tgt_offsets, is_causal=True)
    between = Offsets(rows.tgt_offsets, rows.src_offsets, is_causal=False)
    memory = model.encoder(_embedded(model.src_embedding, rows.src_ids, rows.src_positions), within_src)
    x = _embedded(model.tgt_embedding, rows.tgt_ids, rows.tgt_positions)
    hidden = model.decoder(x, memory, between, within_tgt).hidden[0]
    return smoothed_cross_entropy(hidden, model.output.weight, rows.labels, 0.1, fused)


def _embedded(side: Embedding, ids: Tensor, positions: Tensor) -> Tensor:
    embedded: Tensor = side.dropout(side.tokens(ids) * side.scale + side.positions[positions])
    return embedded[None]


if __name__ == "__main__":
    sys.exit(main())
