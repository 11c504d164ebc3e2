"""A training loop as the tutorials have it (hkproj/pytorch-transformer and what was copied from it).

Eight sentences a step, each padded to 350 tokens, masks and attention by hand, attention weights kept on
the module, dropout also on them and in the feed-forward network, pre-norm with a layer norm of one gain and
one bias, untied output, `log_softmax` before a cross-entropy that does it again.
"""

import math

import torch
from torch import Tensor, nn

from scripts.benchmark.session import Channel, Job, TrainingSession
from scripts.benchmark.sides.plain_loop import LABEL_SMOOTHING, autocast
from scripts.benchmark.sides.torch_loop import sinusoids
from scripts.benchmark.sizes import Size
from scripts.benchmark.workload import BOS_ID, EOS_ID, PAD_ID, Description, Integers

BATCH_SENTENCES, LENGTH, DROPOUT = 8, 350, 0.1


class ScalarNorm(nn.Module):
    """Layer norm with one gain and one bias for all features."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return self.gain * centred / (x.std(-1, keepdim=True) + 1e-6) + self.bias


class Attention(nn.Module):
    """Multi-head attention written out."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.num_heads = size.num_heads
        self.query, self.key, self.value, self.output = (
            nn.Linear(size.d_model, size.d_model) for _ in range(4)
        )
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (
            part.view(len(part), -1, self.num_heads, part.size(-1) // self.num_heads).transpose(1, 2)
            for part in (self.query(x), self.key(memory), self.value(memory))
        )
        scores = (query @ key.transpose(-2, -1)) / math.sqrt(query.size(-1))
        scores.masked_fill_(mask == 0, torch.finfo(scores.dtype).min)
        self.scores = self.dropout(scores.softmax(-1))
        joined = (self.scores @ value).transpose(1, 2).contiguous().flatten(2)
        output: Tensor = self.output(joined)
        return output


class Layer(nn.Module):
    """An encoder layer, or with ``is_decoder`` a decoder layer."""

    def __init__(self, size: Size, *, is_decoder: bool) -> None:
        super().__init__()
        self.attentions = nn.ModuleList(Attention(size) for _ in range(1 + is_decoder))
        self.inner, self.outer = nn.Linear(size.d_model, size.d_ff), nn.Linear(size.d_ff, size.d_model)
        self.norms = nn.ModuleList(ScalarNorm() for _ in range(2 + is_decoder))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor | None, memory_mask: Tensor) -> Tensor:
        normed = self.norms[0](x)
        x = x + self.dropout(self.attentions[0](normed, normed, mask))
        if memory is not None:
            x = x + self.dropout(self.attentions[1](self.norms[1](x), memory, memory_mask))
        inner = self.dropout(self.inner(self.norms[-1](x)).relu())
        output: Tensor = x + self.dropout(self.outer(inner))
        return output


class TutorialTransformer(nn.Module):
    """The model of the tutorials."""

    positions: Tensor

    def __init__(self, size: Size, workload: Description) -> None:
        super().__init__()
        self.scale = math.sqrt(size.d_model)
        self.src_embedding = nn.Embedding(workload.src_vocabulary_size, size.d_model)
        self.tgt_embedding = nn.Embedding(workload.tgt_vocabulary_size, size.d_model)
        self.register_buffer("positions", sinusoids(LENGTH, size.d_model))
        self.dropout = nn.Dropout(DROPOUT)
        self.encoder = nn.ModuleList(Layer(size, is_decoder=False) for _ in range(size.num_layers))
        self.decoder = nn.ModuleList(Layer(size, is_decoder=True) for _ in range(size.num_layers))
        self.encoder_norm, self.decoder_norm = ScalarNorm(), ScalarNorm()
        self.output = nn.Linear(size.d_model, workload.tgt_vocabulary_size)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, src: Tensor, src_mask: Tensor, tgt: Tensor, tgt_mask: Tensor) -> Tensor:
        memory = self._embed(self.src_embedding, src)
        for layer in self.encoder:
            memory = layer(memory, src_mask, None, src_mask)
        memory = self.encoder_norm(memory)
        hidden = self._embed(self.tgt_embedding, tgt)
        for layer in self.decoder:
            hidden = layer(hidden, tgt_mask, memory, src_mask)
        log_probabilities: Tensor = self.output(self.decoder_norm(hidden)).log_softmax(-1)
        return log_probabilities

    def _embed(self, embedding: nn.Embedding, ids: Tensor) -> Tensor:
        embedded: Tensor = self.dropout(embedding(ids) * self.scale + self.positions[: ids.size(1)])
        return embedded


def rectangle(rows: list[Integers], *, first: list[int], last: list[int]) -> Tensor:
    """Rows of 350 tokens."""
    padded = torch.full((len(rows), LENGTH), PAD_ID)
    for place, row in enumerate(rows):
        ids = [*first, *row.tolist(), *last][:LENGTH]
        padded[place, : len(ids)] = torch.tensor(ids)
    return padded


def run(channel: Channel, job: Job) -> None:
    workload = job.workload
    torch.manual_seed(workload.description.seed)
    model = TutorialTransformer(job.size, workload.description).to(job.device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, eps=1e-9)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD_ID, label_smoothing=LABEL_SMOOTHING).to(job.device)
    session = TrainingSession(channel, job.device)
    session.ready()
    past = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.int).tril()
    for pairs in workload.pairs_of_sentences(BATCH_SENTENCES):
        sources, targets = [src for src, _ in pairs], [tgt for _, tgt in pairs]
        src = rectangle(sources, first=[BOS_ID], last=[EOS_ID])
        tgt = rectangle(targets, first=[BOS_ID], last=[])
        labels = rectangle(targets, first=[], last=[EOS_ID])
        src_mask = (src != PAD_ID)[:, None, None, :].int()
        tgt_mask = (tgt != PAD_ID)[:, None, None, :].int() & past
        with autocast(job):
            prediction = model(*(tensor.to(job.device) for tensor in (src, src_mask, tgt, tgt_mask)))
            loss = criterion(
                prediction.view(-1, workload.description.tgt_vocabulary_size), labels.view(-1).to(job.device)
            )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        session.after_step(sum(len(ids) + 1 for ids in targets))
