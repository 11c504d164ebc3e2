"""The benchmark compares like with like: its plain loop computes what mt does."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt.data.batches.batch import collate
from mt.training.loss import Objective
from scripts.benchmark.sides.mt_train import new_model
from scripts.benchmark.sides.plain_loop import PaddedBatch
from scripts.benchmark.sides.torch_loop import TorchTransformer, state_from_mt
from scripts.benchmark.sizes import SIZES
from scripts.benchmark.workload import PAD_ID, Description

TINY = SIZES["tiny"]


def test_the_plain_loop_has_the_loss_and_the_gradient_of_mt() -> None:
    random = np.random.default_rng(0)
    pairs = [(random.integers(4, 50, 3 + i), random.integers(4, 60, 9 - i)) for i in range(4)]
    workload = Description("noise", 50, 60, 200, 1, 32, 4)
    ours = new_model(TINY, workload).eval()
    theirs = TorchTransformer(TINY, workload)
    state = state_from_mt(ours.weights())
    theirs.load_state_dict({**state, "positions": theirs.positions})
    for module in theirs.modules():
        # In training mode, where the gradient is, but without what is random.
        if isinstance(module, nn.Dropout):
            module.p = 0.0
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
