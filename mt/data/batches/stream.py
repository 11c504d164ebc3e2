"""The training batches of a run, step by step, from any position."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from mt import distributed, processes
from mt.config.config import Config
from mt.data.batches.alignment import Places
from mt.data.batches.batch import Batch, collate
from mt.data.batches.bpe_dropout import BpeDropout
from mt.data.batches.pairs import EncodedPairs, Ids
from mt.data.batches.sampler import Batches, Indices, epoch_batches
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.errors import TrainingError
from mt.seeding import derived_seed
from mt.special_tokens import UNK_ID

# The third seed of the generator of BPE-dropout; the generator that shuffles an epoch has only two.
_BPE_DROPOUT = 2**63


def replace_with_unk(
    src: Ids, tgt: Ids, places: Places, count: int, generator: np.random.Generator
) -> tuple[Ids, Ids]:
    """Replace up to ``count`` words of a pair, and their translations, with UNK.

    The model has to learn to write UNK where it reads UNK; rare words alone are too few to teach it.

    Only words aligned one to one are replaced; each draw is the rarer of two words, because names are rare.

    Args:
        src: Source ids; more frequent words have smaller ids.
        tgt: Target ids.
        places: For each target token the position of its source token, or a negative number.
        count: The number of draws.
        generator: The source of randomness.
    """
    aligned = np.flatnonzero(places >= 0)
    links = aligned[np.bincount(places[aligned])[places[aligned]] == 1] if len(aligned) else aligned
    if not len(links):
        return src, tgt
    drawn = links[generator.integers(len(links), size=(count, 2))]
    rarer = drawn[np.arange(count), src[places[drawn]].argmax(1)]
    src, tgt = src.copy(), tgt.copy()
    src[places[rarer]] = UNK_ID
    tgt[rarer] = UNK_ID
    return src, tgt


def replace_some_with_unk(
    src: Sequence[Ids],
    tgt: Sequence[Ids],
    places: Sequence[Places],
    share: float,
    generator: np.random.Generator,
) -> tuple[list[Ids], list[Ids]]:
    """`replace_with_unk` in a ``share`` of pairs; in a ``share`` of these, two words, and so on."""
    counts = (generator.geometric(1 - share, size=len(src)) - 1).tolist()
    pairs = [
        replace_with_unk(src_ids, tgt_ids, row, count, generator) if count else (src_ids, tgt_ids)
        for src_ids, tgt_ids, row, count in zip(src, tgt, places, counts, strict=True)
    ]
    return [src_ids for src_ids, _ in pairs], [tgt_ids for _, tgt_ids in pairs]


Position = tuple[int, int]
"""An epoch, and the batches of it that were used before."""


class StepBatches(NamedTuple):
    """What one step is trained on."""

    micro_batches: list[Batch]
    """Those of this process."""
    num_target_tokens: int
    """Real target tokens of the whole step, on all processes."""
    next_position: Position = (0, 0)
    """The position of the step after it."""

    @classmethod
    def of(cls, *micro_batches: Batch) -> Self:
        """A step of one process on these."""
        return cls(list(micro_batches), sum(batch.num_target_tokens for batch in micro_batches))


@dataclass(frozen=True)
class Epoch:
    """One pass over the corpus.

    Attributes:
        number: Passes completed before it.
        pairs: The pairs, segmented as in this epoch.
        batches: The indices of each batch's pairs.
    """

    number: int
    pairs: EncodedPairs
    batches: Batches


class _Ahead:
    """A thread that prepares one step ahead; its errors are raised when that step is taken."""

    def __init__(self, thread: Executor, *, pinned: bool) -> None:
        self._thread = thread
        self._pinned = pinned
        self._next: dict[Position, Future[StepBatches]] = {}
        """The step after the one that was last taken."""

    def take(self, make: Callable[[Position], StepBatches], position: Position) -> StepBatches:
        """The step at a position, perhaps prepared already; starts the next one unless its epoch is new."""
        ahead = self._next.pop(position, None)
        taken = ahead.result() if ahead is not None else self._ready(make, position)
        following = taken.next_position
        self._next = {}
        if following[0] == position[0]:
            self._next[following] = self._thread.submit(self._ready, make, following)
        return taken

    def _ready(self, make: Callable[[Position], StepBatches], position: Position) -> StepBatches:
        taken = make(position)
        if not self._pinned:
            return taken
        return taken._replace(micro_batches=[each.pin_memory() for each in taken.micro_batches])


class BatchStream:
    """Training batches as a pure function of the position (epoch, batch)."""

    def __init__(
        self,
        pairs: EncodedPairs,
        *,
        batch_tokens: int,
        num_micro_batches: int,
        seed: int,
        places: Places | None = None,
        unknown_share: float = 0.0,
        bpe_dropouts: tuple[BpeDropout, BpeDropout] | None = None,
        before_each_block: Callable[[], None] = lambda: None,
        rank: int = 0,
        num_processes: int = 1,
    ) -> None:
        """With ``places``, laid out as ``pairs.tgt.ids``, batches have an alignment, and some words are UNK.

        With ``bpe_dropouts``, of source and target, all sentences are segmented differently in each epoch;
        ``before_each_block`` is called every few thousand of them, and may raise to stop.
        """
        self.num_micro_batches = num_micro_batches
        self._pairs = pairs
        self._batch_tokens = batch_tokens
        self._seed = seed
        self._places = places
        self._unknown_share = unknown_share
        self._bpe_dropouts = bpe_dropouts
        self._before_each_block = before_each_block
        self._rank, self._num_processes = rank, num_processes
        self._epoch: Epoch | None = None
        self._ahead: _Ahead | None = None

    @contextmanager
    def collating_ahead(self, *, pinned: bool) -> Iterator[None]:
        """Within the ``with`` block, a thread collates each step while the one before it is computed.

        Steps must be taken in order. The thread stays within the epoch,
        which it only reads: the next epoch is prepared when its first step is taken.

        Args:
            pinned: Whether to put the batches into page-locked memory, for CUDA.
        """
        with ThreadPoolExecutor(1, "batches") as thread:
            self._ahead = _Ahead(thread, pinned=pinned)
            try:
                yield
            finally:
                self._ahead = None

    def take(self, position: Position) -> StepBatches:
        """This process's share of the step at this position.

        The last step of an epoch may have fewer micro-batches than the others. Several processes take turns:
        the process of this ``rank`` computes every ``num_processes``-th micro-batch of the step, or one
        without labels if none is left for it.
        """
        if position[1] == 0:
            # Preparing an epoch may take longer than a step is allowed to.
            distributed.barrier_after(lambda: self.epoch(position[0]))
        return self._take(position) if self._ahead is None else self._ahead.take(self._take, position)

    def _take(self, position: Position) -> StepBatches:
        epoch, batch = position
        shown, end = self.epoch(epoch), self._end(epoch, batch)
        pairs, batches = shown.pairs, shown.batches
        own = range(batch + self._rank, end, self._num_processes)
        micro_batches = [self._batch(batches[number], epoch, number) for number in own]
        if not micro_batches:
            micro_batches = [self._batch(batches[batch], epoch, batch).without_labels()]
        num_target_tokens = sum(int(pairs.tgt.lengths[batches[number]].sum()) for number in range(batch, end))
        next_position = (epoch + 1, 0) if end == len(batches) else (epoch, end)
        return StepBatches(micro_batches, num_target_tokens, next_position)

    def largest_batch(self, epoch: int) -> Batch:
        """The batch of an epoch that takes the most memory."""
        pairs, batches = self.epoch(epoch).pairs, self.epoch(epoch).batches
        largest = max(range(len(batches)), key=lambda number: pairs.num_positions(batches[number]))
        return self._batch(batches[largest], epoch, largest)

    def _end(self, epoch: int, batch: int) -> int:
        return min(batch + self.num_micro_batches, len(self.epoch(epoch).batches))

    def check_position(self, epoch: int, batch: int) -> None:
        """Refuse a position that `take` has never given for these pairs."""
        num_batches = len(self.epoch(epoch).batches)
        if batch >= num_batches:
            raise TrainingError(
                f"the checkpoint's training state is at batch {batch} of epoch {epoch}, which has "
                f"{num_batches} batches: it was altered. Remove the checkpoint to continue from the one "
                "before it, or start over with --restart, which moves the old run aside."
            )

    def _batch(self, indices: Indices, epoch: int, number: int) -> Batch:
        """The batch at a position; everything random in it is seeded by the position."""
        # Another name for this purpose would draw other words in every run.
        generator = np.random.default_rng(derived_seed("hidden words", self._seed, epoch, number))
        batch = self.batch_of(indices, epoch, generator)
        return replace(batch, dropout_seed=derived_seed("dropout", self._seed, epoch, number))

    def num_steps(self, epoch: int) -> int:
        """Steps in this epoch; others have about as many."""
        return -(-len(self.epoch(epoch).batches) // self.num_micro_batches)

    def num_target_tokens(self, epoch: int) -> int:
        """Real target tokens of this epoch; others have about as many."""
        shown = self.epoch(epoch)
        return int(shown.pairs.tgt.lengths[shown.batches.pairs].sum(dtype=np.int64))

    def batch_of(self, indices: Indices, epoch: int, generator: np.random.Generator) -> Batch:
        """The batch of these pairs of an epoch; the generator draws the words that become UNK."""
        pairs = self.epoch(epoch).pairs.select(indices)
        if self._places is None:
            return collate(*pairs)
        offsets = self._pairs.tgt.offsets
        places = [self._places[offsets[i] : offsets[i + 1]] for i in indices]
        src, tgt = map(list, pairs)
        src, tgt = replace_some_with_unk(src, tgt, places, self._unknown_share, generator)
        return collate(src, tgt, places)

    def epoch(self, number: int) -> Epoch:
        """The epoch after ``number`` others; cached until another is requested."""
        if self._epoch is None or number != self._epoch.number:
            self._epoch = None  # Frees the old one before the new one is computed.
            self._epoch = self._made(number)
        return self._epoch

    def _made(self, number: int) -> Epoch:
        try:
            pairs = self._with_bpe_dropout(number)
            batches = epoch_batches(
                pairs.src.lengths,
                pairs.tgt.lengths,
                batch_tokens=self._batch_tokens,
                seed=self._seed,
                epoch=number,
                shares=pairs.shares,
            )
        except MemoryError as error:
            raise TrainingError(
                f"the order of epoch {number}, and its pairs as training.bpe_dropout segments them, do "
                f"not fit into memory ({error}). Free some memory, or use a machine with more: the same "
                "command resumes the run."
            ) from error
        return Epoch(number, pairs, batches)

    def _with_bpe_dropout(self, epoch: int) -> EncodedPairs:
        if self._bpe_dropouts is None:
            return self._pairs
        src, tgt = self._bpe_dropouts
        generator = np.random.default_rng([self._seed, epoch, _BPE_DROPOUT])
        return EncodedPairs(
            src(self._pairs.src, generator, self._before_each_block),
            tgt(self._pairs.tgt, generator, self._before_each_block),
            self._pairs.shares,
        )


def training_batches(
    config: Config,
    pairs: EncodedPairs,
    tokenizers: tuple[Tokenizer, Tokenizer],
    places: Places | None,
    before_each_block: Callable[[], None] = lambda: None,
) -> BatchStream:
    """The batches of a run.

    Args:
        config: The run's config.
        pairs: The training pairs.
        tokenizers: Those of source and target.
        places: For each target token the position of its source token; None if it is not needed.
        before_each_block: Called now and then while an epoch is prepared; may raise to stop.
    """
    training = config.training
    dropouts = None
    if training.bpe_dropout:
        src, tgt = (_bpe_dropout(tokenizer, config) for tokenizer in tokenizers)
        dropouts = src, tgt
    return BatchStream(
        pairs,
        batch_tokens=training.batch_tokens,
        num_micro_batches=training.num_micro_batches,
        seed=training.seed,
        places=places,
        # Only words are ever unknown.
        unknown_share=training.unknown_share if config.copies_words else 0.0,
        bpe_dropouts=dropouts,
        before_each_block=before_each_block,
        rank=processes.rank(),
        num_processes=processes.size(),
    )


def _bpe_dropout(tokenizer: Tokenizer, config: Config) -> BpeDropout:
    return BpeDropout.of(tokenizer, share=config.training.bpe_dropout, max_length=config.data.max_length)
