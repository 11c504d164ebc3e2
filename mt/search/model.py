"""The Protocols that a model must implement for search: any encoder-decoder can."""

from typing import Protocol, TypeVar

from torch import Tensor


class Cache(Protocol):
    """The state of a model between two decoding steps, for each source and each row decoded from it.

    At first, one row is decoded for each sentence.
    """

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep these rows ``(R',)`` and sentences ``(B',)``, in this order; None keeps all sentences.

        No sentence is repeated, but rows may be, within their sentence. All sentences have the same number of
        rows, ``R' / B'``, which may be greater than before.
        """


CacheT = TypeVar("CacheT", bound=Cache)


class StepOutput(Protocol):
    """The output of one decoding step."""

    @property
    def logits(self) -> Tensor:
        """``(R, V)``, the logits of the next token of each row."""

    @property
    def alignment_scores(self) -> Tensor | None:
        """``(R, S)``, how well each source position matches the next token; None unless requested."""


class EncoderDecoder(Protocol[CacheT]):
    """A model that encodes a source once and then decodes one token at a time."""

    def encode(self, src_ids: Tensor, src_mask: Tensor) -> Tensor:
        """Encode the source ``(B, S)`` with mask ``(B, 1, 1, S)`` as memory ``(B, S, D)``."""

    def start_cache(self, memory: Tensor, src_mask: Tensor) -> CacheT:
        """Return a cache without tokens over this memory."""

    def decode_step(self, ids: Tensor, cache: CacheT, *, with_alignment: bool = False) -> StepOutput:
        """Decode the newest token of each row ``(R,)``; the cache grows by it."""


class TeacherForced(Protocol):
    """A model that reads a source and a whole translation at once, as in training."""

    def forward(self, src_ids: Tensor, src_mask: Tensor, tgt_ids: Tensor, tgt_mask: Tensor) -> Tensor:
        """Sources ``(B, S)`` and translations ``(B, T)`` that begin with BOS -> logits ``(B, T, V)``."""
