"""torch.compile, by layer: few graphs for batches of all shapes, and the same losses and gradients."""

import os
import random
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from mt.config.model import ModelConfig
from mt.data.batches.batch import Batch, collate
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.training.compiling import compile_objective
from mt.training.loss import Objective
from mt.transformer import kernels
from mt.transformer.build import build_transformer
from mt.transformer.kernels.attention import Mask, as_bias
from mt.transformer.transformer import Transformer
from tests.fixture_types import MakeObjective

MOST_GRAPHS = {"losses": 2, "layers of the encoder": 4, "layers of the decoder": 4}
"""By how many attentions they have."""


@pytest.fixture(autouse=True)
def as_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    compute_as_on_cuda(monkeypatch.setattr)


def compute_as_on_cuda(setattr: Callable[[object, str, object], None]) -> None:
    """On CUDA masks are others, and torch multiplies."""

    def masks(
        src_mask: Tensor, tgt_ids: Tensor, *, has_src_padding: bool, dtype: torch.dtype
    ) -> tuple[Tensor | None, Mask]:
        return as_bias(src_mask, dtype) if has_src_padding else None, "causal"

    setattr(kernels, "masks_for_kernel", masks)
    for kernel in ("linear", "cross_entropy"):
        setattr(import_module(f"mt.transformer.kernels.{kernel}"), "onednn_dtype", lambda x: None)


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


def step_by_inductor(cache: str) -> tuple[float, float]:
    """How far loss and gradient of a compiled step are from those of a plain one, and its seconds."""
    os.environ["MT_CACHE"] = cache
    # Torch sets it in the first process that compiles, and this one inherits it.
    os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)
    compute_as_on_cuda(setattr)
    torch.manual_seed(1)
    sizes = ModelConfig(
        d_model=16, num_heads=2, d_ff=24, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0
    )
    objective = Objective(build_transformer(sizes, src_vocab_size=17, tgt_vocab_size=17, max_length=24))
    [batch] = [batch for batch in batches_of_all_shapes(20) if batch.src_ids.shape == (8, 9)][:1]
    expected = gradients(objective, batch)
    compile_objective(objective, backend="inductor")
    started = time.perf_counter()
    found = gradients(objective, batch)
    seconds = time.perf_counter() - started
    apart = max(float((one - other).abs().max()) for one, other in zip(found, expected, strict=True))
    return apart / batch.num_target_tokens, seconds


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++, which Inductor needs")
@pytest.mark.slow
def test_inductor_gives_the_same_losses_and_what_it_compiled_is_kept_in_the_cache(tmp_path: Path) -> None:
    starts = []
    for _ in range(2):
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            starts.append(process.submit(step_by_inductor, str(tmp_path)).result())
    assert list(tmp_path.rglob("*.so"))
    assert max(difference for difference, _ in starts) <= 1e-5
    (_, cold), (_, warm) = starts
    assert warm < cold / 2


def test_a_compiled_model_is_recorded_too(trained: RunDirectory) -> None:
    translator = ModelTranslator.from_run(trained, device="cpu")
    assert isinstance(translator.engine.model, Transformer)
    expected = translator.engine.record([5, 6, 7], [8, 9])
    # In evaluation it runs its own code, which calls the recording hooks.
    compile_objective(Objective(translator.engine.model).eval(), backend="eager")
    for weights, same in zip(translator.engine.record([5, 6, 7], [8, 9]), expected, strict=True):
        torch.testing.assert_close(weights, same)
