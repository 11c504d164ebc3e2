"""A run directory, ``runs/<name>/``: the names of its files, its lock, and which run is the newest."""

import contextlib
import errno
import fcntl
import itertools
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mt.atomic_files import make_folder, remove_leftovers, sync_folder
from mt.errors import RunError
from mt.regular_files import is_utf8, open_regular, read_bytes

TRAIN_ONE = (
    "Train one with mt init --recipe quickstart > quickstart.yaml; mt train --config quickstart.yaml "
    "(takes a few minutes)."
)
_MAX_RUNS_SHOWN = 10
_MAX_REPORT_BYTES = 10_000_000
_MAX_HOLDER_BYTES = 300


class _Entry:
    """A file or folder that training or evaluation writes into a run directory, under a name of its own."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: "RunDirectory", owner: type["RunDirectory"]) -> Path:
        return run.path / self.name


@dataclass(frozen=True)
class RunDirectory:
    """The files of one run. Creating this object does not access the disk."""

    path: Path

    config_file = _Entry("config.yaml")
    """Every option of the run, with the defaults; a folder that contains this file is a run."""
    src_tokenizer_file = _Entry("src_tokenizer.json")
    """The source tokenizer."""
    tgt_tokenizer_file = _Entry("tgt_tokenizer.json")
    """The target tokenizer."""
    corpus_file = _Entry("corpus.json")
    """What was loaded: source, revision, pairs, and what was dropped and why, as JSON."""
    log_file = _Entry("train.log")
    """The log of all processes that trained the run, one after another."""
    sessions_file = _Entry("sessions.jsonl")
    """The start, the warnings and the end of each session of training, one JSON object per line."""
    metrics_file = _Entry("metrics.jsonl")
    """The values of the curves, one JSON object per line."""
    evaluations_file = _Entry("evaluations.jsonl")
    """The scores of all evaluations, one JSON object per line."""
    samples_file = _Entry("samples.jsonl")
    """Some translations of each validation, one JSON object per validation."""
    tensorboard_dir = _Entry("tensorboard")
    """The curves for TensorBoard."""
    engine_dir = _Entry("engine")
    """The converted models of its checkpoints, by the checksum of their weights."""
    checkpoints_dir = _Entry("checkpoints")
    """The folder of the checkpoint store."""
    lock_file = _Entry("lock")
    """Locked by the process that trains here; the file remains afterwards, unlocked and empty."""
    stopped_file = _Entry("stopped")
    """Why training was stopped before its end, until it continues; torchrun hides the exit code."""
    bad_batches_dir = _Entry("bad_batches")
    """The sentence pairs of steps whose loss or gradient was not finite, one file per step."""

    @property
    def name(self) -> str:
        """The name of the folder, or of the link to it; empty for the root of the file system."""
        return _ending_in_its_name(self.path).name

    def hypotheses_file(self, setting: str) -> Path:
        """The translations of a test set, one per line; the setting names the set, checkpoint and search."""
        return self.path / f"hypotheses.{setting}.txt"

    def references_file(self, set_name: str) -> Path:
        """The references of this test set, one per line."""
        return self.path / f"references.{set_name}.txt"

    def evaluation_dir(self, setting: str) -> Path:
        """The TensorBoard files with the scores of these translations."""
        return self.tensorboard_dir / "evaluation" / setting

    def bad_batch_file(self, step: int) -> Path:
        """The sentence pairs of this step."""
        return self.bad_batches_dir / f"step_{step:07d}.json"

    def is_own_file(self, file: Path) -> bool:
        """Whether ``file`` is one that training or evaluation writes, such as the config or a checkpoint."""
        place, folder = file.resolve(), self.path.resolve()
        if not place.is_relative_to(folder):
            return False
        entry = Path(*place.relative_to(folder).parts[:1])
        names = [each.name for each in vars(RunDirectory).values() if isinstance(each, _Entry)]
        patterns = (self.hypotheses_file("*").name, self.references_file("*").name)
        return any(map(entry.match, (*names, *patterns)))

    @property
    def exists(self) -> bool:
        """Whether there is a run here."""
        return self.config_file.is_file()

    def require(self) -> Self:
        """Return this run."""
        if self.exists:
            return self
        path = self.path.absolute()
        if path.parent.name == "checkpoints" and RunDirectory(path.parent.parent).exists:
            raise RunError(
                f"{self.path} is a checkpoint of the run {self.path.parent.parent}: give the run as --run, "
                f"and the checkpoint as --checkpoint {self.path.name}."
            )
        if inside := _runs_in(self.path):
            raise RunError(f"{self.path} is not a run, but a folder of runs: {_names(inside)}.")
        message = f"There is no run in {self.path}: it has no {self.config_file.name}."
        if beside := _runs_in(self.path.parent):
            raise RunError(f"{message} Runs beside it: {_names(beside)}.")
        raise RunError(f"{message} {TRAIN_ONE}")

    def nearest_folder(self) -> Path:
        """The run directory itself, or the nearest of its parents that exists, if only as a broken link."""
        path = self.path.absolute()
        return next(each for each in (path, *path.parents) if os.path.lexists(each))

    def read_corpus_report(self) -> bytes:
        """The content of ``corpus_file``."""
        return read_bytes(self.corpus_file, max_bytes=_MAX_REPORT_BYTES)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from training here during a ``with`` block; create the folder if needed.

        The system releases the lock when the process ends, however it ends. Half-written files that a killed
        process left in the run directory are removed.
        """
        self.refuse_unreadable_name()
        try:
            make_folder(self.path)
            descriptor = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            self._take_lock(descriptor)
            try:
                yield
            finally:
                os.ftruncate(descriptor, 0)
                # Closing alone would leave the lock with a forked child that inherited the descriptor.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)

    def refuse_second_writer(self) -> None:
        """Check early, before the slow imports of training, that no other process trains here.

        Only `lock` is safe: another process may start in between.
        """
        if (holder := self.holder()) is not None:
            raise self._in_use(holder)

    def refuse_unusable(self) -> None:
        """Check, without creating or locking anything, for what would keep `lock` from succeeding."""
        self.refuse_second_writer()
        self.refuse_unreadable_name()
        folder = self.nearest_folder()
        if not folder.is_dir():
            what = "not a folder" if folder.exists() else "a link that leads nowhere"
            raise self._unusable(NotADirectoryError(errno.ENOTDIR, f"{folder} is {what}"))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise self._unusable(PermissionError(errno.EACCES, f"{folder} cannot be written"))
        if self.lock_file.exists():
            with open_regular(self.lock_file) as file:
                self._refuse_lock_of_others(file.fileno())

    def refuse_unreadable_name(self) -> None:
        """Check that the path is UTF-8, because TensorBoard cannot write to other paths."""
        if not is_utf8(self.path):
            raise RunError(
                f"{self.path} is not UTF-8, so TensorBoard cannot write there: choose another name."
            )

    def refuse_unwritable(self) -> None:
        """Check that files can be added to the run, for which it need not be locked."""
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise RunError(
                f"{self.path} cannot be written, but translations are saved in the run: copy the run to a "
                "folder that you can write to, and use the copy."
            )

    def refuse_if_replaced(self, folder: os.stat_result) -> None:
        """Check that this is still the run whose ``path.stat()`` was ``folder``."""
        try:
            is_there = os.path.samestat(folder, self.path.stat())
        except FileNotFoundError:
            is_there = False
        if not is_there:
            raise RunError(
                f"{self.path} was moved or removed while its translations were made, and they were not added "
                "to the run that is there now. Evaluate it where it is."
            )

    def holder(self) -> str | None:
        """The process that trains here, such as ``process 17 on localhost``; None if there is none."""
        try:
            descriptor = os.open(self.lock_file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # There is no run yet, or `lock` will say what is wrong with it.
            return None
        try:
            # If it contains no name, nobody holds it. Locking it briefly, to find out, could make a process
            # fail that starts to train at that moment.
            if os.fstat(descriptor).st_size:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read_holder(descriptor)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return None

    def _take_lock(self, descriptor: int) -> None:
        """Lock the open lock file, and write process and host into it."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have moved the run aside, with this file, since the file was opened.
            if not os.path.samestat(os.fstat(descriptor), self.lock_file.stat()):
                raise FileNotFoundError(errno.ENOENT, "it was moved a moment ago")
            self._refuse_lock_of_others(descriptor)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
            # Evaluation writes here without the lock.
            remove_leftovers(self.path, keep_files_of_living=True)
        except BlockingIOError:
            raise self._in_use(_read_holder(descriptor)) from None
        except OSError as error:
            raise self._unusable(error) from error

    def _refuse_lock_of_others(self, descriptor: int) -> None:
        # A lock without a holder is empty, or has zeros that a power cut left.
        if not re.fullmatch(rb"\d+ .+\n|\0*", os.pread(descriptor, _MAX_HOLDER_BYTES, 0)):
            raise RunError(
                f"{self.lock_file} was not written by training, but would be replaced. Rename that file, "
                "or use another run directory with --run PATH."
            )

    def _in_use(self, holder: str) -> RunError:
        return RunError(
            f"{self.path} is in use by {holder}, which is training there. Wait for it or stop it. "
            "Or use another run directory with --run PATH."
        )

    def _unusable(self, error: OSError) -> RunError:
        return RunError(
            f"Cannot use {self.path} as a run directory: {error.strerror}. "
            "It must be a folder on a disk that can be written and locked. Use another one with --run PATH."
        )

    def set_aside(self) -> Path:
        """Move this run to ``<name>.old-1``, or the next free number; return the new path.

        It takes the lock itself, so call it before ``lock``.
        """
        self.require()
        path = _ending_in_its_name(self.path)
        free = (path.with_name(f"{path.name}.old-{n}") for n in itertools.count(1))
        aside = next(candidate for candidate in free if not os.path.lexists(candidate))
        with self.lock():
            try:
                path.rename(aside)
                sync_folder(aside.parent)
            except OSError as error:
                raise RunError(
                    f"Cannot move {self.path} aside to {aside}: {error.strerror}. "
                    "Make its parent folder writable, or use another run directory with --run PATH."
                ) from error
        return aside

    def _newest_checkpoint_time(self) -> int | None:
        """When its newest checkpoint was written, in nanoseconds; None if it has none."""
        times = []
        for record in self.checkpoints_dir.glob("step_*/checkpoint.json"):
            with contextlib.suppress(FileNotFoundError):  # Training may just have pruned it.
                times.append(record.stat().st_mtime_ns)
        return max(times, default=None)


def as_run(run: str | Path | RunDirectory) -> RunDirectory:
    """A run directory, given as such or by its path; "." and ".." become full paths, which have a name."""
    return RunDirectory(_ending_in_its_name(run.path if isinstance(run, RunDirectory) else Path(run)))


def _ending_in_its_name(path: Path) -> Path:
    """The path of a folder; in full if it ends in "." or "..", which are not its name."""
    return path.resolve() if path.name in ("", "..") else path


def newest_run(runs: Path) -> RunDirectory:
    """The run in the folder ``runs`` whose newest checkpoint is the newest of all."""
    times = ((run._newest_checkpoint_time(), run) for run in _runs_in(runs))
    saved = [(time, run) for time, run in times if time is not None]
    if not saved:
        raise RunError(f"No run in {runs} has a checkpoint yet. {TRAIN_ONE}")
    return max(saved, key=lambda pair: pair[0])[1]


def _runs_in(folder: Path) -> list[RunDirectory]:
    """Every run in ``folder``, by name, except those that are being created under a hidden name."""
    if not folder.is_dir():
        return []
    found = []
    for path in sorted(path for path in folder.iterdir() if not path.name.startswith(".")):
        with contextlib.suppress(PermissionError):  # Somebody else's.
            if (run := RunDirectory(path)).exists:
                found.append(run)
    return found


def _names(runs: list[RunDirectory]) -> str:
    """The names of the first few runs."""
    more = ", ..." if len(runs) > _MAX_RUNS_SHOWN else ""
    return ", ".join(run.path.name for run in runs[:_MAX_RUNS_SHOWN]) + more


def _read_holder(lock_file: int) -> str:
    """The process that holds the lock, from the content of the lock file, which is not trusted."""
    text = os.pread(lock_file, _MAX_HOLDER_BYTES, 0).decode(errors="replace")
    match = re.fullmatch(r"(\d+) (\S+)\n", text)
    return f"process {match[1]} on {match[2]}" if match else "another process"
