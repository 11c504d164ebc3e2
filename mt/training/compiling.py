"""Compiling what a training step computes with torch.compile, by layer."""

import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mt.config.training import TrainingConfig
from mt.data.cache import cache_folder
from mt.training.loss import Objective
from mt.transformer.kernels.cross_entropy import fused_losses

# From here on, `auto` compiles: on an H100 it took up to 30 seconds, and saved a quarter of a step of base.
# The second number is rough: with batches that fill the device, a step takes some 60 milliseconds.
_FEWEST_STEPS, _STEPS_A_MINUTE = 10_000, 1000


def is_compiled(training: TrainingConfig, num_steps: float) -> bool:
    """Whether a run is compiled, which begins on CUDA and has so many steps by its other limits."""
    if training.compile != "auto":
        return training.compile
    return min(num_steps, _STEPS_A_MINUTE * (training.max_minutes or math.inf)) >= _FEWEST_STEPS


def compile_objective(objective: Objective, *, backend: str | Callable[..., Any] | None = None) -> None:
    """Compile each layer, whose graphs all layers of its kind share, and the losses with their gradients."""
    # By default not on a CPU, on which a run that was begun on CUDA may be continued.
    if backend is None and next(objective.parameters()).device.type == "cpu":
        return
    backend = backend or "inductor"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "torchinductor"))
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    # Shares of dropout never change. As variables they would have each layer read twice.
    torch._dynamo.config.specialize_float = True
    # Sizes that happen to be equal in the first batch are not so in the next one.
    torch.fx.experimental._config.use_duck_shape = False
    model = objective.model
    for layer in (*model.encoder.layers, *model.decoder.layers):
        compiled = torch.compile(layer.forward, dynamic=True, backend=backend)
        layer.forward = partial(_forward, layer, layer.forward, compiled)
    objective.fused_losses = partial(_with_any_number_of_rows, torch.compile(fused_losses, backend=backend))


def _forward(
    layer: nn.Module, plain: Callable[..., Any], compiled: Callable[..., Any], *inputs: Any, **options: Any
) -> Any:
    """Call what was compiled, but not in evaluation and for sizes of 1, which would need more graphs."""
    sizes = [
        size for value in inputs if isinstance(value, Tensor) and value.dim() == 3 for size in value.shape
    ]
    return (compiled if layer.training and 1 not in sizes else plain)(*inputs, **options)


def _with_any_number_of_rows(
    compiled: Callable[..., Tensor], logits: Tensor, labels: Tensor, smoothing: float
) -> Tensor:
    # The number of words remains a constant, with which the compiler does better.
    for rows in (logits, labels):
        torch._dynamo.mark_dynamic(rows, 0)
    return compiled(logits, labels, smoothing)
