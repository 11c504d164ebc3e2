"""Engines, which find translations of token ids: one interface for all of them, without torch."""

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from mt.display import counted
from mt.errors import LinesError
from mt.memory import Result, split_on_out_of_memory
from mt.search.hypothesis import Hypothesis
from mt.search.strategy import NO_CONSTRAINTS, Beam, Constraints, Strategy

if TYPE_CHECKING:
    from mt.inference.engine.ctranslate2_engine import CTranslate2Engine
    from mt.inference.torch_engine import TorchEngine

LOG = logging.getLogger(__name__)

Engine: TypeAlias = "TorchEngine | CTranslate2Engine"
Attention: TypeAlias = Sequence[Sequence[float]]
"""How much each target token attends to each source token."""
CheckStop = Callable[[], None]
"""Called often, in any thread, and may raise to stop."""
OnDone = Callable[[Sequence[int]], object]
"""Called with the indices of sentences that are done."""


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


Sentences: TypeAlias = Sequence[Sentence]
NBest: TypeAlias = list[list[Hypothesis]]
"""The translations of each sentence, the best first."""


@dataclass(frozen=True)
class Rules:
    """How all sentences of a search are translated, by any engine.

    `Translator` makes them of its options. The `Constraints` among them are the user's; what differs from
    sentence to sentence is in `Sentence`. A batch with its rules, as tensors, is a `SearchRequest`.
    """

    strategy: Strategy = None
    constraints: Constraints = NO_CONSTRAINTS
    keep_unk: bool = False
    """Whether UNK may be written anywhere."""
    forbidden: Sequence[int] = ()
    """Ids that stand for no text, and are never written."""
    copies_words: bool = False
    """Whether an UNK of the source may be copied, as UNK."""
    with_scores: bool = True
    """Whether greedy search and sampling compute scores, which are NaN otherwise."""
    with_attention: bool = False
    """Whether hypotheses have the attention of the head that aligns, if it costs nothing."""

    @property
    def beam(self) -> Beam:
        """The beam search; one of size 1 for greedy search and sampling."""
        return self.strategy if isinstance(self.strategy, Beam) else Beam(1)


def batches_by_length(
    sentences: Sentences, most_tokens: int, most_sentences: int = sys.maxsize
) -> list[list[int]]:
    """Indices in batches of like length, the longest first, so that memory runs out at the start if at all.

    A batch has at most ``most_tokens``, with padding, unless it is a single sentence.
    """
    lengths = [max(len(sentence.ids), len(sentence.prefix)) + 1 for sentence in sentences]
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    batches = []
    start = 0
    while start < len(order):
        size = max(1, min(most_sentences, most_tokens // lengths[order[start]]))
        batches.append(order[start : start + size])
        start += size
    return batches


def in_batches(
    compute: Callable[[Sentences], list[Result]],
    sentences: Sentences,
    most_tokens: int,
    on_done: OnDone = lambda indices: None,
    map_batches: Callable[..., Iterable[list[Result]]] = map,
) -> list[Result]:
    """The result of each sentence, of batches of like length, by the ``map`` of an executor if given."""
    batches = batches_by_length(sentences, most_tokens)
    parts = ([sentences[index] for index in batch] for batch in batches)
    by_index: dict[int, Result] = {}
    for batch, results in zip(batches, map_batches(compute, parts), strict=True):
        by_index |= zip(batch, results, strict=True)
        on_done(batch)
    return [by_index[index] for index in range(len(sentences))]


def in_halves(compute: Callable[[Sentences], list[Result]], batch: Sentences) -> list[Result]:
    """The result of each sentence, computed in halves if they do not fit into memory together."""
    return [*chain.from_iterable(split_on_out_of_memory(compute, batch, _halves))]


def _halves(batch: Sentences) -> list[Sentences]:
    if len(batch) == 1:
        [sentence] = batch
        reason = (
            f"line {sentence.line} has a sentence of {counted(len(sentence.ids), 'token')} that does not "
            "fit into memory. Shorter sentences may fit, or compute on the CPU with --device cpu."
        )
        raise LinesError({sentence.line: reason})
    LOG.warning("out of memory: a batch of %d sentences was split in two.", len(batch))
    middle = len(batch) // 2
    return [batch[:middle], batch[middle:]]
