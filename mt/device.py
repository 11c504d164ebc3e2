"""The device that a model runs on, and the precision that it computes in."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor

from mt import system
from mt.errors import EngineError

SearchPrecision = Literal["float32", "bf16", "fp16", "int8"]
"""The precision of matrix products in translating and scoring; int8 by CTranslate2 only."""
SEARCH_DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""The type of the weights of a model that torch searches with."""
PrecisionName = Literal["auto"] | SearchPrecision
"""A precision, or ``auto`` for the one that `choose_precision` selects."""


def choose_device(name: str | torch.device) -> torch.device:
    """The device of that name; ``auto`` selects CUDA, else Apple's MPS, else the CPU."""
    is_usable = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    usable = [device for device in is_usable if is_usable[device]]
    if isinstance(name, str) and name not in ("auto", *usable):
        raise EngineError(f"this machine has no usable device {name!r}. Choose auto or {', '.join(usable)}.")
    device = torch.device(usable[0] if name == "auto" else name)
    if device.type == "cuda":
        # cuDNN's attention spends tens of milliseconds on a plan for each new shape, which most batches have;
        # flash attention works on 128 by 128 positions at once, and took twice as long for big on an H100.
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_cudnn_sdp(False)
    return device


def usable_precisions(device: torch.device) -> list[SearchPrecision]:
    """The precisions in which torch computes fast on this device, the fastest first."""
    if device.type == "cuda":
        # Since Ampere, and since there are tensor cores.
        needed: dict[SearchPrecision, tuple[int, int]] = {"bf16": (8, 0), "fp16": (7, 0), "float32": (0, 0)}
        return [name for name in needed if torch.cuda.get_device_capability(device) >= needed[name]]
    # Torch itself may have been told to do with less than the processor has.
    uses_avx512 = device.type == "cpu" and torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    capabilities = torch.cpu.get_capabilities() if uses_avx512 else {}
    has_bf16 = capabilities.get("amx_bf16") or capabilities.get("avx512_bf16")
    return ["bf16", "float32"] if has_bf16 else ["float32"]


def choose_precision(name: PrecisionName, device: torch.device) -> SearchPrecision:
    """The precision; ``auto`` is the fastest one."""
    if name == "float32":
        return name
    usable = usable_precisions(device)
    if name != "auto" and name not in usable:
        raise EngineError(
            f"torch computes in {' or '.join(usable)} on this device ({device.type}), not in {name}. Use "
            "another precision, such as auto."
        )
    return usable[0] if name == "auto" else name


class DeferredRead:
    """Numbers that CUDA copies to the host as soon as they are computed, whatever is launched after them."""

    def __init__(self, numbers: Tensor) -> None:
        self._numbers = numbers.to("cpu", non_blocking=numbers.is_cuda)
        self._copied = torch.cuda.Event() if numbers.is_cuda else None  # type: ignore[no-untyped-call]
        if self._copied is not None:
            self._copied.record()

    def wait(self) -> list[float]:
        """The numbers, once they have arrived."""
        if self._copied is not None:
            self._copied.synchronize()
        numbers: list[float] = self._numbers.tolist()
        return numbers


class Precision:
    """The precision of training: float32, or mixed with bf16 or fp16 (Micikevicius et al. 2018)."""

    def __init__(
        self, name: PrecisionName | Literal["mixed"], device: torch.device, *, tf32: bool = False
    ) -> None:
        """Choose it: ``mixed`` is what is fast on this device, and so is ``auto`` on CUDA."""
        if name == "auto" and device.type != "cuda":
            name = "float32"
        try:
            self.name = choose_precision("auto" if name == "mixed" else name, device)
        except EngineError as error:
            how = "a run that has begun keeps its own, and a new one begins from its weights with --init-from"
            raise EngineError(f"{str(error)[:-1]}; {how}.") from error
        self.device = device
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.name == "fp16")
        self.skips_on_device = device.type == "cuda"
        """Whether the device itself skips an update that is not finite: the host need not wait for it."""
        if device.type == "cuda":
            # For the whole process. Torch.compile reads this older name.
            torch.backends.cuda.matmul.allow_tf32 = tf32

    def autocast(self) -> AbstractContextManager[Any]:
        """The context in which the forward pass and the loss are computed."""
        # Switching it off takes time in each step, too.
        is_mixed = self.name != "float32"
        return torch.autocast(self.device.type, SEARCH_DTYPES[self.name]) if is_mixed else nullcontext()

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of the loss to those of its parameters, in fp16 times a scale."""
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def unscale(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Divide the gradients of these optimizers by the scale."""
        for optimizer in optimizers:
            self.scaler.unscale_(optimizer)

    def scale(self, loss: Tensor) -> Tensor:
        """The scale ``()`` of the loss, beside it; 1 but for fp16."""
        return self.scaler.scale(torch.ones_like(loss))

    def allow_update(self, optimizers: Iterable[torch.optim.Optimizer], is_finite: Tensor) -> bool:
        """Whether to update these; on CUDA always, but where ``is_finite`` is false they change nothing.

        Like torch's GradScaler, this sets ``found_inf`` of fused optimizers; unlike it, also for a loss that
        is not finite.
        """
        found_inf = (~is_finite).float() if self.skips_on_device else None
        for optimizer in optimizers:
            optimizer.found_inf = found_inf  # type: ignore[attr-defined]
        return self.skips_on_device or bool(is_finite)


@contextmanager
def keeping_threads() -> Iterator[None]:
    """After the ``with`` block, torch has the threads that it had; CTranslate2 leaves it one."""
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)


def fix_threads_and_malloc() -> None:
    """Let this process keep its number of threads and its freed memory; call it before the first step."""
    # From now on MKL does not choose how many threads each product gets. Otherwise a run that has searched in
    # parallel would not compute the same as a resumed run that has not.
    torch.set_num_threads(torch.get_num_threads())
    system.keep_freed_memory()
