"""What search needs of a model, and no more: any encoder-decoder with these three methods will do."""

from typing import Protocol, TypeVar

from torch import Tensor


class Cache(Protocol):
    """What a model remembers between two steps, one row for each sentence."""

    def select(self, rows: Tensor) -> None:
        """Keep these rows ``(B',)``, in this order."""


CacheT = TypeVar("CacheT", bound=Cache)


class EncoderDecoder(Protocol[CacheT]):
    """A model that reads a source once and then writes a token at a time."""

    def encode(self, src_ids: Tensor, src_mask: Tensor) -> Tensor:
        """Source ``(B, S)`` with mask ``(B, 1, 1, S)`` -> memory ``(B, S, D)``."""

    def start_cache(self, memory: Tensor, src_mask: Tensor, max_length: int) -> CacheT:
        """An empty cache over this memory, for at most ``max_length`` tokens."""

    def decode_step(self, ids: Tensor, cache: CacheT) -> Tensor:
        """The newest token of each row ``(B,)`` -> logits of the next ``(B, V)``; the cache grows."""
