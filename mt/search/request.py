"""What every decoding strategy takes: a model, any encoder-decoder, and a batch with its rules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from torch import Tensor

from mt.masks import padding_mask
from mt.search.strategy import NO_CONSTRAINTS, Constraints


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


class EncoderDecoder(Protocol[CacheT]):
    """A model that encodes a source once and then decodes one token at a time."""

    def encode(self, src_ids: Tensor, src_mask: Tensor) -> Tensor:
        """Encode the source ``(B, S)`` with mask ``(B, 1, 1, S)`` as memory ``(B, S, D)``."""

    def start_cache(self, memory: Tensor, src_mask: Tensor) -> CacheT:
        """Return a cache without tokens over this memory."""

    def decode_step(
        self, ids: Tensor, cache: CacheT, *, with_alignment: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Decode the newest token of each row ``(R,)``; the cache grows by it.

        Returns:
            The logits ``(R, V)`` of the next token; and, if requested, how well each source position matches
            that token, ``(R, S)``.
        """


class TeacherForced(Protocol):
    """A model that reads a source and a whole translation at once, as in training."""

    def forward(self, src_ids: Tensor, src_mask: Tensor, tgt_ids: Tensor, tgt_mask: Tensor) -> Tensor:
        """Sources ``(B, S)`` and translations ``(B, T)`` that begin with BOS -> logits ``(B, T, V)``."""


@dataclass(frozen=True)
class SearchRequest:
    """A batch of B source sentences, with length limits and constraints for their translations.

    A user gives `Constraints`, which hold for all sentences; `mt.inference.engines.Rules` adds what follows
    from the model and the command; this is what both mean for one batch, in ids.
    """

    src_ids: Tensor
    """``(B, S)``, padded with PAD."""
    limits: Sequence[int]
    """For each sentence, the most tokens in its translation, including EOS, with room for its constraints."""
    keep_unk: bool = False
    """Whether UNK may be written anywhere."""
    forbidden: Sequence[int] = ()
    """Ids that are never written, besides PAD and BOS: those that stand for no text."""
    copyable: Tensor | None = None
    """``(B, S)``, True where an unknown source word may be copied, as UNK (`mt.search.rules`); None copies
    nothing."""
    prefix_copies: Sequence[Sequence[int]] = ()
    """For each sentence, the source position that each token of its prefix copies, or -1; () for none. An UNK
    with -1 refers to the position that the alignment head attends to, as any other UNK."""
    constraints: Constraints = NO_CONSTRAINTS
    """Further constraints on every translation."""
    with_scores: bool = True
    """Whether greedy search and sampling compute scores, which are NaN otherwise."""
    before_each_step: Callable[[], None] = lambda: None
    """Called before each step, in the thread that searches; may raise to abandon the batch."""

    @property
    def src_mask(self) -> Tensor:
        """``(B, 1, 1, S)``, True where a source token is real."""
        return padding_mask(self.src_ids)
