"""Entries are found by their key and by nothing else, appear whole, and are not used where damaged."""

import errno
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Thread
from typing import NoReturn

import pytest

from mt.data.cache import Cache, file_digest
from mt.data.cache_folder import cache_folder

KEY = {"what": "text", "number": 7}


def fill(text: str) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        (folder / "text").write_text(text)
        (folder / "more").write_text("more of it")

    return write


def raising(error: Exception) -> NoReturn:
    raise error


def test_an_entry_is_found_by_an_equal_key_alone(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "new" / "cache")
    assert cache.find(KEY) is None
    assert not (tmp_path / "new").exists()
    entry = cache.add(KEY, fill("hello"))
    assert (entry / "text").read_text() == "hello"
    assert cache.find({"number": 7, "what": "text"}) == entry
    for other in ({**KEY, "number": 8}, {**KEY, "number": "7"}, {"what": "text"}, None, [KEY]):
        assert cache.find(other) is None
    assert json.loads((entry / "entry.json").read_text())["key"] == KEY


def flipped(place: int, data: bytes) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_each_flipped_byte_and_each_cut_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = Cache(tmp_path)
    cuts: list[Callable[[bytes], bytes]] = [
        lambda data: data[:-2],
        lambda data: b"",
        lambda data: data + b"x",
    ]
    flips = [partial(flipped, place) for place in range(5)]
    for name, damages in (("text", cuts + flips), ("more", cuts + flips), ("entry.json", cuts)):
        for damage in damages:
            file = cache.add(KEY, fill("hello")) / name
            file.write_bytes(damage(file.read_bytes()))
            caplog.clear()
            assert cache.find(KEY) is None
            assert "is damaged" in caplog.text
            assert "will be made again" in caplog.text
    assert (cache.add(KEY, fill("hello")) / "text").read_text() == "hello"


def test_a_file_that_is_missing_is_noticed(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    (cache.add(KEY, fill("hello")) / "text").unlink()
    assert cache.find(KEY) is None


def test_of_two_writers_the_first_wins_and_both_have_it(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def slow(folder: Path) -> None:
        fill("slow")(folder)
        cache.add(KEY, fill("quick"))

    assert (cache.add(KEY, slow) / "text").read_text() == "quick"
    assert len(list(tmp_path.iterdir())) == 1


def test_many_processes_may_write_the_same_entry(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from mt.data.cache import Cache\n"
        "for n in range(20):\n"
        "    fill = lambda folder: (folder / 'text').write_text(str(n) * 100_000)\n"
        "    entry = Cache(Path(sys.argv[1])).add(n, fill)\n"
        "    assert (entry / 'text').read_text() == str(n) * 100_000\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert len(list(tmp_path.iterdir())) == 20
    assert all(Cache(tmp_path).find(n) for n in range(20))


def test_a_folder_that_was_just_made_is_not_taken_for_deserted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, mkdir, others = Cache(tmp_path), Path.mkdir, list[Thread]()

    def mkdir_and_let_another_in(path: Path) -> None:
        mkdir(path)
        if not others:
            others.append(Thread(target=cache.add, args=(1, fill("other"))))
            others[0].start()
            others[0].join(0.2)  # Time to clear the folder away, if nothing keeps it from that.

    monkeypatch.setattr(Path, "mkdir", mkdir_and_let_another_in)
    assert (cache.add(0, fill("one")) / "text").read_text() == "one"
    others[0].join()
    assert cache.find(0)
    assert cache.find(1)


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        fill("half")(folder)
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        Cache(tmp_path).add(KEY, fail)
    assert list(tmp_path.iterdir()) == []


def test_only_what_is_unused_or_deserted_is_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    old, opened, young = (cache.add(n, fill("")) for n in range(3))
    long_ago = time.time() - 31 * 24 * 3600
    for entry in (old, opened):
        os.utime(entry, (long_ago, long_ago))
    cache.find(1)
    not_ours = [tmp_path / "photos", tmp_path / ".secret", tmp_path / "notes.txt"]
    # Others, too, may name things by digests.
    not_ours += [tmp_path / ("b" * 32), tmp_path / ("c" * 32)]
    for path in not_ours[:-1]:
        path.mkdir()
    not_ours[-1].write_text("a file")
    for path in not_ours:
        os.utime(path, (long_ago, long_ago))
    names = ("dead", "beef", "far", "grown")
    deserted, busy, elsewhere, growing = (tmp_path / f".{'a' * 32}.making-{name}" for name in names)
    for making in (deserted, busy, elsewhere, growing):
        making.mkdir()
    (growing / "text").write_text("just now")
    for making in (deserted, busy, growing):
        os.utime(making, (long_ago, long_ago))
    descriptor = os.open(busy, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    new = cache.add(3, fill(""))
    os.close(descriptor)
    # The last two may be another machine's, whose locks are not seen on NFS.
    assert sorted(tmp_path.iterdir()) == sorted([opened, young, new, busy, elsewhere, growing, *not_ours])


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_an_entry_that_cannot_be_read_is_not_taken_for_damaged(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache = Cache(tmp_path)
    entry = cache.add(KEY, fill("hello"))
    refusal = OSError(code, os.strerror(code))
    for function in ("read_text", "is_dir"):
        with monkeypatch.context() as patch:
            patch.setattr(Path, function, lambda *_, **__: raising(refusal))
            assert cache.find(KEY) is None
        assert f"{entry} cannot be read ({os.strerror(code)})" in caplog.text
        caplog.clear()
    assert cache.find(KEY) == entry


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MT_CACHE", "~/here")
    assert cache_folder() == tmp_path / "here"
    monkeypatch.setenv("MT_CACHE", "~nobody-of-this-name/here")
    assert cache_folder() == Path("~nobody-of-this-name/here")
    monkeypatch.delenv("MT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "mt"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == tmp_path / ".cache" / "mt"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / ".cache" / "mt"


def test_a_digest_of_a_file_is_of_its_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"text")
    other.write_bytes(b"text")
    os.utime(other, (1, 1))
    assert file_digest(one) == file_digest(other)
    stat = one.stat()
    one.write_bytes(b"tExt")
    os.utime(one, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # As long as before, and said to be as old.
    assert file_digest(one) != file_digest(other)
