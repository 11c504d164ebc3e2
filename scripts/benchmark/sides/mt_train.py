"""`mt` itself: the loop of `mt.training.loop` without its validations and checkpoints."""

import numpy as np
import torch
from safetensors.torch import load_file

from mt.data.batches.pairs import EncodedPairs, EncodedSentences
from mt.data.batches.stream import BatchStream
from mt.device import Precision, keep_freed_memory
from mt.training.loss import Objective
from mt.training.train_state import TrainState
from mt.transformer.build import build_transformer
from mt.transformer.transformer import Transformer
from scripts.benchmark.mt_config import model_config
from scripts.benchmark.session import Channel, Job, TrainingSession
from scripts.benchmark.sides.plain_loop import LABEL_SMOOTHING
from scripts.benchmark.sizes import Size
from scripts.benchmark.workload import Description, Workload


def new_model(size: Size, workload: Description) -> Transformer:
    """The model of this size with first weights, the same every time."""
    torch.manual_seed(workload.seed)
    return build_transformer(
        model_config(size),
        src_vocab_size=workload.src_vocabulary_size,
        tgt_vocab_size=workload.tgt_vocabulary_size,
        max_length=workload.max_length,
    )


def batch_stream(workload: Workload, *, batch_tokens: int) -> BatchStream:
    """The batches of the workload as `mt train` makes them."""
    src, tgt = (
        EncodedSentences(side.values.astype("int32"), side.offsets, np.diff(side.offsets).astype("int32") + 1)
        for side in (workload.src, workload.tgt)
    )
    pairs = EncodedPairs(src, tgt)
    return BatchStream(pairs, batch_tokens=batch_tokens, num_micro_batches=1, seed=workload.description.seed)


def adam(model: Transformer) -> torch.optim.Optimizer:
    """The optimizer of `mt train`."""
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)


def run(channel: Channel, job: Job) -> None:
    workload = job.workload
    device = torch.device(job.device)
    model = new_model(job.size, workload.description)
    model.load_weights(load_file(job.first_weights))
    objective = Objective(model.to(device))
    train_state = TrainState(
        objective,
        adam(model),
        Precision(job.precision, device),
        learning_rate=lambda step: 1e-4,
        label_smoothing=LABEL_SMOOTHING,
        clip_norm=1.0,
    )
    stream = batch_stream(workload, batch_tokens=workload.description.batch_tokens)
    session = TrainingSession(channel, job, workload.description.tgt_vocabulary_size)

    first = stream.take(0, 0)[0][0].to(device)
    objective.eval()
    with torch.inference_mode():
        loss = objective(first, LABEL_SMOOTHING) / first.num_target_tokens
    objective.train()
    keep_freed_memory()
    session.ready(first_loss=float(loss), num_parameters=sum(p.numel() for p in model.parameters()))
    epoch = position = number = 0
    while True:
        micro_batches, epoch, position = stream.take(epoch, position)
        train_state.step([batch.to(device) for batch in micro_batches])
        pairs = workload.pairs_of_batch(number)
        [batch] = micro_batches
        session.after_step(
            [len(src) + 1 for src, _ in pairs],
            [len(tgt) + 1 for _, tgt in pairs],
            src_slots=batch.src_ids.numel(),
            tgt_slots=batch.tgt_ids.numel(),
        )
        number += 1
