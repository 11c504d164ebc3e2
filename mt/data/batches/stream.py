"""The training batches of a run, step by step, from any position."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Self

import numpy as np

from mt import distributed, processes
from mt.config.config import Config
from mt.data.batches.batch import Batch, collate
from mt.data.batches.bpe_dropout import BpeDropout
from mt.data.batches.kept_words import KeptWords, Pieces
from mt.data.batches.pairs import EncodedPairs, Ids, SrcPositions
from mt.data.batches.sampler import Batches, Share, epoch_batches
from mt.data.batches.transforms import Transforms
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.seeding import derived_seed
from mt.sides import Sides
from mt.special_tokens import UNK_ID

# The third seed of the generator of BPE-dropout; the generator that shuffles an epoch has only two.
_BPE_DROPOUT = 2**63

Position = tuple[int, int]
"""An epoch, and the batches of it that were used before: (0, 0), (0, 4) and so on for steps of 4 batches."""


class StepBatches(NamedTuple):
    """What one step is trained on.

    Of two processes with steps of 4 batches, the first has the batches 0 and 2 as its micro-batches, the
    second 1 and 3; ``num_target_tokens`` is that of all four, and the step after it begins at (0, 4).
    """

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


def replace_with_unk(
    src: Iterable[Ids],
    tgt: Iterable[Ids],
    src_positions: Sequence[SrcPositions],
    share: float,
    generator: np.random.Generator,
) -> tuple[list[Ids], list[Ids]]:
    """Replace a word and its translation with UNK, to teach writing it, in a ``share`` of pairs.

    In a ``share`` of these, two words are replaced, and so on. Only words aligned one to one are replaced.
    Each draw is the rarer of two words, with the larger id.
    """
    src, tgt = list(src), list(tgt)
    counts: list[int] = (generator.geometric(1 - share, size=len(src)) - 1).tolist()
    for i, count in enumerate(counts):
        positions = src_positions[i]
        aligned = np.flatnonzero(positions >= 0)
        if not count or not len(aligned):
            continue
        links = aligned[np.bincount(positions[aligned])[positions[aligned]] == 1]
        if len(links):
            drawn = links[generator.integers(len(links), size=(count, 2))]
            rarer = drawn[np.arange(count), src[i][positions[drawn]].argmax(1)]
            src[i] = src[i].copy()
            tgt[i] = tgt[i].copy()
            src[i][positions[rarer]] = UNK_ID
            tgt[i][rarer] = UNK_ID
    return src, tgt


class Epoch(NamedTuple):
    """One pass over the corpus: the pairs as they are in this epoch, and the indices of each batch."""

    number: int
    pairs: EncodedPairs
    batches: Batches


@dataclass(kw_only=True)
class BatchStream:
    """Training batches as a pure function of the position: the epoch, and the batches of it used before."""

    pairs: EncodedPairs
    """If they are aligned, so are the batches, and some words are UNK."""
    batch_tokens: int
    num_micro_batches: int
    seed: int
    unknown_share: float = 0.0
    transforms: Transforms | None = None
    kept_words: KeptWords | None = None
    bpe_dropouts: Sides[BpeDropout] | None = None
    """All sentences are segmented differently in each epoch."""
    rank: int = 0
    num_processes: int = 1
    _epoch: Epoch | None = field(default=None, init=False)
    _thread: Executor | None = field(default=None, init=False)
    _is_pinned: bool = field(default=False, init=False)
    _ahead: dict[Position, Future[StepBatches]] = field(default_factory=dict, init=False)

    @contextmanager
    def collating_ahead(self, *, pinned: bool) -> Iterator[None]:
        """Within the ``with`` block, a thread collates each step while the one before it is computed.

        Steps must be taken in order. The next epoch is prepared when its first step is taken. If ``pinned``,
        batches are put into page-locked memory, for CUDA.
        """
        with ThreadPoolExecutor(1, "batches") as self._thread:
            self._is_pinned = pinned
            try:
                yield
            finally:
                self._thread = None
                self._is_pinned = False
                self._ahead = {}

    def take(self, position: Position) -> StepBatches:
        """This process's share of the step at this position.

        Of several processes, each has every ``num_processes``-th, or one without labels if none is left.
        """
        if position[1] == 0:
            # Preparing an epoch may take longer than a step is allowed to.
            distributed.barrier_after(lambda: self.epoch(position[0]))
        ahead = self._ahead.pop(position, None)
        taken = self._take(position) if ahead is None else ahead.result()
        following = taken.next_position
        self._ahead = {}
        if self._thread is not None and following[0] == position[0]:
            self._ahead[following] = self._thread.submit(self._take, following)
        return taken

    def _take(self, position: Position) -> StepBatches:
        epoch, batch = position
        _, pairs, batches = self.epoch(epoch)
        end = min(batch + self.num_micro_batches, len(batches))
        own = range(batch + self.rank, end, self.num_processes)
        micro_batches = [self.batch_of(epoch, number) for number in own]
        if not micro_batches:
            micro_batches = [self.batch_of(epoch, batch).without_labels()]
        if self._is_pinned:
            micro_batches = [micro_batch.pin_memory() for micro_batch in micro_batches]
        num_target_tokens = int(pairs.tgt.lengths[np.concatenate(batches[batch:end])].sum())
        return StepBatches(
            micro_batches, num_target_tokens, (epoch + 1, 0) if end == len(batches) else (epoch, end)
        )

    def batch_of(self, epoch: int, number: int) -> Batch:
        """The batch at a position; everything random in it is seeded by the position."""
        _, of_epoch, batches = self.epoch(epoch)
        indices = batches[number]
        pairs = of_epoch.select(indices)
        positions = of_epoch.src_positions
        if positions is None:
            batch = collate(*pairs)
        else:
            offsets = of_epoch.tgt.offsets
            src_positions = [positions[offsets[i] : offsets[i + 1]] for i in indices]
            # Another name for this purpose would draw other words in every run.
            generator = np.random.default_rng(derived_seed("hidden words", self.seed, epoch, number))
            batch = collate(
                *replace_with_unk(*pairs, src_positions, self.unknown_share, generator), src_positions
            )
        return replace(batch, dropout_seed=derived_seed("dropout", self.seed, epoch, number))

    def epoch(self, number: int) -> Epoch:
        """The epoch after ``number`` others; cached until another is requested."""
        if self._epoch is None or number != self._epoch.number:
            self._epoch = None  # Frees the old one before the new one is computed.
            pairs = self.pairs
            if self.transforms is not None:
                pairs = self.transforms(pairs, self.seed, number)
            if self.kept_words is not None:
                generator = np.random.default_rng(derived_seed("kept words", self.seed, number))
                pairs = self.kept_words(pairs, generator)
            if self.bpe_dropouts is not None:
                generator = np.random.default_rng([self.seed, number, _BPE_DROPOUT])
                src = self.bpe_dropouts.src(pairs.src, generator)
                tgt = self.bpe_dropouts.tgt(pairs.tgt, generator)
                pairs = EncodedPairs(src, tgt, pairs.shares)
            batches = epoch_batches(
                pairs.src.lengths,
                pairs.tgt.lengths,
                batch_tokens=self.batch_tokens,
                seed=self.seed,
                epoch=number,
                shares=pairs.shares,
            )
            self._epoch = Epoch(number, pairs, batches)
        return self._epoch

    def num_steps(self, epoch: int) -> int:
        """Steps in this epoch; others have about as many."""
        return -(-len(self.epoch(epoch).batches) // self.num_micro_batches)

    def num_target_tokens(self, epoch: int) -> int:
        """Real target tokens of this epoch; others have about as many."""
        _, pairs, batches = self.epoch(epoch)
        return int(pairs.tgt.lengths[np.concatenate(batches)].sum(dtype=np.int64))

    def largest_batch(self, epoch: int) -> Batch:
        """The batch of an epoch that takes the most memory."""
        _, pairs, batches = self.epoch(epoch)
        sizes = []
        for rows in batches:
            src = pairs.src.lengths[rows]
            tgt = pairs.tgt.lengths[rows]
            sizes.append(len(rows) * (int(src.max()) + int(tgt.max())))
        return self.batch_of(epoch, int(np.argmax(sizes)))


def batches_of_stages(stream: BatchStream, stages: Sequence[Sequence[Share]]) -> list[BatchStream]:
    """The batches of each stage, in which sources have other weights; those of a run without any, as one.

    Those of the first are drawn as those of a run without stages.
    """
    streams = []
    for number, shares in enumerate(stages):
        weighted = []
        for share, changed in zip(stream.pairs.shares, shares, strict=True):
            weighted.append(share._replace(weight=changed.weight))
        seed = derived_seed("stage", stream.seed, number) if number else stream.seed
        streams.append(replace(stream, pairs=replace(stream.pairs, shares=tuple(weighted)), seed=seed))
    return streams or [stream]


def training_batches(
    config: Config, pairs: EncodedPairs, tokenizers: Sides[Tokenizer], transforms: Transforms | None = None
) -> BatchStream:
    """The batches of a run."""
    training = config.training
    dropouts = kept = None
    if training.keep_share:
        kept = KeptWords(training.keep_share, Sides(Pieces.of(tokenizers.src), Pieces.of(tokenizers.tgt)))
    if training.bpe_dropout:
        dropout = partial(BpeDropout, share=training.bpe_dropout, max_length=config.data.max_length)
        dropouts = Sides(dropout(tokenizers.src), dropout(tokenizers.tgt))
    return BatchStream(
        pairs=pairs,
        batch_tokens=training.batch_tokens,
        num_micro_batches=training.num_micro_batches,
        seed=training.seed,
        # Only words are ever unknown.
        unknown_share=training.unknown_share if config.copies_words and kept is None else 0.0,
        kept_words=kept,
        transforms=transforms,
        bpe_dropouts=dropouts,
        rank=processes.RANK,
        num_processes=processes.SIZE,
    )
