"""The input of every decoding strategy: a batch to translate, and its rules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from mt.masks import padding_mask
from mt.search.strategy import NO_CONSTRAINTS, Constraints


@dataclass(frozen=True)
class SearchRequest:
    """A batch of B source sentences, with length limits and constraints for their translations."""

    src_ids: Tensor
    """``(B, S)``, padded with PAD."""
    limits: Sequence[int]
    """For each sentence, the most tokens in its translation, including EOS, with room for its constraints."""
    keep_unk: bool = False
    """Whether UNK may be written anywhere."""
    copyable: Tensor | None = None
    """``(B, S)``, True where an unknown source word may be copied, as UNK (`mt.search.copying`); None copies
    nothing."""
    prefix_copies: Sequence[Sequence[int]] = ()
    """For each sentence, the source position that each token of its prefix copies, or -1; () for none. An UNK
    with -1 refers to the position that the alignment head attends to, as any other UNK."""
    constraints: Constraints = NO_CONSTRAINTS
    """Further constraints on every translation."""
    with_scores: bool = True
    """Whether greedy search and sampling compute scores, which are NaN otherwise."""
    before_each_step: Callable[[], None] = lambda: None
    """Called before each step, in the thread that searches; may raise to abandon the batch. Engines other
    than our own do not call it."""

    @property
    def src_mask(self) -> Tensor:
        """``(B, 1, 1, S)``, True where a source token is real."""
        return padding_mask(self.src_ids)
