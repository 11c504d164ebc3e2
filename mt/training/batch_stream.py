"""The training batches, one step's after another's, from any position on."""

from mt.data.batch import Batch, collate
from mt.data.dataset import EncodedPairs
from mt.data.sampler import Indices, epoch_batches


class BatchStream:
    """Batches as a function of (epoch, batch): the same from there on, whoever asks and however often."""

    def __init__(self, pairs: EncodedPairs, *, batch_tokens: int, num_micro_batches: int, seed: int) -> None:
        self.num_micro_batches = num_micro_batches
        self._pairs = pairs
        self._src_lengths = pairs.src.lengths
        self._tgt_lengths = pairs.tgt.lengths
        self._batch_tokens = batch_tokens
        self._seed = seed
        self._epoch = -1
        self._plan: list[Indices] = []

    def take(self, epoch: int, batch: int) -> tuple[list[Batch], int, int]:
        """The micro-batches of the step at this position, and the position of the step after it.

        The last step of an epoch may have fewer micro-batches than the others.
        """
        plan = self._plan_of(epoch)
        end = min(batch + self.num_micro_batches, len(plan))
        micro_batches = [collate(*self._pairs.select(indices)) for indices in plan[batch:end]]
        return micro_batches, *((epoch + 1, 0) if end == len(plan) else (epoch, end))

    def num_steps(self, epoch: int) -> int:
        """Steps in this epoch; others have about as many."""
        return -(-len(self._plan_of(epoch)) // self.num_micro_batches)

    @property
    def num_target_tokens(self) -> int:
        """Real target tokens of one epoch."""
        return int(self._tgt_lengths.sum())

    def _plan_of(self, epoch: int) -> list[Indices]:
        if epoch != self._epoch:
            self._plan = epoch_batches(
                self._src_lengths,
                self._tgt_lengths,
                batch_tokens=self._batch_tokens,
                seed=self._seed,
                epoch=epoch,
            )
            self._epoch = epoch
        return self._plan
