"""Killed, or refused by the disk, at every single call that a save makes: nothing that was there is lost."""

import errno
import os
import re
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mt.checkpoint.record import Checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.errors import CheckpointError
from mt.files import write_atomically

Save = Callable[..., Checkpoint]
IsWhole = Callable[[Checkpoint], bool]

DISK_CALLS = ("fsync", "rename", "replace", "mkdir", "rmdir", "unlink")


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Killed(BaseException):
    """The process ends here: nothing that comes after reaches the disk."""


@contextmanager
def failing_at(call: int, error: BaseException, *, for_good: bool) -> Iterator[list[str]]:
    """Let the disk call with this number fail, and, ``for_good``, every later one; yields the calls made."""
    made: list[str] = []

    def counted(name: str, really: Callable[..., object]) -> Callable[..., object]:
        def wrapper(*arguments: object, **keywords: object) -> object:
            made.append(name)
            if len(made) == call or (for_good and len(made) > call):
                raise error
            return really(*arguments, **keywords)

        return wrapper

    with pytest.MonkeyPatch.context() as patch:
        for name in DISK_CALLS:
            patch.setattr(os, name, counted(name, getattr(os, name)))
        yield made


@pytest.fixture
def prepare(store: CheckpointStore, save: Save, tmp_path: Path) -> Callable[[], None]:
    """Lays out steps 1 (best), 2 and 3; with ``keep=2`` the next save writes, points twice and prunes."""
    save(1, best=True)
    save(2)
    save(3)
    template = store.directory.rename(tmp_path / "template")

    def prepare() -> None:
        shutil.rmtree(store.directory, ignore_errors=True)
        shutil.copytree(template, store.directory)

    return prepare


def assert_nothing_lost(store: CheckpointStore, is_whole: IsWhole, steps: set[int]) -> None:
    recovered, damaged = store.recover()
    assert recovered is not None
    newest = recovered.checkpoint
    assert newest.step == max(steps)
    assert damaged == {}
    assert {store.require(name).step for name in store.names()} == steps
    assert all(is_whole(store.require(name)) for name in store.names())
    assert store.require("latest") == newest
    assert listing(store.directory) == sorted(["latest", "best", *store.names()])


def number_of_calls(prepare: Callable[[], None], save: Save, step: int) -> int:
    prepare()
    with failing_at(0, Killed(), for_good=False) as made:
        save(step, best=True, keep=2)
    assert {"fsync", "rename", "replace"} <= set(made)
    return len(made)


@pytest.mark.parametrize("step", [4, 3], ids=["a new step", "a step saved again"])
@pytest.mark.parametrize("died", [True, False], ids=["kill -9", "interrupted"])
def test_killed_at_every_point_of_a_save(
    prepare: Callable[[], None], store: CheckpointStore, save: Save, is_whole: IsWhole, step: int, died: bool
) -> None:
    """``kill -9`` leaves no time to clean up; an exception such as Ctrl-C does."""
    outcomes = set()
    for call in range(1, number_of_calls(prepare, save, step) + 1):
        prepare()
        with pytest.raises(Killed), failing_at(call, Killed(), for_good=died):
            save(step, best=True, keep=2)
        if step == 4 or not died:  # Others can translate even before training comes back and recovers.
            assert is_whole(store.require("latest"))
            assert is_whole(store.require("best"))
        before = set(store.names())
        recovered, _ = store.recover()
        assert recovered is not None
        newest = recovered.checkpoint
        assert before <= set(store.names())
        steps = {store.require(name).step for name in store.names()}
        assert {3, newest.step} <= steps
        assert newest.best or steps == {1, 2, 3}
        assert_nothing_lost(store, is_whole, steps)
        # As the pointer would stand, had nobody been killed: of before the save or of after it.
        assert store.require("best").step == (step if newest.best else 1)
        outcomes.add((newest.step, newest.best))
    assert outcomes == {(3, False), (step, True)}


def refused_save(save: Save, step: int, call: int, refusal: OSError, *, for_good: bool) -> str | None:
    """The error of a save; None if it is only a warning."""
    with failing_at(call, refusal, for_good=for_good):
        try:
            save(step, best=True, keep=2)
        except CheckpointError as error:
            return str(error)
    return None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("step", [4, 3], ids=["a new step", "a step saved again"])
def test_refused_by_the_disk_at_every_point_of_a_save(
    prepare: Callable[[], None],
    store: CheckpointStore,
    save: Save,
    is_whole: IsWhole,
    step: int,
    code: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    num_only_warned = 0
    for call in range(1, number_of_calls(prepare, save, step) + 1):
        prepare()
        refusal = OSError(code, os.strerror(code))
        message = rf"Cannot save checkpoint .*step_{step:07d}: {os.strerror(code)}\."
        caplog.clear()
        error = refused_save(save, step, call, refusal, for_good=code != errno.EIO)
        if error is not None:
            assert re.search(message, error)
        else:
            # The new one is whole, but an old one is in the way.
            num_only_warned += 1
            assert store.require("latest").step == store.require("best").step == step
            assert re.search(r"cannot remove .*step_000000\d, which is no longer kept: ", caplog.text)
        recovered, damaged = store.recover()
        assert recovered is not None
        assert damaged == {}
        assert_nothing_lost(store, is_whole, {store.require(name).step for name in store.names()})
        # The disk has room again: the same command continues.
        save(5, keep=1)
        assert store.require("latest").step == 5
    assert num_only_warned


def test_a_write_protected_checkpoint_stays_and_training_goes_ahead(
    prepare: Callable[[], None],
    store: CheckpointStore,
    save: Save,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    prepare()
    with monkeypatch.context() as patch:
        # The tests may run as root, who may write everywhere.
        patch.setattr(os, "access", lambda path, mode: Path(path).name != "step_0000001")
        save(4, best=True, keep=1)
        save(5, best=True, keep=1)
    assert "step_0000001" in store.names()
    assert "step_0000004" not in store.names()
    assert "step_0000001, which is no longer kept: Permission denied" in caplog.text
    save(6, keep=1)
    assert "step_0000001" not in store.names()


@pytest.mark.parametrize("room", [0, 1, 200, 500, 600])
def test_a_disk_that_is_full_within_a_file(
    prepare: Callable[[], None], store: CheckpointStore, save: Save, is_whole: IsWhole, room: int
) -> None:
    """The system itself refuses to write more than ``room`` bytes into a file (RLIMIT_FSIZE)."""
    prepare()
    before = listing(store.directory)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        with pytest.raises(CheckpointError, match="File too large") as caught:
            save(4, best=True, keep=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert "Free some space" in str(caught.value)
    assert listing(store.directory) == before
    assert_nothing_lost(store, is_whole, {1, 2, 3})


def test_killed_while_recovering_from_a_kill(
    prepare: Callable[[], None], store: CheckpointStore, save: Save, is_whole: IsWhole
) -> None:
    """Between the two renames of a replacement, and then again at every point of the recovery."""
    for call in range(1, 20):
        prepare()
        (store.directory / "step_0000003").rename(store.directory / ".step_0000003.aside")
        (store.directory / ".step_0000003.partial-7").mkdir()
        (store.directory / ".latest.partial-7").write_text("step_00")
        with failing_at(call, Killed(), for_good=True) as made:
            try:
                store.recover()
            except Killed:
                assert len(made) >= call
            else:
                assert call > 2
                break
        assert_nothing_lost(store, is_whole, {1, 2, 3})
    else:
        pytest.fail("recovering never came to an end")


def test_half_built_checkpoints_are_not_seen_and_are_cleared_away(
    prepare: Callable[[], None], store: CheckpointStore, save: Save, is_whole: IsWhole
) -> None:
    prepare()
    for name in (".step_0000009.partial-1", ".step_0000008.partial-99999", "..step_0000003.aside.partial-5"):
        shutil.copytree(store.directory / "step_0000003", store.directory / name)
    assert store.names() == ["step_0000001", "step_0000002", "step_0000003"]
    assert store.require("latest").step == 3
    assert_nothing_lost(store, is_whole, {1, 2, 3})


def test_everything_is_on_the_disk_before_it_is_renamed_and_pointed_at(
    store: CheckpointStore, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rename finds its file, or its folder and the files in it, fsynced, and the rename before it."""
    synced: set[int] = set()
    renamed: list[str] = []
    really_fsync, really_rename, really_replace = os.fsync, os.rename, os.replace

    def fsync(descriptor: int) -> None:
        really_fsync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    def checked(really: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
        def move(source: Path, target: Path) -> None:
            paths = [source, *source.iterdir()] if source.is_dir() else [source]
            assert {path.stat().st_ino for path in paths} <= synced
            assert not renamed or target.parent.stat().st_ino in synced
            renamed.append(target.name)
            really(source, target)
            synced.discard(target.parent.stat().st_ino)

        return move

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", checked(really_rename))
    monkeypatch.setattr(os, "replace", checked(really_replace))
    save(1, best=True)
    assert renamed == ["step_0000001", "best", "latest"]
    assert {store.directory.stat().st_ino, store.directory.parent.stat().st_ino} <= synced


@pytest.mark.parametrize("died", [True, False])
def test_a_text_file_is_replaced_whole_or_not_at_all(tmp_path: Path, died: bool) -> None:
    path = tmp_path / "config.yaml"
    for call in range(1, 4):
        path.write_text("old")
        with pytest.raises(Killed), failing_at(call, Killed(), for_good=died):
            write_atomically(path, "new ü")
        assert path.read_text(encoding="utf-8") == ("new ü" if call == 3 else "old")
        assert died or listing(tmp_path) == ["config.yaml"]
    write_atomically(path, "new ü")
    assert path.read_bytes() == "new ü".encode()
