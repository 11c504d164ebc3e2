"""The benchmark compares like with like: checked without its extra, on what needs torch alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from mt.data.batches.batch import collate
from mt.training.loss import Objective
from scripts.benchmark.sides.mt_train import new_model
from scripts.benchmark.sides.plain_loop import PaddedBatch
from scripts.benchmark.sides.torch_loop import TorchTransformer, state_from_mt
from scripts.benchmark.sides.tutorial import LENGTH, TutorialTransformer
from scripts.benchmark.sizes import SIZES, training_flops
from scripts.benchmark.workload import PAD_ID, Description, Ragged, Workload

TINY = SIZES["tiny"]


@pytest.fixture
def workload() -> Workload:
    random = np.random.default_rng(0)
    src, tgt = ([random.integers(4, 50, random.integers(3, 12)) for _ in range(6)] for _ in range(2))
    description = Description("noise", 50, 60, 200, 1, 32, 6, 8.0)
    batches = [np.arange(3), np.arange(3, 6)]
    return Workload(description, Ragged.of(src), Ragged.of(tgt), Ragged.of(batches))


def test_a_workload_comes_back_from_its_files(workload: Workload, tmp_path: Path) -> None:
    workload.save(tmp_path)
    loaded = Workload.load(tmp_path)
    assert loaded.description == workload.description
    for number in (0, 1):
        for pair, same in zip(workload.pairs_of_batch(number), loaded.pairs_of_batch(number), strict=True):
            np.testing.assert_array_equal(pair[0], same[0])
            np.testing.assert_array_equal(pair[1], same[1])


def test_the_plain_loop_has_the_loss_and_the_gradient_of_mt(workload: Workload) -> None:
    ours = new_model(TINY, workload.description).eval()
    theirs = TorchTransformer(TINY, workload.description)
    state = state_from_mt(ours.weights())
    theirs.load_state_dict({**state, "positions": theirs.positions})
    for module in theirs.modules():
        # In training mode, where the gradient is, but without what is random.
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    pairs = workload.pairs_of_batch(0)
    batch = collate([src for src, _ in pairs], [tgt for _, tgt in pairs])
    our_loss: Tensor = Objective(ours)(batch, 0.1) / batch.num_target_tokens
    our_loss.backward()  # type: ignore[no-untyped-call]
    padded = PaddedBatch.of(pairs, "cpu")
    logits = theirs(padded.src, padded.tgt).flatten(0, 1)
    their_loss = F.cross_entropy(logits, padded.labels.flatten(), ignore_index=PAD_ID, label_smoothing=0.1)
    their_loss.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(our_loss, their_loss)
    gradients = {name: p.grad for name, p in ours.named_parameters() if p.grad is not None}
    for name, gradient in state_from_mt(gradients).items():
        parameter = theirs.get_parameter(name)
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-5, rtol=1e-4)


def test_the_arithmetic_is_what_torch_counts(workload: Workload) -> None:
    model = TutorialTransformer(TINY, workload.description)
    ids = torch.ones(1, LENGTH, dtype=torch.long)
    mask = torch.ones(1, 1, 1, LENGTH, dtype=torch.int)
    with FlopCounterMode(display=False) as counter:
        loss: Tensor = model(ids, mask, ids, mask).sum()
        loss.backward()  # type: ignore[no-untyped-call]
    # The tutorials compute the whole square of the target's attention, of which half is of use.
    wasted = 6 * TINY.num_layers * 2 * TINY.d_model * LENGTH * (LENGTH - 1) / 2
    needed = training_flops(TINY, workload.description.tgt_vocabulary_size, [LENGTH], [LENGTH])
    assert counter.get_total_flops() == needed + wasted
