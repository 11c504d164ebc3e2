"""Entries are found by their key and by nothing else, appear whole, and are not used where damaged."""

import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mt.data.cache import Cache
from mt.data.cache_folder import cache_folder

KEY = {"what": "text", "number": 7}


def fill(text: str) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        (folder / "text").write_text(text)
        (folder / "more").write_text("more of it")

    return write


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


def test_a_flipped_bit_a_cut_and_a_missing_file_are_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = Cache(tmp_path)
    damages: list[Callable[[bytes], bytes]] = [
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: data[:-2],
        lambda data: b"",
    ]
    for name in ("text", "more", "entry.json"):
        for damage in damages:
            file = cache.add(KEY, fill("hello")) / name
            file.write_bytes(damage(file.read_bytes()))
            caplog.clear()
            assert cache.find(KEY) is None
            assert "is damaged" in caplog.text
    (cache.add(KEY, fill("hello")) / "text").unlink()
    assert cache.find(KEY) is None
    assert (cache.add(KEY, fill("hello")) / "text").read_text() == "hello"


def test_of_two_writers_the_first_wins_and_both_have_it(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def slow(folder: Path) -> None:
        fill("slow")(folder)
        cache.add(KEY, fill("quick"))

    assert (cache.add(KEY, slow) / "text").read_text() == "quick"
    assert len(list(tmp_path.iterdir())) == 1


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
    # Others, too, may name things by digests.
    not_ours = [tmp_path / name for name in ("photos", ".secret", "b" * 32)]
    deserted, busy = (tmp_path / f".{'a' * 32}.making-{name}" for name in ("dead", "beef"))
    for path in (*not_ours, deserted, busy):
        path.mkdir()
    long_ago = time.time() - 31 * 24 * 3600
    for path in (old, opened, *not_ours, deserted, busy):
        os.utime(path, (long_ago, long_ago))
    cache.find(1)
    descriptor = os.open(busy, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    new = cache.add(3, fill(""))
    os.close(descriptor)
    assert sorted(tmp_path.iterdir()) == sorted([opened, young, new, busy, *not_ours])


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MT_CACHE", "~/here")
    assert cache_folder() == tmp_path / "here"
    monkeypatch.delenv("MT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "mt"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / ".cache" / "mt"
