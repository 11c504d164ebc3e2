"""A run directory, ``runs/<name>/``: the names of its files, its lock, and which run is the newest."""

import contextlib
import itertools
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from shlex import quote
from typing import Self

from mt import hub, system
from mt.display import shown
from mt.errors import RunError
from mt.files import make_folder, read_bytes, remove_leftovers, sync

TRAIN_ONE = "Train one with mt init --recipe quickstart > quickstart.yaml; mt train --config quickstart.yaml."


@dataclass(frozen=True)
class _Entry:
    """A file or folder in a run directory."""

    name: str

    def __get__(self, run: "RunDirectory", owner: type["RunDirectory"]) -> Path:
        return run.path / self.name


@dataclass(frozen=True)
class RunDirectory:
    """The files of one run. Creating this object changes nothing on disk."""

    path: Path
    """Its folder, whose name is the name of the run."""

    config_file = _Entry("config.yaml")
    """Every option of the run, with the defaults; a folder that contains this file is a run."""
    src_tokenizer_file = _Entry("src_tokenizer.json")
    tgt_tokenizer_file = _Entry("tgt_tokenizer.json")
    corpus_file = _Entry("corpus.json")
    """What was loaded: source, revision, pairs, and what was dropped and why."""
    written_dir = _Entry("written")
    """What other runs wrote for its training pairs, by the names of sources."""
    verification_file = _Entry("verification.json")
    """The validation sentences with which its converted models are verified."""
    log_file = _Entry("train.log")
    sessions_file = _Entry("sessions.jsonl")
    """The start, the warnings and the end of each session of training."""
    metrics_file = _Entry("metrics.jsonl")
    """The values of the curves."""
    trackers_file = _Entry("trackers.json")
    """Which steps were sent to which run of each experiment tracker."""
    evaluations_file = _Entry("evaluations.jsonl")
    """The scores of all evaluations."""
    behaviours_file = _Entry("behaviours.json")
    """How it copes with text as people write it, as was found last."""
    tensorboard_dir = _Entry("tensorboard")
    engine_dir = _Entry("engine")
    """The converted models of its checkpoints, by the checksum of their weights."""
    checkpoints_dir = _Entry("checkpoints")
    latest_file = _Entry("checkpoints/latest")
    """The name of the newest checkpoint."""
    lock_file = _Entry("lock")
    """Locked by the process that trains here, and empty afterwards."""
    stopped_file = _Entry("stopped")
    """Why training was stopped before its end, until it continues; torchrun hides the exit code."""

    def __post_init__(self) -> None:
        """Give a path that ends in "." or "..", which are not names, in full."""
        if self.path.name in ("", ".."):
            object.__setattr__(self, "path", self.path.resolve())

    @property
    def name(self) -> str:
        """The name of the folder, or of the link to it."""
        return self.path.name

    def adapt_command(self, data: str) -> str:
        """The command for a config that begins with the weights of this run, for other or the same data."""
        return f"mt init --init-from {quote(str(self.path))} --data {quote(data)}"

    @property
    def exists(self) -> bool:
        """Whether there is a run here."""
        return self.config_file.is_file()

    def require(self) -> Self:
        """Return this run, which must exist."""
        if self.exists:
            return self
        parent = self.path.parent
        near = runs_in(self.path) or runs_in(parent) or runs_in(parent / "runs")
        near.sort(key=lambda run: SequenceMatcher(None, run.name, self.name).ratio(), reverse=True)
        remedy = f"Runs near it: {', '.join(str(run.path) for run in near[:10])}." if near else TRAIN_ONE
        raise RunError(f"There is no run in {shown(self.path)}: it has no {self.config_file.name}. {remedy}")

    def read_corpus_report(self) -> bytes:
        """The content of ``corpus_file``."""
        return read_bytes(self.corpus_file, max_bytes=10_000_000)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from training here; create the folder, and remove what killed ones left."""
        with contextlib.ExitStack() as stack:
            try:
                make_folder(self.path)
                file = stack.enter_context(self.lock_file.open("a"))
                system.lock(file.fileno(), waits=False)
            except OSError as error:
                why = error.strerror
                if isinstance(error, BlockingIOError):
                    why = f"it is in use by {self.lock_owner() or 'another process'}; wait for it or stop it"
                raise RunError(f"Cannot train in {self.path}: {why}. Or use another --run PATH.") from error
            # Closing alone would leave the lock with a forked child that inherited the descriptor.
            stack.callback(system.unlock, file.fileno())
            stack.callback(os.ftruncate, file.fileno(), 0)
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            remove_leftovers(self.path)
            yield

    def lock_owner(self) -> str | None:
        """The process that trains here, such as ``process 17 on localhost``; None if there is none."""
        with contextlib.suppress(OSError), self.lock_file.open(errors="replace") as file:
            # Not locked if it is empty, because a process that starts to train at that moment would fail.
            if name := file.read(300):
                try:
                    system.lock(file.fileno(), shared=True, waits=False)
                except BlockingIOError:
                    return name
        return None

    def move_aside(self) -> Path:
        """Move this run to ``<name>.old-1``, or the next free number, under its lock; return the new path."""
        names = (f"{self.name}.old-{number}" for number in itertools.count(1))
        aside = next(path for path in map(self.path.with_name, names) if not path.exists())
        with self.lock():
            self.path.rename(aside)
            sync(aside.parent)
        return aside


def as_run(run: str | Path | RunDirectory) -> RunDirectory:
    """A run directory, given as such, by its path, or as ``hub:org/name``, which may be downloaded first."""
    if isinstance(run, RunDirectory):
        return run
    on_hub = str(run).startswith(hub.PREFIX)
    return RunDirectory(hub.downloaded(str(run)) if on_hub else Path(run))


def newest_run(runs: Path, *, with_checkpoint: bool = True) -> RunDirectory:
    """The run in the folder ``runs`` that has saved a checkpoint last, or has just begun."""
    candidates = [run for run in runs_in(runs) if run.latest_file.exists() or not with_checkpoint]
    if not candidates:
        raise RunError(f"No run in {runs} has a checkpoint yet. {TRAIN_ONE}")
    files = ((run.latest_file if run.latest_file.exists() else run.config_file, run) for run in candidates)
    return max(files, key=lambda pair: pair[0].stat().st_mtime)[1]


def runs_in(folder: Path) -> list[RunDirectory]:
    """Every run in ``folder``, by name, except those that are being created under a hidden name."""
    return [RunDirectory(file.parent) for file in sorted(folder.glob("[!.]*/config.yaml"))]
