"""The one seed, and torch's random state out and in, as an exact resume needs it.

Nothing in this project draws from Python's or numpy's global generators: theirs are neither seeded nor kept.
"""

from collections.abc import Mapping

import torch
from torch import Tensor


def seed_everything(seed: int) -> None:
    """Seed torch's generators on every device, also those of devices that are first used later.

    Args:
        seed: From 0 to ``2**64 - 1``.
    """
    torch.manual_seed(seed)


def random_state() -> dict[str, Tensor]:
    """State of the generators in use, by kind of device: byte tensors on the CPU.

    A GPU is left out until this process has used it: nothing was drawn there, and asking would start it up.
    """
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state()
    if torch.backends.mps.is_available():
        state["mps"] = torch.mps.get_rng_state()
    return state


def restore_random_state(state: Mapping[str, Tensor]) -> None:
    """Put back what ``random_state`` returned; kinds of device that this machine lacks are passed over."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    if "mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["mps"])
