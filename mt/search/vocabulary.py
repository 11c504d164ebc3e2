"""What search reads from the logits of all tokens, in any precision, without copying them.

The highest logits are found in two steps: first the maximum of each block of tokens, then the best blocks.

On a CPU, torch finds a maximum much faster than its position: for 128 rows and 8,000 tokens `argmax` takes
2.5 milliseconds on one core, and this 0.35.
"""

import torch
from torch import Tensor

_BLOCK = 128
_FEW_ROWS = 16
"""Up to this many rows, finding the position of a maximum directly takes less time than in blocks."""
_ROWS_AT_ONCE = 32
"""Rows that are normalised at once on a CPU, so that their logits stay in its caches."""


def likeliest(logits: Tensor) -> Tensor:
    """Return the first token with the highest logit in each row: ``(R, V)`` -> ``(R,)``."""
    if len(logits) <= _FEW_ROWS:
        return logits.max(-1).indices
    block = block_maxima(logits).max(-1, keepdim=True).indices
    tokens = tokens_of(block, logits.size(-1)).clamp_(max=logits.size(-1) - 1)
    best = logits.gather(1, tokens).max(-1, keepdim=True).indices
    return tokens.gather(1, best)[:, 0]


def block_maxima(logits: Tensor) -> Tensor:
    """Return the highest logit of each block of tokens: ``(R, V)`` -> ``(R, number of blocks)``."""
    whole = logits.size(-1) // _BLOCK * _BLOCK
    maxima = logits[:, :whole].view(len(logits), -1, _BLOCK).amax(-1)
    if whole == logits.size(-1):
        return maxima
    return torch.cat((maxima, logits[:, whole:].amax(-1, keepdim=True)), dim=1)


def log_normalisers(logits: Tensor) -> Tensor:
    """Return what to subtract from logits for log-probabilities: ``(R, V)`` -> ``(R, 1)`` in float32."""
    found = []
    for rows in torch.split(logits, _ROWS_AT_ONCE if logits.device.type == "cpu" else len(logits)):
        found.append(rows.float().logsumexp(-1, keepdim=True))
    return torch.cat(found)


def tokens_of(blocks: Tensor, vocab_size: int) -> Tensor:
    """Return the tokens of blocks ``(R, n)``: ``(R, n * size)``; numbers continue past the last token."""
    size = min(_BLOCK, vocab_size)
    tokens = blocks[:, :, None] * _BLOCK + torch.arange(size, device=blocks.device)
    return tokens.flatten(1)
