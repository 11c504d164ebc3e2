"""The checkpoints of a run: saved whole or not at all, verified when loaded, pointed at, pruned."""

import contextlib
import hashlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from mt.atomic_files import (
    make_folder,
    partial_path,
    remove_folder_atomically,
    remove_leftovers,
    sync_folder,
    write_synced,
    write_text_atomically,
)
from mt.checkpoint.averaging import mean_of
from mt.checkpoint.format_1 import TRAINING_STATE, read_format_1
from mt.checkpoint.parts import MODEL, model_bytes, read_model
from mt.checkpoint.record import (
    FORMAT_VERSION,
    RECORD,
    Checkpoint,
    DamagedError,
    average_name,
    read_record,
    record_text,
    step_name,
    verify_part,
)
from mt.checkpoint.training_state import (
    TENSORS,
    VALUES,
    SavedTraining,
    read_training_state,
    tensors_bytes,
    values_bytes,
)
from mt.errors import CheckpointError

_STEP_NAME = re.compile(r"step_\d{7,18}")
_AVERAGE_NAME = re.compile(r"average_\d{7,18}")
_ASIDE_NAME = re.compile(r"\.((?:step|average)_\d{7,18})\.aside")
_LATEST, _BEST = "latest", "best"


class CheckpointStore:
    """The folder ``checkpoints/`` of a run.

    Any number of processes may read it while one writes; the writer holds the run's lock and calls
    ``recover`` before anything else. Making this object touches no disk.
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
    ) -> Checkpoint:
        """Save one checkpoint, point ``latest`` (and ``best``) at it, then remove those no longer wanted.

        Returns when the disk has it. One of the same step is replaced. Needs as much memory besides as the
        largest of its parts.

        Args:
            step: Optimizer steps taken.
            model: The weights by name; the same tensor may stand under several names.
            training_state: What else resuming needs.
            metrics: Validation scores of these weights.
            environment: JSON values that say what made it: versions, device, threads.
            tokenizers: Checksums of the tokenizers that the weights belong to.
            best: Whether this is the best of the run so far.
            keep: How many of the newest stay; the best stays besides.

        Raises:
            CheckpointError: If the disk refuses; everything that was there is there still.
            TypeError: If ``training_state`` holds a value that JSON does not know.
        """
        folder = self.directory / step_name(step)
        with _explain_refusal(f"save checkpoint {folder}"):
            checkpoint = self._write(
                Checkpoint(folder, step, best, dict(metrics), dict(environment), {}, dict(tokenizers)),
                {
                    MODEL: lambda: model_bytes(model),
                    TENSORS: lambda: tensors_bytes(training_state),
                    VALUES: lambda: values_bytes(training_state),
                },
            )
            self._point_at(checkpoint)
            self._prune(checkpoint, keep)
        return checkpoint

    def save_average(self, checkpoints: Sequence[Checkpoint]) -> Checkpoint:
        """Save the mean of these checkpoints' weights beside them, to translate with.

        It is called after the newest of them, and an older one of that name is replaced. The pointers stay
        where they are, and rotation does not remove it.

        Raises:
            CheckpointError: If one is damaged, or the disk refuses.
            ValueError: If they are none, or of different models.
        """
        newest = max(checkpoints, key=lambda checkpoint: checkpoint.step)
        names = [checkpoint.name for checkpoint in checkpoints]
        folder = self.directory / average_name(newest.step)
        average = replace(
            newest,
            folder=folder,
            best=False,
            metrics={},
            average_of=names,
            format_version=FORMAT_VERSION,
        )
        with _explain_refusal(f"save checkpoint {folder}"):
            mean = mean_of(map(self.load_model, checkpoints))
            return self._write(average, {MODEL: lambda: model_bytes(mean)})

    def recover(self) -> tuple[Checkpoint | None, dict[str, str]]:
        """Finish or undo what a killed process left, and find where training goes on.

        Returns:
            The newest sound checkpoint, all its parts verified, to which ``latest`` points now; and the
            damaged ones that are newer, each with the reason. ``(None, {})`` where nothing was ever saved.

        Raises:
            CheckpointError: If there are checkpoints and none is sound, or the newest needs a newer ``mt``.
        """
        if not self.directory.is_dir():
            return None, {}
        with _explain_refusal(f"tidy up {self.directory}"):
            remove_leftovers(self.directory)
            self._put_back_what_was_set_aside()
            newest, damaged = self._newest_sound()
            if newest is not None:
                self._point_at(newest)
        if newest is None and damaged:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in damaged.items())
            raise CheckpointError(
                f"No checkpoint in {self.directory} is sound ({reasons}). "
                "Put back a copy of one, or begin anew with --restart, which moves this run aside."
            )
        return newest, damaged

    def names(self) -> list[str]:
        """The checkpoints of training that are there, sound or not, from the oldest step to the newest."""
        return self._folders(_STEP_NAME)

    def averages(self) -> list[str]:
        """The averages that are there, likewise."""
        return self._folders(_AVERAGE_NAME)

    def _folders(self, pattern: re.Pattern[str]) -> list[str]:
        try:
            paths = list(self.directory.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(
                f"Cannot read {self.directory}: {error.strerror}. Check its permissions and its disk."
            ) from error
        return sorted((path.name for path in paths if pattern.fullmatch(path.name)), key=_step_of)

    def require(self, name: str) -> Checkpoint:
        """The checkpoint called ``best``, ``latest``, or by its own name, and never another.

        Raises:
            CheckpointError: If it is missing or damaged; the message names those that are sound.
        """
        found = self._target(name) if name in (_LATEST, _BEST) else name
        if found is None:
            raise CheckpointError(
                f"{self.directory} has no checkpoint marked {name}: the file is missing or names none. "
                f"{self._sound_ones()}"
            )
        if found not in (*self.names(), *self.averages()):
            raise CheckpointError(f"{self.directory} has no checkpoint {found!r}. {self._sound_ones()}")
        folder = self.directory / found
        with self._explain_damage(folder):
            return read_record(folder)

    def load_model(self, checkpoint: Checkpoint) -> dict[str, Tensor]:
        """Its weights by name, on the CPU, verified.

        Raises:
            CheckpointError: If the file is missing or damaged; the message names the sound checkpoints.
        """
        with self._explain_damage(checkpoint.folder):
            return read_model(verify_part(checkpoint, MODEL))

    def load_training_state(self, checkpoint: Checkpoint) -> SavedTraining:
        """What was saved besides the weights, with all tensors on the CPU, each file verified.

        Raises:
            CheckpointError: If a file is missing or damaged; the message names the sound checkpoints.
        """
        with self._explain_damage(checkpoint.folder):
            paths = [verify_part(checkpoint, part) for part in _state_parts(checkpoint)]
            return read_format_1(*paths) if checkpoint.format_version == 1 else read_training_state(*paths)

    def _write(
        self, checkpoint: Checkpoint, parts: Mapping[str, Callable[[], bytes | memoryview]]
    ) -> Checkpoint:
        """Let its folder appear with these parts, made one after another; the checkpoint with checksums."""
        make_folder(self.directory)
        partial = partial_path(checkpoint.folder)
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir()
            checksums = {name: _write_part(partial / name, make()) for name, make in parts.items()}
            written = replace(checkpoint, checksums=checksums)
            write_synced(partial / RECORD, record_text(written).encode())
            sync_folder(partial)
            self._put_in_place(partial, checkpoint.folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        return written

    def _newest_sound(self) -> tuple[Checkpoint | None, dict[str, str]]:
        damaged: dict[str, str] = {}
        for name in reversed(self.names()):
            try:
                return self._verified(name), damaged
            except DamagedError as error:
                damaged[name] = str(error)
        return None, damaged

    def _verified(self, name: str) -> Checkpoint:
        """The checkpoint ``name``, all parts of it compared with their checksums."""
        checkpoint = read_record(self.directory / name)
        for part in (MODEL, *_state_parts(checkpoint)):
            verify_part(checkpoint, part)
        return checkpoint

    def _put_in_place(self, partial: Path, folder: Path) -> None:
        """Rename ``partial`` to ``folder``; an older ``folder`` goes aside first, and last of all away."""
        aside = folder.with_name(f".{folder.name}.aside")
        replaces = folder.exists()
        if replaces:
            folder.rename(aside)
        try:
            partial.rename(folder)
        except BaseException:
            if replaces:
                aside.rename(folder)
            raise
        sync_folder(self.directory)
        if replaces:
            remove_folder_atomically(aside)

    def _put_back_what_was_set_aside(self) -> None:
        """Undo a replacement that was killed between its two renames, or finish one killed after them."""
        for aside in list(self.directory.iterdir()):
            match = _ASIDE_NAME.fullmatch(aside.name)
            if match is None:
                continue
            folder = self.directory / match[1]
            if folder.exists():
                remove_folder_atomically(aside)
            else:
                aside.rename(folder)
                sync_folder(self.directory)

    def _point_at(self, newest: Checkpoint) -> None:
        """Let the pointers say what is true once ``newest`` is the last checkpoint of the run."""
        best = self._last_best(newest.step)
        if best is not None and best != self._target(_BEST):
            write_text_atomically(self.directory / _BEST, f"{best}\n")
        if newest.name != self._target(_LATEST):
            write_text_atomically(self.directory / _LATEST, f"{newest.name}\n")

    def _last_best(self, up_to_step: int) -> str | None:
        """The last checkpoint that was the best when it was saved, which no later one has beaten."""
        for name in reversed(self.names()):
            with contextlib.suppress(CheckpointError):
                if _step_of(name) <= up_to_step and read_record(self.directory / name).best:
                    return name
        return None

    def _target(self, pointer: str) -> str | None:
        """The name in a pointer file; None where there is no file, or it names no place in this store."""
        try:
            with (self.directory / pointer).open("rb") as file:
                text = file.read(100).decode(errors="replace").strip()
        except OSError:
            return None
        return text if _STEP_NAME.fullmatch(text) else None

    def _prune(self, newest: Checkpoint, keep: int) -> None:
        """Remove all but the last ``keep`` up to ``newest``, the best, and what the pointers name.

        Later steps than ``newest`` are left alone: they were found damaged, and will be saved again.
        """
        done = [name for name in self.names() if _step_of(name) <= newest.step]
        wanted = {*done[-keep:], newest.name, self._target(_BEST), self._target(_LATEST)}
        for name in done:
            if name not in wanted:
                remove_folder_atomically(self.directory / name)

    def _sound_ones(self) -> str:
        sound = []
        for name in (*self.names(), *self.averages()):
            with contextlib.suppress(CheckpointError):
                sound.append(self._verified(name).name)
        return f"Sound ones there: {', '.join(sound)}." if sound else "There is no sound one to take instead."

    @contextlib.contextmanager
    def _explain_damage(self, folder: Path) -> Iterator[None]:
        try:
            yield
        except DamagedError as error:
            raise CheckpointError(f"Checkpoint {folder} is damaged: {error}. {self._sound_ones()}") from error


def _state_parts(checkpoint: Checkpoint) -> tuple[str, ...]:
    """The files of its training state; an average has none."""
    if checkpoint.average_of:
        return ()
    return (TRAINING_STATE,) if checkpoint.format_version == 1 else (TENSORS, VALUES)


def _step_of(name: str) -> int:
    return int(name.rpartition("_")[2])


def _write_part(path: Path, data: bytes | memoryview) -> str:
    """Write one part; its checksum, taken of what was meant to be written."""
    write_synced(path, data)
    return hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def _explain_refusal(doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"Cannot {doing}: {error.strerror or error}. Free some space or make the folder writable, "
            "and run the same command again; the checkpoints saved before are as they were."
        ) from error
