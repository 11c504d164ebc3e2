"""Training and search on CUDA, without a GPU: no mixed devices, and how often the host waits for the device.

Tensors have no data here, but a device. What mixes devices raises as on a GPU, and so do operations whose
result has a size that depends on data, such as `nonzero`.
"""

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from mt.config.config import Config
from mt.config.data import DataConfig
from mt.config.model import ModelConfig
from mt.config.training import TrainingConfig
from mt.data.batches.batch import Batch, collate
from mt.data.batches.stream import StepBatches
from mt.device import Precision
from mt.search.beam import beam_search
from mt.search.greedy import greedy_search
from mt.search.request import SearchRequest
from mt.search.sampling import sample
from mt.search.strategy import Beam, Constraints, Sampling
from mt.special_tokens import EOS_ID
from mt.training.train_state import TrainState, new_train_state
from mt.transformer.build import build_transformer
from mt.transformer.transformer import Transformer
from mt.transformer.weights import adopt_weights, without_memory

aten = torch.ops.aten
READS = (aten._local_scalar_dense.default, aten.item.default, aten.is_nonzero.default)
CUDA = torch.device("cuda", 0)
NUM_SENTENCES = 4
MOST_READS_A_SEARCH = 4
"""Besides those of its steps: whether sources are padded or may be copied, and what was found."""


class Device(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts how often the host waits for the device; what it reads then is made up."""

    def __init__(self, tensors: FakeTensorMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_reads = 0
        self._tensors = tensors

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in READS:
            return self.read(args[0]).item()
        result = func(*args, **(kwargs or {}))
        if func is aten._to_copy.default and args[0].is_cuda and not result.is_cuda:
            # What does not block is waited for at an event.
            self.num_reads += not (kwargs or {}).get("non_blocking", False)
        return result

    def read(self, tensor: Tensor) -> Any:
        """Flags are set, numbers are 1, and of the candidates of a search few are EOS; all continue row 0."""
        self.num_reads += tensor.is_cuda
        if tensor.dim() < 2:
            return np.ones(tuple(tensor.shape), dtype=bool if tensor.dtype == torch.bool else float)
        candidates = np.zeros(tuple(tensor.shape))
        candidates[np.arange(len(candidates)) % 9 == 8, 0] = EOS_ID
        return candidates

    def on_host(self, batch: Batch) -> Batch:
        """A batch without data, as training takes it from the corpus."""
        values = {field.name: getattr(batch, field.name) for field in fields(batch)}
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        counterparts: dict[str, Any] = {name: self._tensors.from_tensor(tensors[name]) for name in tensors}
        return replace(batch, **counterparts)


class Event:
    """An event of the device, for which the host may wait."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._is_recorded = False

    def record(self) -> None:
        self._is_recorded = True

    def synchronize(self) -> None:
        assert self._is_recorded
        self._device.num_reads += 1


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """Lets this process have a CUDA device, an Ampere, for tensors without data."""
    with known_to_torch(), FakeTensorMode() as tensors, Device(tensors) as device:
        monkeypatch.setattr(FakeTensor, "tolist", lambda tensor: device.read(tensor).tolist())
        monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor)
        monkeypatch.setattr(torch.cuda, "Event", partial(Event, device))
        monkeypatch.setattr(FakeTensor, "backward", backward, raising=False)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (8, 0))
        # What autocast asks before it is enabled.
        monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_: True)
        yield device


@contextmanager
def known_to_torch() -> Iterator[None]:
    """Let a build of torch for CPUs take CUDA for a device; a build for CUDA does this by itself."""
    if torch.cuda._is_compiled():
        yield
        return
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    # Guards by the number of their type of device: 1 is CUDA, and 14 meta, for tensors without data.
    guards = (ctypes.c_void_p * 15).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    guards[1] = guards[14]
    try:
        yield
    finally:
        guards[1] = None


@torch.no_grad()
def backward(loss: Tensor) -> None:
    """Give each parameter a gradient, by our own derivatives; torch's engine would ask CUDA for streams."""
    seen: set[Any] = set()
    to_do = [loss.grad_fn]
    while to_do:
        node = to_do.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        to_do += [following for following, _ in node.next_functions]
        if hasattr(node, "variable"):
            node.variable.grad = torch.ones_like(node.variable)
        elif isinstance(node, torch.autograd.function.BackwardCFunction):
            node.apply(torch.ones_like(loss))


PADDED = collate([[7] * 5, [7] * 3, [7] * 4], [[8] * 2, [8] * 6, [8] * 4])
EQUAL = collate([[7] * 5] * 3, [[8] * 2, [8] * 6, [8] * 4])
SIZES = ModelConfig(d_model=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, d_ff=32)


def model_on_cuda(vocab_size: int) -> Transformer:
    """A model without data on the device."""
    with without_memory():
        model = build_transformer(SIZES, src_vocab_size=vocab_size, tgt_vocab_size=vocab_size, max_length=64)
    with CUDA:
        adopt_weights(model, {name: torch.empty(each.shape) for name, each in model.weights().items()})
    return model


def state_on_cuda(precision: Literal["float32", "bf16", "fp16"], **options: Any) -> TrainState:
    training = TrainingConfig(max_steps=1, **options)
    config = Config(data=DataConfig(path="-", src="a", tgt="b"), model=SIZES, training=training)
    return new_train_state(model_on_cuda(17), config, Precision(precision, CUDA))


@pytest.mark.parametrize(
    ("precision", "training"),
    [
        ("float32", {}),
        ("bf16", {}),
        ("fp16", {}),
        ("bf16", {"r_drop": 5.0, "ema_decay": 0.9}),
        ("fp16", {"muon": True, "ema_decay": 0.9, "clip_norm": None}),
        ("float32", {"muon": True, "ema_decay": 0.9, "weight_decay": 0.1, "num_micro_batches": 2}),
    ],
    ids=str,
)
def test_steps_are_launched_without_waiting_for_the_one_before(
    precision: Literal["float32", "bf16", "fp16"], training: dict[str, Any], device: Device
) -> None:
    state = state_on_cuda(precision, **training)
    micro_batches = [device.on_host(batch) for batch in (PADDED, EQUAL)]
    launched = [state.launch(StepBatches.of(*micro_batches)) for _ in range(2)]
    assert device.num_reads == 0
    assert all(state.finish(step).updated for step in launched)
    # In each step, the loss and the norm of the gradient at once.
    assert device.num_reads == 2
    assert {parameter.device.type for parameter in state.objective.parameters()} == {"cuda"}


@pytest.mark.usefixtures("device")
def test_mixed_precision_is_on_for_this_device() -> None:
    # The tests here would show nothing of it otherwise.
    ones = torch.ones(2, 2, device=CUDA)
    with Precision("bf16", CUDA).autocast():
        assert (ones @ ones).dtype == torch.bfloat16
    with Precision("fp16", CUDA).autocast():
        assert (ones @ ones).dtype == torch.float16


@pytest.mark.parametrize("is_padded", [False, True])
def test_only_padding_of_sources_has_a_mask_which_would_rule_out_flash_attention(
    is_padded: bool, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[bool, bool]] = []
    attend = functional.scaled_dot_product_attention

    def note(*arguments: Any) -> Tensor:
        _, _, _, mask, _, is_causal = arguments
        calls.append((mask is not None, is_causal))
        return attend(*arguments)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", note)
    batch = device.on_host(PADDED if is_padded else EQUAL)
    state_on_cuda("bf16").launch(StepBatches.of(batch))
    of_encoder, of_decoder = [(is_padded, False)], [(False, True), (is_padded, False)]
    assert calls == of_encoder + of_decoder


@pytest.mark.parametrize("search", ["greedy", "beam", "sampling"])
def test_the_host_waits_once_for_each_token(
    search: str, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, aligned = model_on_cuda(300).eval(), list[bool]()
    decode_step = model.decode_step

    def counted(*arguments: Any, with_alignment: bool) -> Any:
        aligned.append(with_alignment)
        return decode_step(*arguments, with_alignment=with_alignment)

    monkeypatch.setattr(model, "decode_step", counted)
    src_ids = torch.full((NUM_SENTENCES, 9), EOS_ID + 1, device=CUDA)
    request = SearchRequest(src_ids, [12] * NUM_SENTENCES)
    # Not in inference mode, in which tensors without data would be computed.
    with torch.no_grad():
        match search:
            case "greedy":
                greedy_search(model, replace(request, copyable=src_ids == EOS_ID + 1))
            case "beam":
                constraints = Constraints(5, 3, [[EOS_ID + 1]] * NUM_SENTENCES)
                beam_search(model, replace(request, constraints=constraints), Beam(4))
            case "sampling":
                sample(model, request, Sampling(), range(NUM_SENTENCES))
    # Otherwise nothing is copied.
    assert set(aligned) == {search == "greedy"}
    assert len(aligned) > 10
    assert device.num_reads <= len(aligned) + MOST_READS_A_SEARCH
