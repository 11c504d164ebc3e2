"""The training batches, one step's after another's, from any position on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mt.config.config import Config
from mt.data.batches.alignment import Places
from mt.data.batches.batch import Batch, collate
from mt.data.batches.bpe_dropout import BpeDropout
from mt.data.batches.dataset import EncodedPairs, Ids
from mt.data.batches.sampler import Batches, Indices, epoch_batches
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.errors import Remedy, TrainingError
from mt.seeding import derived_seed
from mt.special_tokens import UNK_ID

# The third seed of the generator of BPE-dropout; the generator that shuffles an epoch has only two.
_BPE_DROPOUT = 2**63


def hide_words(
    src: Ids, tgt: Ids, places: Places, count: int, generator: np.random.Generator
) -> tuple[Ids, Ids]:
    """A pair in which up to ``count`` words, and what they are translated by, are UNK.

    Only words that are translated one by one are taken; of two that are drawn, the rarer, as names are rare.

    Args:
        src: Source ids, the more frequent words having the smaller ids.
        tgt: Target ids.
        places: For each target token its place in the source, or a negative number.
        count: How often to draw.
        generator: What is drawn from.
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


def hide_words_of_some(
    src: Sequence[Ids],
    tgt: Sequence[Ids],
    places: Sequence[Places],
    share: float,
    generator: np.random.Generator,
) -> tuple[list[Ids], list[Ids]]:
    """`hide_words` in a ``share`` of pairs; of those that lose a word a ``share`` loses two, and so on."""
    counts = (generator.geometric(1 - share, size=len(src)) - 1).tolist()
    pairs = [
        hide_words(src_ids, tgt_ids, row, count, generator) if count else (src_ids, tgt_ids)
        for src_ids, tgt_ids, row, count in zip(src, tgt, places, counts, strict=True)
    ]
    return [src_ids for src_ids, _ in pairs], [tgt_ids for _, tgt_ids in pairs]


@dataclass(frozen=True)
class Epoch:
    """One pass over the corpus.

    Attributes:
        number: Passes before it.
        pairs: As this one shows them.
        batches: Which of them make a batch.
    """

    number: int
    pairs: EncodedPairs
    batches: Batches


class BatchStream:
    """Batches as a function of (epoch, batch): the same from there on, whoever asks and however often."""

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
    ) -> None:
        """With ``places``, laid out as ``pairs.tgt.ids``, batches have an alignment, and words are hidden.

        With ``bpe_dropouts``, of source and target, all sentences are cut otherwise in each epoch;
        ``before_each_block`` is called every few thousand of them, and may raise to give up.
        """
        self.num_micro_batches = num_micro_batches
        self._pairs = pairs
        self._batch_tokens = batch_tokens
        self._seed = seed
        self._places = places
        self._unknown_share = unknown_share
        self._bpe_dropouts = bpe_dropouts
        self._before_each_block = before_each_block
        self._epoch: Epoch | None = None

    def take(self, epoch: int, batch: int) -> tuple[list[Batch], int, int]:
        """The micro-batches of the step at this position, and the position of the step after it.

        The last step of an epoch may have fewer micro-batches than the others.
        """
        batches = self.epoch(epoch).batches
        end = min(batch + self.num_micro_batches, len(batches))
        micro_batches = [self._batch(batches[number], epoch, number) for number in range(batch, end)]
        return micro_batches, *((epoch + 1, 0) if end == len(batches) else (epoch, end))

    def refuse_position_behind_end(self, epoch: int, batch: int) -> None:
        """Refuse a position that `take` has never given for these pairs.

        Raises:
            TrainingError: If the epoch has ended there.
        """
        num_batches = len(self.epoch(epoch).batches)
        if batch >= num_batches:
            raise TrainingError(
                f"the checkpoint's training state is at batch {batch} of epoch {epoch}, which has "
                f"{num_batches} batches: it was altered. Remove the checkpoint to go on from the one "
                "before it.",
                Remedy.START_OVER,
            )

    def _batch(self, indices: Indices, epoch: int, number: int) -> Batch:
        """With all that is random in it seeded by where it is, whoever computes it in whatever step."""
        hidden = np.random.default_rng(derived_seed("hidden words", self._seed, epoch, number))
        batch = self.batch_of(indices, epoch, hidden)
        return replace(batch, dropout_seed=derived_seed("dropout", self._seed, epoch, number))

    def num_steps(self, epoch: int) -> int:
        """Steps in this epoch; others have about as many."""
        return -(-len(self.epoch(epoch).batches) // self.num_micro_batches)

    def num_target_tokens(self, epoch: int) -> int:
        """Real target tokens of this epoch; others have about as many."""
        shown = self.epoch(epoch)
        return int(shown.pairs.tgt.lengths[shown.batches.pairs].sum(dtype=np.int64))

    def batch_of(self, indices: Indices, epoch: int, generator: np.random.Generator) -> Batch:
        """The batch of these pairs of an epoch, as the generator draws what is hidden in it."""
        src, tgt = self.epoch(epoch).pairs.select(indices)
        if self._places is None:
            return collate(src, tgt)
        offsets = self._pairs.tgt.offsets
        places = [self._places[offsets[i] : offsets[i + 1]] for i in indices]
        src, tgt = hide_words_of_some(src, tgt, places, self._unknown_share, generator)
        return collate(src, tgt, places)

    def epoch(self, number: int) -> Epoch:
        """The pass over the corpus after so many; kept until another is asked for."""
        if self._epoch is None or number != self._epoch.number:
            self._epoch = None  # The old one need not be in memory while the new one is made.
            pairs = self._cut_anew(number)
            batches = epoch_batches(
                pairs.src.lengths,
                pairs.tgt.lengths,
                batch_tokens=self._batch_tokens,
                seed=self._seed,
                epoch=number,
                shares=pairs.shares,
            )
            self._epoch = Epoch(number, pairs, batches)
        return self._epoch

    def _cut_anew(self, epoch: int) -> EncodedPairs:
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
        tokenizers: What source and target were encoded by.
        places: For each target token the source token that it translates; None where nobody asks.
        before_each_block: Called now and then while an epoch is made; may raise to give up.
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
        unknown_share=training.unknown_share,
        bpe_dropouts=dropouts,
        before_each_block=before_each_block,
    )


def _bpe_dropout(tokenizer: Tokenizer, config: Config) -> BpeDropout:
    return BpeDropout(
        tokenizer.merges(),
        tokenizer.space_id(),
        num_ids=tokenizer.size,
        share=config.training.bpe_dropout,
        max_length=config.data.max_length,
    )
