"""Engines, which find translations of token ids: one interface for all of them, without torch."""

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from mt.display import counted
from mt.errors import LinesError
from mt.search.hypothesis import Hypothesis
from mt.search.strategy import NO_CONSTRAINTS, Beam, Constraints, Strategy

if TYPE_CHECKING:
    from mt.device import SearchPrecision

LOG = logging.getLogger(__name__)

Result = TypeVar("Result")
EngineName = Literal["torch", "ctranslate2"]
Check = Callable[[], None]
After = Callable[[Sequence[int]], object]


@dataclass(frozen=True)
class Sentence:
    """A sentence to translate, or whose translation is given."""

    line: int
    """The number of its line, for messages."""
    ids: Sequence[int]
    """Its tokens, without EOS."""
    prefix: Sequence[int] = ()
    """The ids that its translation begins with, overriding the other rules; all of it, if that is scored."""
    prefix_copies: Sequence[int] = ()
    """The source position that each token of the prefix copies, or -1."""
    limit: int = 0
    """The most tokens in its translation, including EOS, with room for its constraints."""
    number: int = 0
    """Together with the seed it determines what is sampled."""


@dataclass(frozen=True)
class Rules:
    """How all sentences of a search are translated."""

    strategy: Strategy = None
    constraints: Constraints = NO_CONSTRAINTS
    keep_unk: bool = False
    """Whether UNK may be written anywhere."""
    copies_words: bool = False
    """Whether an UNK of the source may be copied, as UNK."""
    with_scores: bool = True
    """Whether greedy search and sampling compute scores, which are NaN otherwise."""

    @property
    def beam(self) -> Beam:
        """The beam search; one of size 1 for greedy search and sampling."""
        return self.strategy if isinstance(self.strategy, Beam) else Beam(1)


class Engine(Protocol):
    """Searches for translations of sentences."""

    name: EngineName
    precision: "SearchPrecision"
    device: str
    """``cpu``, ``cuda`` or ``mps``."""
    batch_sentences: int
    """How many sentences that wait are best translated at once."""

    def search(
        self, sentences: Sequence[Sentence], rules: Rules, check: Check, after: After
    ) -> list[list[Hypothesis]]:
        """Find the translations of each sentence, the best first; one each unless the strategy is a beam.

        Args:
            sentences: The sentences, in any order and number.
            rules: How to translate them.
            check: Called often, in any thread; may raise to stop.
            after: Called with the indices of sentences that are done.

        Raises:
            LinesError: If a sentence does not fit into memory, or its logits are NaN or infinite.
        """

    def score(self, sentences: Sequence[Sentence]) -> list[list[float]]:
        """The log-probabilities of the tokens of each prefix, and of EOS after it."""

    def attention(
        self, source: Sequence[int], targets: Sequence[Sequence[int]]
    ) -> list[Sequence[Sequence[float]]]:
        """How much each token of each target attends to each token of the source, by the heads that align."""


def batches_by_length(
    lengths: Sequence[int], most_tokens: int, most_sentences: int = sys.maxsize
) -> list[list[int]]:
    """Indices in batches of like length, the longest first, so that memory runs out at the start if at all.

    A batch has at most ``most_tokens``, with padding, unless it is a single sentence.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    batches = []
    start = 0
    while start < len(order):
        size = max(1, min(most_sentences, most_tokens // lengths[order[start]]))
        batches.append(order[start : start + size])
        start += size
    return batches


def in_halves(
    compute: Callable[[Sequence[Sentence]], list[Result]],
    batch: Sequence[Sentence],
    is_out_of_memory: Callable[[RuntimeError], bool],
) -> list[Result]:
    """The result of each sentence, computed in halves if they do not fit into memory together."""
    try:
        return compute(batch)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    # Outside the handler, because the error keeps the tensors of all frames that it passed through alive.
    if len(batch) == 1:
        [sentence] = batch
        reason = (
            f"line {sentence.line} has a sentence of {counted(len(sentence.ids), 'token')} that does not "
            "fit into memory. Shorter sentences may fit, or compute on the CPU with --device cpu."
        )
        raise LinesError({sentence.line: reason})
    LOG.warning("out of memory: a batch of %d sentences was split in two.", len(batch))
    middle = len(batch) // 2
    return [
        result
        for half in (batch[:middle], batch[middle:])
        for result in in_halves(compute, half, is_out_of_memory)
    ]
