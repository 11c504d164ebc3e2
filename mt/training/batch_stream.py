"""The training batches, one step's after another's, from any position on."""

import numpy as np

from mt.data.alignment import Places
from mt.data.batch import Batch, collate
from mt.data.bpe_dropout import BpeDropout
from mt.data.dataset import EncodedPairs
from mt.data.sampler import Batches, Indices, Share, epoch_batches
from mt.training.unknown_words import hide_words_of_some

_SAMPLE_SIZE = 1000


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
    ) -> None:
        """With ``places``, laid out as ``pairs.tgt.ids``, batches have an alignment, and words are hidden.

        With ``bpe_dropouts``, of source and target, sentences are cut otherwise in each epoch, and batches
        become larger than ``batch_tokens``, which counts the sentences as they were encoded.
        """
        self.num_micro_batches = num_micro_batches
        self._pairs = pairs
        self._batch_tokens = batch_tokens
        self._seed = seed
        self._places = places
        self._unknown_share = unknown_share
        self._bpe_dropouts = bpe_dropouts
        self._epoch = -1
        self._plan: Batches | None = None

    def take(self, epoch: int, batch: int) -> tuple[list[Batch], int, int]:
        """The micro-batches of the step at this position, and the position of the step after it.

        The last step of an epoch may have fewer micro-batches than the others.
        """
        plan = self._plan_of(epoch)
        end = min(batch + self.num_micro_batches, len(plan))
        micro_batches = [
            self.batch_of(plan[number], np.random.default_rng([self._seed, epoch, number]))
            for number in range(batch, end)
        ]
        return micro_batches, *((epoch + 1, 0) if end == len(plan) else (epoch, end))

    def num_steps(self, epoch: int) -> int:
        """Steps in this epoch; others have about as many."""
        return -(-len(self._plan_of(epoch)) // self.num_micro_batches)

    @property
    def num_target_tokens(self) -> int:
        """Real target tokens of one epoch; where sources have weights or words are cut, about so many."""
        total, start = 0.0, 0
        for share in self._pairs.shares or [Share(len(self._pairs), 1.0)]:
            end = start + share.num_pairs
            total += share.weight * int(self._pairs.tgt.lengths[start:end].sum(dtype=np.int64))
            start = end
        return round(total * self._lengthening())

    def batch_of(self, indices: Indices, generator: np.random.Generator) -> Batch:
        """The batch of these pairs, as the generator draws what is hidden or cut otherwise in it."""
        src, tgt = self._pairs.select(indices)
        if self._bpe_dropouts is not None:
            src, tgt = (
                cut(side, generator) for cut, side in zip(self._bpe_dropouts, (src, tgt), strict=True)
            )
        if self._places is None:
            return collate(src, tgt)
        offsets = self._pairs.tgt.offsets
        places = [self._places[offsets[i] : offsets[i + 1]] for i in indices]
        src, tgt = hide_words_of_some(src, tgt, places, self._unknown_share, generator)
        return collate(src, tgt, places)

    def _lengthening(self) -> float:
        """By which factor BPE-dropout makes targets longer, on a sample."""
        if self._bpe_dropouts is None:
            return 1.0
        places = np.linspace(0, len(self._pairs) - 1, min(len(self._pairs), _SAMPLE_SIZE), dtype=np.int64)
        whole = [self._pairs.tgt[i] for i in places]
        cut = self._bpe_dropouts[1](whole, np.random.default_rng(self._seed))
        with_ends = [sum(len(ids) + 1 for ids in sentences) for sentences in (cut, whole)]
        return with_ends[0] / with_ends[1]

    def _plan_of(self, epoch: int) -> Batches:
        if self._plan is None or epoch != self._epoch:
            self._plan = None  # The old one need not be in memory while the new one is made.
            self._plan = epoch_batches(
                self._pairs.src.lengths,
                self._pairs.tgt.lengths,
                batch_tokens=self._batch_tokens,
                seed=self._seed,
                epoch=epoch,
                shares=self._pairs.shares,
            )
            self._epoch = epoch
        return self._plan
