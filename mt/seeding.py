"""Seeds derived from the one seed of a run, so that no two purposes draw the same numbers."""

from hashlib import blake2b

import torch


def derived_seed(purpose: str, *numbers: int) -> int:
    """A seed from 0 to ``2**64 - 1`` that depends on the purpose and on each of the numbers."""
    text = " ".join([purpose, *map(str, numbers)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def seed_device(seed: int, device: torch.device) -> None:
    """Seed the generators that computations on ``device`` draw from."""
    # torch.manual_seed takes fifty times as long if CUDA is available but not used.
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
