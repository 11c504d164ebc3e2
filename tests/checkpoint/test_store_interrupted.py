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

from mt.checkpoint.store import CheckpointStore
from mt.errors import CheckpointError
from tests.checkpoint.conftest import listing
from tests.fixture_types import IsWhole, Save

DISK_CALLS = ("fsync", "rename", "replace", "mkdir", "rmdir", "unlink")


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


@pytest.mark.parametrize(
    ("code", "step"), [(errno.ENOSPC, 4), (errno.EIO, 3)], ids=["a new step", "a step saved again"]
)
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
        message = rf"Cannot save .*step_{step:07d}: {os.strerror(code)}\."
        error = ""
        with failing_at(call, refusal, for_good=code != errno.EIO):
            try:
                save(step, best=True, keep=2)
            except CheckpointError as refused:
                error = str(refused)
        if error:
            assert re.search(message, error)
        else:
            # The new one is whole, but an old one cannot be removed.
            num_only_warned += 1
            assert f"which is no longer kept: {os.strerror(code)}" in caplog.text
            caplog.clear()
            assert store.require("latest").step == store.require("best").step == step
        store.recover()
        assert_nothing_lost(store, is_whole, {store.require(name).step for name in store.names()})
        # The disk has room again: the same command continues.
        save(5, keep=1)
        assert store.require("latest").step == 5
    assert num_only_warned


def test_a_disk_that_is_full_within_a_file(
    prepare: Callable[[], None], store: CheckpointStore, save: Save, is_whole: IsWhole
) -> None:
    """The system itself refuses to write more than 500 bytes into a file (RLIMIT_FSIZE)."""
    prepare()
    before = listing(store.directory)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
    try:
        with pytest.raises(CheckpointError, match=r"File too large.*Free some space"):
            save(4, best=True, keep=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert listing(store.directory) == before
    assert_nothing_lost(store, is_whole, {1, 2, 3})


def test_killed_while_recovering_from_a_kill(
    prepare: Callable[[], None], store: CheckpointStore, save: Save, is_whole: IsWhole
) -> None:
    """Between the two renames of a replacement, and then again at every point of the recovery."""
    for call in range(1, 20):
        prepare()
        (store.directory / "step_0000003").rename(store.directory / ".step_0000003.aside")
        shutil.copytree(store.directory / "step_0000002", store.directory / ".step_0000003.partial-7")
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
