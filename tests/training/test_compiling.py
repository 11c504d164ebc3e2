"""torch.compile, by layer: few graphs for batches of all shapes, and the same losses and gradients."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from mt.data.batches.batch import Batch, collate
from mt.masks import Mask, as_bias
from mt.training import loss
from mt.training.compiling import compile_objective
from mt.training.loss import Objective

MakeObjective = Callable[..., Objective]
MOST_GRAPHS = {"losses": 2, "layers of the encoder": 4, "layers of the decoder": 4}
"""By how many attentions they have."""


@pytest.fixture(autouse=True)
def masks_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    def masks(batch: Batch, dtype: torch.dtype) -> tuple[Tensor | None, Mask]:
        return as_bias(batch.src_mask, dtype) if batch.has_src_padding else None, "causal"

    monkeypatch.setattr(loss, "cheapest_masks", masks)


def batches_of_all_shapes(number: int) -> list[Batch]:
    """Among them single pairs, empty sentences, and sources of one length, which have no mask."""
    numbers = random.Random(1)
    batches = []
    for _ in range(number):
        length = numbers.choice([None, 0, 1, 5])

        def sentence(length: int | None = length) -> list[int]:
            return [
                numbers.randrange(4, 17) for _ in range(numbers.randrange(9) if length is None else length)
            ]

        num_rows = numbers.choice([1, 2, 3, 8])
        src = [sentence() for _ in range(num_rows)]
        tgt = [sentence(None) for _ in range(num_rows)]
        places = [[0] * len(row) for row in tgt]
        batches.append(collate(src, tgt, places if numbers.random() < 0.3 else None))
    return batches


def gradients(objective: Objective, batch: Batch) -> tuple[Tensor, Tensor]:
    objective.zero_grad()
    found = objective(batch, 0.1)
    found.backward()
    return found.detach(), torch.cat(
        [each.grad.flatten() for each in objective.parameters() if each.grad is not None]
    )


# torch looks at gradients that are none while it reads the program.
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
@pytest.mark.slow
def test_batches_of_all_shapes_take_few_graphs_and_give_the_same_gradients(
    make_objective: MakeObjective,
) -> None:
    torch.compiler.reset()
    graphs = dict.fromkeys(MOST_GRAPHS, 0)

    def counted(graph: GraphModule, inputs: Any) -> Any:
        called = [getattr(node.target, "__name__", "") for node in graph.graph.nodes]
        num_attentions = called.count("scaled_dot_product_attention")
        graphs[list(MOST_GRAPHS)[num_attentions]] += 1
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    plain, compiled = make_objective().double(), make_objective().double()
    plain.guided_alignment = compiled.guided_alignment = 0.1
    compile_objective(compiled, backend=counted)
    for batch in batches_of_all_shapes(50):
        for found, expected in zip(gradients(compiled, batch), gradients(plain, batch), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    assert all(0 < number <= MOST_GRAPHS[kind] for kind, number in graphs.items()), graphs
