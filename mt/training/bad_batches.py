"""Batches whose loss or gradient was not finite, saved as plain JSON so that `mt check` can examine them."""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from mt.data.batches.batch import Batch
from mt.errors import DataError
from mt.files import make_folder, read_bytes, write_atomically
from mt.run_directory import RunDirectory
from mt.training.step import StepResult

LOG = logging.getLogger(__name__)
# A few are enough to find a fault; a run that fails again and again must not fill the disk.
MOST_KEPT = 100
MAX_BYTES = 50_000_000


@dataclass(frozen=True)
class Pairs:
    """The ids of a micro-batch, without BOS and EOS."""

    src_ids: list[list[int]]
    tgt_ids: list[list[int]]


@dataclass(frozen=True)
class BadBatch:
    """The batch of a skipped step, and the newest checkpoint at that step."""

    step: int
    after_checkpoint: str | None
    loss: str
    """As text, because JSON has no NaN; likewise the norm."""
    gradient_norm: str
    micro_batches: list[Pairs]

    def check_vocabulary(self, file: Path, num_src: int, num_tgt: int, max_length: int) -> None:
        """Check that a model with vocabularies of these sizes can read the batch in ``file``."""
        pairs = self.micro_batches
        sides = [(ids, num_src) for micro_batch in pairs for ids in micro_batch.src_ids]
        sides += [(ids, num_tgt) for micro_batch in pairs for ids in micro_batch.tgt_ids]
        are_pairs = pairs and all(0 < len(batch.src_ids) == len(batch.tgt_ids) for batch in pairs)
        if not are_pairs or not all(
            len(ids) < max_length and all(0 <= i < size for i in ids) for ids, size in sides
        ):
            raise DataError(
                f"{file} does not belong to this run. Name the run that it comes from with --run PATH."
            )


def keep_bad_batch(
    run: RunDirectory,
    step: int,
    after_checkpoint: str | None,
    micro_batches: Sequence[Batch],
    result: StepResult,
) -> None:
    """Write the batch of a step into the run directory, and log the path."""
    file = run.bad_batch_file(step)
    make_folder(file.parent)
    if not file.exists() and sum(1 for _ in file.parent.iterdir()) >= MOST_KEPT:
        LOG.warning("%s is full: the batch of step %d is not saved", file.parent, step)
        return
    pairs = [Pairs(*batch.sentences()) for batch in micro_batches]
    bad = BadBatch(step, after_checkpoint, str(result.loss), str(result.gradient_norm), pairs)
    write_atomically(file, json.dumps(asdict(bad)) + "\n")
    LOG.warning("the batch of step %d is saved in %s and can be examined", step, file)


def read_bad_batch(file: Path) -> BadBatch:
    """Read a file written by `keep_bad_batch`."""
    try:
        return TypeAdapter(BadBatch).validate_json(read_bytes(file, max_bytes=MAX_BYTES), strict=True)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        raise DataError(
            f"{file} is not a batch saved by training. These are in the bad_batches folder of a run."
        ) from error
