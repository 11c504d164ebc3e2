"""torch.compile, by layer: few graphs for batches of all shapes, and the same losses and gradients."""

import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
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


PROGRAM = """\
import sys, time, torch
from mt.config.model import ModelConfig
from mt.data.batches.batch import collate
from mt.training import loss
from mt.training.compiling import compile_objective
from mt.transformer.build import build_transformer

loss.cheapest_masks = lambda batch, dtype: (loss.as_bias(batch.src_mask, dtype), "causal")
sizes = ModelConfig(d_model=32, num_heads=2, d_ff=64, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0)
torch.manual_seed(1)
model = build_transformer(sizes, src_vocab_size=19, tgt_vocab_size=19, max_length=16)
batch = collate([[5, 6, 7], [8, 9]], [[6, 7], [8, 9, 10]])
losses = []
for is_compiled in (False, True):
    objective = loss.Objective(model)
    if is_compiled:
        compile_objective(objective)
    started = time.perf_counter()
    found = objective(batch, 0.1)
    found.backward()
    seconds = time.perf_counter() - started
    losses.append(found.item())
assert abs(losses[0] - losses[1]) <= 1e-5 * losses[0], losses
print(seconds)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("g++") is None, reason="no C++ compiler, with which torch compiles for a CPU"
)
def test_a_second_start_finds_what_the_first_has_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    seconds = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        seconds.append(float(done.stdout))
    assert seconds[1] < seconds[0] / 2
