"""`mt` itself: the loop of `mt.training.loop` without its validations and checkpoints."""

import numpy as np
import torch
from safetensors.torch import load_file

from mt.config.model import ModelConfig
from mt.config.training import TrainingConfig
from mt.data.batches.pairs import EncodedPairs, EncodedSentences
from mt.data.batches.stream import BatchStream
from mt.device import Precision, fix_threads_and_malloc
from mt.training.loss import Objective
from mt.training.train_state import TrainState
from mt.transformer.build import build_transformer
from mt.transformer.transformer import Transformer
from mt.transformer.weights import load_weights
from scripts.benchmark.session import Channel, Job, TrainingSession
from scripts.benchmark.sides.plain_loop import LABEL_SMOOTHING
from scripts.benchmark.sizes import Size
from scripts.benchmark.workload import Description, Workload


def model_config(size: Size) -> ModelConfig:
    """Post-norm, as the paper and as Marian have it, so that all sides can compute the same."""
    return ModelConfig(
        d_model=size.d_model,
        num_heads=size.num_heads,
        d_ff=size.d_ff,
        num_encoder_layers=size.num_layers,
        num_decoder_layers=size.num_layers,
        dropout=0.1,
        norm_first=False,
    )


def new_model(size: Size, workload: Description) -> Transformer:
    """The model of this size with first weights, the same every time."""
    torch.manual_seed(workload.seed)
    return build_transformer(
        model_config(size),
        src_vocab_size=workload.src_vocabulary_size,
        tgt_vocab_size=workload.tgt_vocabulary_size,
        max_length=workload.max_length,
    )


def batch_stream(workload: Workload) -> BatchStream:
    """The batches of the workload as `mt train` makes them."""
    src, tgt = (
        EncodedSentences(side.values.astype("int32"), np.diff(side.offsets).astype("int32") + 1)
        for side in (workload.src, workload.tgt)
    )
    facts = workload.description
    return BatchStream(
        pairs=EncodedPairs(src, tgt), batch_tokens=facts.batch_tokens, num_micro_batches=1, seed=facts.seed
    )


def run(channel: Channel, job: Job) -> None:
    workload = job.workload
    device = torch.device(job.device)
    model = new_model(job.size, workload.description)
    load_weights(model, load_file(job.first_weights))
    objective = Objective(model.to(device))
    train_state = TrainState(
        objective,
        [torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)],
        Precision(job.precision, device),
        lambda step: 1e-4,
        TrainingConfig(label_smoothing=LABEL_SMOOTHING),
    )
    stream = batch_stream(workload)
    session = TrainingSession(channel, job.device)
    first = stream.take((0, 0)).micro_batches[0].to(device)
    objective.eval()
    with torch.inference_mode():
        loss = objective(first, LABEL_SMOOTHING) / first.num_target_tokens
    objective.train()
    fix_threads_and_malloc()
    session.ready(first_loss=float(loss))
    while True:
        batches = stream.take(train_state.position)
        train_state.step(batches._replace(micro_batches=[each.to(device) for each in batches.micro_batches]))
        session.after_step(sum(each.num_target_tokens for each in batches.micro_batches))
