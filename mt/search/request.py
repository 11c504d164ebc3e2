"""The input of every decoding strategy: a batch to translate, and constraints on the output."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from mt.masks import padding_mask


@dataclass(frozen=True)
class Constraints:
    """The constraints of one search; by default there are none.

    Raises:
        ValueError: If a number is below 0.
    """

    min_length: int = 0
    """The fewest tokens in a translation, without EOS. It may end earlier if no other token is allowed."""
    no_repeat_ngram: int = 0
    """No n-gram of this length occurs twice; 0 allows all. Two UNK never count as a repetition."""
    prefixes: Sequence[Sequence[int]] = ()
    """For each sentence, the ids its translation begins with, overriding the other rules; () for none. Lines
    have theirs as text (`mt.inference.text_search`)."""

    def __post_init__(self) -> None:
        if min(self.min_length, self.no_repeat_ngram) < 0:
            raise ValueError(
                "min_length and no_repeat_ngram must be 0 or above, "
                f"not {self.min_length} and {self.no_repeat_ngram}"
            )


NO_CONSTRAINTS = Constraints()


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
