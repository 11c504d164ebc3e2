"""A CUDA device without a GPU: its tensors have no data, and what mixes devices raises as on a GPU."""

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from mt.config.model import ModelConfig
from mt.data.batches.batch import Batch
from mt.special_tokens import EOS_ID
from mt.transformer.build import build_transformer
from mt.transformer.transformer import Transformer
from mt.transformer.weights import adopt_weights, without_memory

aten = torch.ops.aten
READS = (aten._local_scalar_dense.default, aten.item.default, aten.is_nonzero.default)
CUDA = torch.device("cuda", 0)


class FakeCuda(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts how often the host waits for the device, to read from it; what it reads is made up.

    Operations whose result has a size that depends on data, such as `nonzero`, wait too, and raise here.
    """

    def __init__(self, tensors: FakeTensorMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_reads = 0
        self._tensors = tensors
        self._random = np.random.default_rng(1)
        self._flags = cycle((True, False))

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in READS:
            return self.read(args[0]).item()
        found = func(*args, **(kwargs or {}))
        if func is aten._to_copy.default and args[0].is_cuda and not found.is_cuda:
            # What does not block is waited for at an event.
            self.num_reads += not (kwargs or {}).get("non_blocking", False)
        return found

    def read(self, tensor: Tensor) -> Any:
        """Made-up values for the host: some flags are set, some tokens are EOS, and numbers are finite.

        Every other flag that is read by itself is set, beginning with the first.
        """
        self.num_reads += tensor.is_cuda
        is_rare = self._random.random(tuple(tensor.shape)) < 0.1
        if tensor.dtype == torch.bool:
            return is_rare if tensor.dim() else np.array(next(self._flags))
        if tensor.dtype.is_floating_point:
            return np.ones(tuple(tensor.shape))
        return np.where(is_rare, EOS_ID, EOS_ID + 1)

    def on_host(self, batch: Batch) -> Batch:
        """A batch without data, such as training takes it from the corpus."""
        values = {field.name: getattr(batch, field.name) for field in fields(batch)}
        counterparts: dict[str, Any] = {
            name: self._tensors.from_tensor(value)
            for name, value in values.items()
            if isinstance(value, Tensor)
        }
        return replace(batch, **counterparts)


class _Event:
    """An event of the device, for which the host may wait."""

    def __init__(self, device: FakeCuda) -> None:
        self._device = device
        self._is_recorded = False

    def record(self) -> None:
        self._is_recorded = True

    def synchronize(self) -> None:
        assert self._is_recorded
        self._device.num_reads += 1


@contextmanager
def fake_cuda(capability: tuple[int, int] = (8, 0)) -> Iterator[FakeCuda]:
    """Let this process have a CUDA device of that compute capability, for tensors without data."""
    with (
        pytest.MonkeyPatch.context() as patch,
        _known_to_torch(),
        FakeTensorMode() as tensors,
        FakeCuda(tensors) as device,
    ):
        patch.setattr(FakeTensor, "tolist", lambda tensor: device.read(tensor).tolist())
        patch.setattr(Tensor, "pin_memory", lambda tensor: tensor)
        patch.setattr(torch.cuda, "Event", partial(_Event, device))
        patch.setattr(FakeTensor, "backward", _backward, raising=False)
        patch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
        # What autocast asks before it is enabled.
        patch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
        patch.setattr(torch.cuda, "is_bf16_supported", lambda *_: capability >= (8, 0))
        yield device


@contextmanager
def _known_to_torch() -> Iterator[None]:
    """Let a build of torch for CPUs take CUDA for a device, with the guard of tensors without data.

    A build for CUDA does this by itself.
    """
    if torch.cuda._is_compiled():
        yield
        return
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    # Guards by the number of their type of device: 1 is CUDA, and 14 meta.
    guards = (ctypes.c_void_p * 15).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    guards[1] = guards[14]
    try:
        yield
    finally:
        guards[1] = None


@torch.no_grad()
def _backward(loss: Tensor) -> None:
    """Do what torch's engine does in ``backward``, which asks CUDA for its streams."""
    assert loss.grad_fn is not None
    order: list[Any] = []
    seen: set[Any] = set()
    to_do = [(loss.grad_fn, False)]
    while to_do:
        node, is_after_its_inputs = to_do.pop()
        if is_after_its_inputs:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            to_do.append((node, True))
            to_do += [(following, False) for following, _ in node.next_functions if following is not None]
    gradients: dict[Any, dict[int, Tensor]] = {loss.grad_fn: {0: torch.ones_like(loss)}}
    for node in reversed(order):
        own = gradients.pop(node)
        if hasattr(node, "variable"):
            node.variable.grad = own[0] if node.variable.grad is None else node.variable.grad + own[0]
            continue
        # A function of our own is no callable.
        compute = node if callable(node) else node.apply
        found = compute(*(own.get(number, _zeros(each)) for number, each in enumerate(node._input_metadata)))
        found = found if isinstance(found, tuple) else (found,)
        # Its inputs that are no tensors come last, and are left out here.
        for gradient, (following, number) in zip(found, node.next_functions, strict=False):
            if following is not None:
                sums = gradients.setdefault(following, {})
                if gradient is not None:
                    # Of a tensor that was broadcast, or cast.
                    metadata = following._input_metadata[number]
                    gradient = gradient.sum_to_size(metadata.shape).to(metadata.dtype)
                    sums[number] = sums[number] + gradient if number in sums else gradient


def _zeros(metadata: Any) -> Tensor:
    return torch.zeros(metadata.shape, dtype=metadata.dtype, device=metadata.device)


def on_cuda(config: ModelConfig, *, vocab_size: int) -> Transformer:
    """A model without data on the fake device."""
    with without_memory():
        model = build_transformer(config, src_vocab_size=vocab_size, tgt_vocab_size=vocab_size, max_length=64)
    with CUDA:
        adopt_weights(model, {name: torch.empty(each.shape) for name, each in model.weights().items()})
    return model
