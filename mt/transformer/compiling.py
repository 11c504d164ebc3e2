"""Compiling the layers of a model with torch.compile, for training on CUDA."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from mt.transformer.transformer import Transformer

Compiler = str | Callable[..., Any]
"""A backend of torch.compile, by its name or as a function."""


def compile_layers(model: Transformer, *, backend: Compiler) -> None:
    """Compile each layer, for batches of any shape; all layers of a kind share their graphs.

    Beyond torch's limit of 8 graphs of a function, an error is raised: torch would go on without compiling.
    """
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    # Sizes that happen to be equal in the first batch are not so in the next one.
    torch.fx.experimental._config.use_duck_shape = False
    # Shares of dropout never change. As variables they would have each layer read twice.
    torch._dynamo.config.specialize_float = True
    for stack in (model.encoder, model.decoder):
        for layer in stack.layers:
            layer.compile(dynamic=True, backend=backend)


def without_compiled_code() -> AbstractContextManager[object]:
    """Run the model's own code, for hooks, which a compiled layer ignores, and where few batches come."""
    # If nothing was compiled, the compiler is not imported, which would take as long as importing torch.
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
