"""What search needs of a model, and no more: any encoder-decoder with these three methods will do."""

from typing import Protocol, TypeVar

from torch import Tensor


class Cache(Protocol):
    """What a model remembers between two steps: of each source, and of each row that is written for it."""

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep these rows ``(R',)`` and sentences ``(B',)``, in this order; None keeps all sentences."""


CacheT = TypeVar("CacheT", bound=Cache)


class EncoderDecoder(Protocol[CacheT]):
    """A model that reads a source once and then writes a token at a time."""

    def encode(self, src_ids: Tensor, src_mask: Tensor) -> Tensor:
        """Source ``(B, S)`` with mask ``(B, 1, 1, S)`` -> memory ``(B, S, D)``."""

    def start_cache(
        self, memory: Tensor, src_mask: Tensor, max_length: int, rows_per_sentence: int = 1
    ) -> CacheT:
        """An empty cache over this memory, for rows of at most ``max_length`` tokens."""

    def decode_step(self, ids: Tensor, cache: CacheT, alignment: list[Tensor] | None = None) -> Tensor:
        """The newest token of each row ``(R,)`` -> logits of the next ``(R, V)``; the cache grows.

        Into ``alignment``, where given, goes how well each source position fits the next token: ``(R, S)``.
        """


class TeacherForced(Protocol):
    """A model that reads a source and a whole translation at once, which is how it is trained."""

    def forward(self, src_ids: Tensor, src_mask: Tensor, tgt_ids: Tensor, tgt_mask: Tensor) -> Tensor:
        """Sources ``(B, S)``, translations ``(B, T)`` that begin with BOS -> logits ``(B, T, V)``."""
