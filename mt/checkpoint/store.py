"""The checkpoints of a run: saved whole or not at all, verified when loaded, pointed at, pruned."""

import contextlib
import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from torch import Tensor

from mt.checkpoint.directory import (
    BEST,
    LATEST,
    average_names,
    has_no_best_yet,
    point_at,
    prune,
    read_pointer,
    remove_skipped,
    step_names,
)
from mt.checkpoint.record import (
    MODEL,
    RECORD,
    TENSORS,
    VALUES,
    Checkpoint,
    DamagedError,
    VanishedError,
    average_name,
    read_part,
    read_record,
    read_record_of,
    record_text,
    step_name,
    verify_part,
)
from mt.checkpoint.training_state import SavedTraining, read_training_state, tensors_bytes, values_bytes
from mt.checkpoint.weights import (
    HeldCheckpoint,
    load_model,
    mean_of,
    model_bytes,
    open_checkpoint,
    parse_model,
)
from mt.config.located_yaml import Scalar
from mt.display import track
from mt.errors import CheckpointError, Remedy
from mt.files import make_folder, new_folder, remove_leftovers

LOG = logging.getLogger(__name__)
T = TypeVar("T")

# A run that keeps one checkpoint removes the previous one at each save, and no two saves are this close.
_NUM_LOOKS, _SECONDS_BETWEEN_LOOKS = 20, 0.01


@dataclass(frozen=True)
class RecoveredCheckpoint:
    """A sound checkpoint to continue from, whose parts were all read and verified once."""

    checkpoint: Checkpoint
    contents: Mapping[str, bytes]
    """The content of each part, by file name."""


class CheckpointStore:
    """The folder ``checkpoints/`` of a run.

    Any number of processes may read it while one writes; the writer holds the run's lock and calls `tidy_up`
    or `recover` before anything else. Creating this object does not access the disk.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(
        self,
        step: int,
        model: Mapping[str, Tensor],
        training_state: SavedTraining,
        *,
        metrics: Mapping[str, float],
        environment: Mapping[str, str | int],
        tokenizers: Mapping[str, str],
        best: bool,
        keep: int,
        computation: Mapping[str, Scalar] = MappingProxyType({}),
    ) -> Checkpoint:
        """Save one checkpoint, point ``latest`` (and ``best``) at it, then remove those that are not kept.

        Returns when it is on disk. A checkpoint of the same step is replaced. Needs additional memory for the
        largest of its parts.

        Args:
            step: Optimizer steps taken.
            model: The weights by name; the same tensor may have several names.
            training_state: Everything else that resuming needs.
            metrics: Validation scores of these weights. JSON has no NaN, so these are left out.
            environment: How it was made, as JSON values: versions, device, threads.
            tokenizers: Checksums of the tokenizers that the weights belong to.
            best: Whether this is the best of the run so far.
            keep: How many of the newest are kept; the best is kept as well.
            computation: The options that determine what the weights compute, and their values.
        """
        folder = self.directory / step_name(step)
        with _explain_refusal(f"save checkpoint {folder}"):
            remove_skipped(self.directory, step)
            checkpoint = self._write(
                Checkpoint(
                    folder,
                    step,
                    best,
                    {name: value for name, value in metrics.items() if math.isfinite(value)},
                    dict(environment),
                    {},
                    dict(tokenizers),
                    computation=dict(computation),
                ),
                {
                    MODEL: lambda: model_bytes(model),
                    TENSORS: lambda: tensors_bytes(training_state),
                    VALUES: lambda: values_bytes(training_state),
                },
            )
            point_at(self.directory, checkpoint)
            prune(self.directory, checkpoint, keep)
        return checkpoint

    def save_average(self, checkpoints: Sequence[Checkpoint]) -> Checkpoint:
        """Save the mean of these checkpoints' weights beside them, to translate with.

        It is named after the newest of them, and replaces an older average of that name. The pointers are not
        changed, and rotation does not remove it.
        """
        newest = max(checkpoints, key=lambda checkpoint: checkpoint.step)
        names = [checkpoint.name for checkpoint in checkpoints]
        folder = self.directory / average_name(newest.step)
        average = replace(newest, folder=folder, best=False, metrics={}, average_of=names)
        with _explain_refusal(f"save checkpoint {folder}"):
            mean = mean_of(map(self.load_model, track(checkpoints, "averaging", unit="checkpoints")))
            return self._write(average, {MODEL: lambda: model_bytes(mean)})

    def tidy_up(self) -> None:
        """Finish or undo what a killed process left behind."""
        if not self.directory.is_dir():
            return
        with _explain_refusal(f"tidy up {self.directory}"):
            remove_leftovers(self.directory)

    def recover(self) -> tuple[RecoveredCheckpoint | None, dict[str, str]]:
        """`tidy_up`, and find the checkpoint to continue from.

        Returns:
            The newest sound checkpoint, to which ``latest`` now points, with its verified parts for `load`;
            and the damaged ones that are newer, each with the reason. ``(None, {})`` if nothing was ever
            saved.
        """
        self.tidy_up()
        newest, damaged = self.resumable()
        if newest is not None:
            with _explain_refusal(f"tidy up {self.directory}"):
                point_at(self.directory, newest.checkpoint)
        return newest, damaged

    def resumable(self) -> tuple[RecoveredCheckpoint | None, dict[str, str]]:
        """What `recover` will find; nothing is written."""
        newest, damaged = self._newest_sound()
        if newest is None and damaged:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in damaged.items())
            raise CheckpointError(
                f"No checkpoint in {self.directory} is sound ({reasons}). "
                "Restore a copy of one, if there is any.",
                Remedy.START_OVER,
            )
        return newest, damaged

    def names(self) -> list[str]:
        """The checkpoints that training saved, sound or not, from the oldest step to the newest."""
        return step_names(self.directory)

    def averages(self) -> list[str]:
        """The averages, likewise."""
        return average_names(self.directory)

    def traces(self) -> list[str]:
        """Proof that checkpoints were saved, even if they are gone: the pointers and the averages."""
        pointers = [name for name in (LATEST, BEST) if (self.directory / name).exists()]
        return pointers + self.averages()

    def require(self, name: str) -> Checkpoint:
        """The checkpoint called ``best``, ``latest``, or by its own name, and never another.

        Until a validation has marked a ``best`` one, ``best`` means the latest, and the log says so.
        """
        return self._look_up(name, read_record_of)

    @contextlib.contextmanager
    def hold(self, name: str) -> Iterator[HeldCheckpoint]:
        """The checkpoint that `require` finds, open for the length of a ``with``, even if it is pruned."""
        with contextlib.ExitStack() as stack:
            held = self._look_up(name, lambda folder: stack.enter_context(open_checkpoint(folder)))
            with self._explain_damage(held.checkpoint.folder):
                yield held

    def _look_up(self, name: str, take: Callable[[Path], T]) -> T:
        """Call ``take`` with the checkpoint's folder; look again if training has just removed it."""
        found: str | None = None
        for look in range(_NUM_LOOKS):
            if look:
                time.sleep(_SECONDS_BETWEEN_LOOKS)
            is_unmarked = name == BEST and has_no_best_yet(self.directory)
            found = (
                read_pointer(self.directory, LATEST if is_unmarked else name)
                if name in (LATEST, BEST)
                else name
            )
            if found not in (*self.names(), *self.averages()):
                continue
            folder = self.directory / found
            with contextlib.suppress(VanishedError), self._explain_damage(folder):
                taken = take(folder)
                if is_unmarked:
                    LOG.warning(
                        "no validation has marked a best checkpoint yet: using the latest, %s", folder
                    )
                return taken
        if not (self.names() or self.averages()):
            raise CheckpointError(
                f"{self.directory} has no checkpoint: train this run until it has saved one."
            )
        if found is None:
            raise CheckpointError(
                f"{self.directory} has no checkpoint marked {name}: the file is missing or does not name "
                f"one. {self._sound_ones()}"
            )
        raise CheckpointError(f"{self.directory} has no checkpoint {found!r}. {self._sound_ones()}")

    def load_model(self, checkpoint: Checkpoint) -> dict[str, Tensor]:
        """Its weights by name, on the CPU, verified."""
        with self._explain_damage(checkpoint.folder):
            return load_model(checkpoint)

    def load_training_state(self, checkpoint: Checkpoint) -> SavedTraining:
        """The saved state besides the weights, on the CPU; each file is read once and verified."""
        with self._explain_damage(checkpoint.folder):
            return read_training_state(read_part(checkpoint, TENSORS), read_part(checkpoint, VALUES))

    def load(self, recovered: RecoveredCheckpoint) -> tuple[dict[str, Tensor], SavedTraining]:
        """Its weights and its training state, from the parts that `recover` read; no file is read again."""
        with self._explain_damage(recovered.checkpoint.folder):
            contents = recovered.contents
            return parse_model(contents[MODEL]), read_training_state(contents[TENSORS], contents[VALUES])

    def _write(
        self, checkpoint: Checkpoint, parts: Mapping[str, Callable[[], bytes | memoryview]]
    ) -> Checkpoint:
        """Write its folder atomically, making one part after another. Returns it with checksums."""
        make_folder(self.directory)
        with new_folder(checkpoint.folder) as folder:
            checksums = {name: _write_part(folder / name, make()) for name, make in parts.items()}
            written = replace(checkpoint, checksums=checksums)
            (folder / RECORD).write_bytes(record_text(written).encode())
        return written

    def _newest_sound(self) -> tuple[RecoveredCheckpoint | None, dict[str, str]]:
        damaged: dict[str, str] = {}
        for name in reversed(self.names()):
            try:
                checkpoint = read_record(self.directory / name)
                contents = {part: read_part(checkpoint, part) for part in checkpoint.parts}
                return RecoveredCheckpoint(checkpoint, contents), damaged
            except DamagedError as error:
                damaged[name] = str(error)
        return None, damaged

    def _sound_ones(self) -> str:
        sound = []
        for name in (*self.names(), *self.averages()):
            with contextlib.suppress(CheckpointError):
                checkpoint = read_record(self.directory / name)
                for part in checkpoint.training_parts:
                    verify_part(checkpoint, part)
                # Loaded, because a file may match its checksum and still not be a model.
                load_model(checkpoint)
                sound.append(checkpoint.name)
        return f"Sound checkpoints: {', '.join(sound)}." if sound else "There is no sound one to use instead."

    @contextlib.contextmanager
    def _explain_damage(self, folder: Path) -> Iterator[None]:
        try:
            yield
        except DamagedError as error:
            raise CheckpointError(f"Checkpoint {folder} is damaged: {error}. {self._sound_ones()}") from error


def _write_part(path: Path, data: bytes | memoryview) -> str:
    """Write one part; return the checksum of what was meant to be written."""
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def _explain_refusal(doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"Cannot {doing}: {error.strerror or error}. Free some space or make the folder writable, "
            "and run the same command again; the earlier checkpoints are unchanged."
        ) from error
