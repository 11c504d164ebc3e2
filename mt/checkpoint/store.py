"""The checkpoints of a run: saved whole or not at all, verified when loaded, pointed at, pruned."""

import contextlib
import hashlib
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from mt.checkpoint.directory import BEST, LATEST, CheckpointDirectory, step_of
from mt.checkpoint.record import (
    MODEL,
    RECORD,
    TENSORS,
    VALUES,
    Checkpoint,
    DamagedError,
    average_name,
    read_part,
    read_record,
    record_text,
    step_name,
)
from mt.checkpoint.training_state import SavedTraining, read_training_state, values_bytes
from mt.display import track
from mt.errors import CheckpointError
from mt.files import make_folder, new_folder, remove_folder_atomically, remove_leftovers, write_atomically

LOG = logging.getLogger(__name__)

WEIGHTS_METADATA = {"other_names": "{}"}
"""Each weight is under one name."""


class RecoveredCheckpoint(NamedTuple):
    """A sound checkpoint to continue from, loaded onto the CPU."""

    checkpoint: Checkpoint
    weights: dict[str, Tensor]
    training_state: SavedTraining


class CheckpointStore(CheckpointDirectory):
    """The folder ``checkpoints/`` of a run, which one process may write, while it holds the run's lock."""

    def save(
        self,
        checkpoint: Checkpoint,
        model: Mapping[str, Tensor],
        training_state: SavedTraining | None = None,
        *,
        keep: int = 1,
    ) -> Checkpoint:
        """Save a checkpoint, point ``latest`` (and ``best``) at it, then remove those that are not kept."""
        folder = self.directory / step_name(checkpoint.step)
        # JSON has no NaN.
        metrics = {name: value for name, value in checkpoint.metrics.items() if math.isfinite(value)}
        checkpoint = replace(checkpoint, folder=folder, metrics=metrics)
        parts: dict[str, Callable[[], bytes]] = {MODEL: lambda: tensors_bytes(model, WEIGHTS_METADATA)}
        if training_state is not None:
            parts[TENSORS] = lambda: tensors_bytes(training_state.tensors)
            parts[VALUES] = lambda: values_bytes(training_state)
        with _explain_unwritable(f"save checkpoint {folder}"):
            checkpoint = self._write(checkpoint, parts)
            self._point_at(checkpoint)
            self._prune(checkpoint, keep)
        return checkpoint

    def save_average(self, checkpoints: Sequence[Checkpoint]) -> Checkpoint:
        """Save the mean of these checkpoints' weights beside them, named after the newest of them."""
        newest = max(checkpoints, key=lambda checkpoint: checkpoint.step)
        names = [checkpoint.name for checkpoint in checkpoints]
        folder = self.directory / average_name(newest.step)
        average = replace(newest, folder=folder, best=False, metrics={}, average_of=names)
        with _explain_unwritable(f"save checkpoint {folder}"):
            mean = mean_of(map(self.load_model, track(checkpoints, "averaging", unit="checkpoints")))
            return self._write(average, {MODEL: lambda: tensors_bytes(mean, WEIGHTS_METADATA)})

    def tidy_up(self) -> None:
        """Finish or undo what a killed process left behind."""
        with _explain_unwritable(f"tidy up {self.directory}"):
            remove_leftovers(self.directory)

    def recover(self) -> tuple[RecoveredCheckpoint | None, dict[str, str]]:
        """`tidy_up`, and load the newest sound checkpoint; also why newer ones are damaged."""
        self.tidy_up()
        newest, damaged = self.resumable()
        if newest is not None:
            with _explain_unwritable(f"tidy up {self.directory}"):
                self._point_at(newest.checkpoint)
        return newest, damaged

    def resumable(self) -> tuple[RecoveredCheckpoint | None, dict[str, str]]:
        """What `recover` will return; nothing is written."""
        damaged: dict[str, str] = {}
        for name in reversed(self.names()):
            try:
                checkpoint = read_record(self.directory / name)
                if checkpoint.imported_from:
                    raise CheckpointError(
                        f"{self.directory.parent} was imported from {checkpoint.imported_from}: train a new "
                        f"run: mt init --init-from {self.directory.parent} --data PATH."
                    )
                state = read_training_state(read_part(checkpoint, TENSORS), read_part(checkpoint, VALUES))
                weights = parse_model(read_part(checkpoint, MODEL))
                return RecoveredCheckpoint(checkpoint, weights, state), damaged
            except DamagedError as error:
                damaged[name] = str(error)
        if damaged:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in damaged.items())
            remedy = "Restore a copy of one, or start over with --restart"
            raise CheckpointError(f"No checkpoint in {self.directory} is sound ({reasons}). {remedy}.")
        return None, {}

    def require(self, name: str) -> Checkpoint:
        """The checkpoint called ``best``, ``latest``, or by its own name, and never another."""
        known = [*self.names(), *self.averages()]
        if not known:
            raise CheckpointError(f"{self.directory} has no checkpoint: train until it has saved one.")
        wanted = self.pointer(name) if name in (LATEST, BEST) else name
        # Until a validation has marked one, which a damaged or lost pointer does not disprove.
        if name == BEST and not os.path.lexists(self.directory / BEST) and self.last_best() is None:
            wanted = self.pointer(LATEST)
            LOG.warning("no validation has marked a best checkpoint yet: using the latest, %s", wanted)
        if wanted not in known:
            what = repr(wanted) if wanted else f"marked {name}: the file is missing or does not name one"
            raise CheckpointError(f"{self.directory} has no checkpoint {what}. {self._sound_ones()}")
        with self._explain_damage(self.directory / wanted):
            return read_record(self.directory / wanted)

    def load_model(self, checkpoint: Checkpoint) -> dict[str, Tensor]:
        """Its weights by name, on the CPU, verified."""
        with self._explain_damage(checkpoint.folder):
            return parse_model(read_part(checkpoint, MODEL))

    def _write(self, checkpoint: Checkpoint, parts: Mapping[str, Callable[[], bytes]]) -> Checkpoint:
        """Write its folder atomically, making one part after another; return it with checksums."""
        make_folder(self.directory)
        checksums = {}
        with new_folder(checkpoint.folder) as folder:
            for name, make in parts.items():
                data = make()
                (folder / name).write_bytes(data)
                checksums[name] = hashlib.sha256(data).hexdigest()
            written = replace(checkpoint, checksums=checksums)
            (folder / RECORD).write_bytes(record_text(written).encode())
        return written

    def _point_at(self, newest: Checkpoint) -> None:
        """Update the pointers after ``newest`` was saved as the last checkpoint of the run."""
        for pointer, name in ((BEST, self.last_best(newest.step)), (LATEST, newest.name)):
            if name is not None and name != self.pointer(pointer):
                write_atomically(self.directory / pointer, f"{name}\n")

    def _prune(self, newest: Checkpoint, keep: int) -> None:
        """Remove all but the last ``keep`` up to ``newest``, and those that the pointers name."""
        # Later ones are damaged, and training has not reached them again.
        done = [name for name in self.names() if step_of(name) <= newest.step]
        for name in done[:-keep]:
            if name not in (self.pointer(BEST), self.pointer(LATEST)):
                try:
                    remove_folder_atomically(self.directory / name)
                except OSError as error:
                    folder = self.directory / name
                    why = error.strerror or error
                    LOG.warning("cannot remove %s, which is no longer kept: %s", folder, why)

    def _sound_ones(self) -> str:
        sound = []
        for name in (*self.names(), *self.averages()):
            with contextlib.suppress(CheckpointError):
                checkpoint = read_record(self.directory / name)
                for part in checkpoint.parts:
                    read_part(checkpoint, part)
                sound.append(name)
        return f"Sound checkpoints: {', '.join(sound)}." if sound else "There is no sound one to use instead."

    @contextlib.contextmanager
    def _explain_damage(self, folder: Path) -> Iterator[None]:
        try:
            yield
        except DamagedError as error:
            raise CheckpointError(f"Checkpoint {folder} is damaged: {error}. {self._sound_ones()}") from error


@contextlib.contextmanager
def _explain_unwritable(doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"Cannot {doing}: {error.strerror or error}. Free some space or make the folder writable, "
            "and run the same command again; the earlier checkpoints are unchanged."
        ) from error


def tensors_bytes(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """Tensors in the safetensors format."""
    ours = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(ours, metadata)


def parse_model(content: bytes) -> dict[str, Tensor]:
    """The weights in the verified output of `tensors_bytes`, on the CPU, all of them finite."""
    try:
        # Into memory allocated by torch, which is aligned as its kernels need.
        tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(content).items()}
    except (SafetensorError, ValueError) as error:
        raise DamagedError(f"{MODEL} is not a model written by mt") from error
    for name, tensor in tensors.items():
        # aminmax propagates NaN, and unlike isfinite().all() needs no second tensor of that size.
        has_values = tensor.is_floating_point() and tensor.numel()
        if has_values and not all(bound.isfinite() for bound in torch.aminmax(tensor)):
            raise DamagedError(f"the weight {name} in {MODEL} contains NaN or infinite values")
    return tensors


def mean_of(models: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each weight (Vaswani et al. 2017, section 6.1), in the weight's own dtype."""
    sums: dict[str, Tensor] = {}
    number = 0
    for weights in models:
        number += 1
        for name, weight in weights.items():
            sums[name] = sums.get(name, 0) + weight.double()
    return {name: (total / number).to(weights[name].dtype) for name, total in sums.items()}
