"""From the one seed of a run another for each purpose, so that no two of them draw the same.

Nothing in this project draws from Python's or numpy's global generators: theirs are not seeded. No random
state is saved either: what is drawn while a run learns is seeded from where the run is.
"""

from hashlib import blake2b

import torch


def seed_everything(seed: int) -> None:
    """Seed torch's generators on every device, also those of devices that are first used later.

    Args:
        seed: From 0 to ``2**64 - 1``.
    """
    torch.manual_seed(seed)


def derived_seed(purpose: str, *numbers: int) -> int:
    """A seed from 0 to ``2**64 - 1`` that is a function of purpose and numbers, and of each of them.

    Numpy, given a list as a seed, takes ``[1, 2]`` and ``[1, 2, 0]`` for the same.
    """
    text = " ".join([purpose, *map(str, numbers)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def seed_device(seed: int, device: torch.device) -> None:
    """Seed the generators of this process that computing on ``device`` draws from, within microseconds.

    `seed_everything` takes fifty times as long where CUDA could be used, but is not.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
