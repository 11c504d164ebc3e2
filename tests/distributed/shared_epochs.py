"""What becomes of epochs that are shared, as each process finds it: python shared_epochs.py FOLDER."""

import hashlib
import json
import logging
import os
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import mt.data.batches.shared_arrays
import mt.data.batches.stream
from mt import distributed, processes
from mt.data.batches.bpe_dropout import BpeDropout
from mt.data.batches.dataset import EncodedPairs, EncodedSentences, mapped
from mt.data.batches.sampler import Batches, epoch_batches
from mt.data.batches.stream import BatchStream
from mt.errors import DataError, Interrupted, MtError
from mt.training.interruption import Interruption

NUM_PAIRS, MANY_PAIRS = 300, 2_000_000
folder = Path(sys.argv[1])
cache = folder / "cache"
found: dict[str, Any] = {}
patch = pytest.MonkeyPatch()
patch.setattr(mt.data.batches.stream, "PAIRS_IN_MEMORY", 0)
patch.setenv("MT_CACHE", str(cache))


def main() -> None:
    warnings = Warnings()
    logging.getLogger("mt").addHandler(warnings)
    with distributed.connected("cpu"):
        for name, options in OPTIONS.items():
            found[name] = same_batches(options) | {"warnings": warnings.taken()}
        found["mapped"] = mapped_files()
        found["memory"] = growth_of_memory()
        with no_room():
            found["no room"] = same_batches({}) | {"warnings": warnings.taken()}
        with a_machine_without_proc():
            found["no /proc"] = same_batches({}) | {"warnings": warnings.taken()}
        if processes.is_first():
            # A file, in which nothing can be made.
            patch.setenv("MT_CACHE", str(folder / "0.json" / "cache"))
            (folder / "0.json").touch()
        found["no cache"] = same_batches({}) | {"warnings": warnings.taken()}
        patch.setenv("MT_CACHE", str(cache))
        found["no memory"] = error_of(MemoryError("Unable to allocate 40 GiB"))
        found["bad data"] = error_of(DataError("made up for this test."))
        found["signal"] = signal_to_who_waits()
    found["left"] = [str(path) for path in cache.iterdir()]
    (folder / f"{processes.rank()}.json").write_text(json.dumps(found))


class Warnings(logging.Handler):
    """Keeps what is said; stderr may be a file, which the first process cannot write while it has no room."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._said.append(record.getMessage())

    def taken(self) -> list[str]:
        said, self._said = self._said, []
        return said


def pairs() -> EncodedPairs:
    generator = np.random.default_rng(1)

    def side() -> EncodedSentences:
        return EncodedSentences.of(
            [generator.integers(5, 20, generator.integers(1, 12)).tolist() for _ in range(NUM_PAIRS)]
        )

    return EncodedPairs(side(), side())


def bpe_dropout() -> BpeDropout:
    merges = [(4 + i, 5 + i, 20 + i) for i in range(15)]
    # Sentences as this tokenizer would encode them are not needed: each product is spelled out again.
    return BpeDropout(merges, lambda symbols: symbols == 3, num_ids=40, share=0.5, max_length=100)


OPTIONS: dict[str, dict[str, Any]] = {
    "order": {},
    "BPE-dropout": {"bpe_dropouts": (bpe_dropout(), bpe_dropout())},
    "both directions": {"bidirectional_epochs": 2},
    "both": {"bpe_dropouts": (bpe_dropout(), bpe_dropout()), "bidirectional_epochs": 1},
}


def same_batches(options: dict[str, Any]) -> dict[str, Any]:
    """Digests of the batches of some epochs, shared and made alone, and how many were made to share."""
    num_made = 0

    def counted(*arguments: Any, **named: Any) -> Batches:
        nonlocal num_made
        num_made += 1
        return epoch_batches(*arguments, **named)

    with patch.context() as context:
        context.setattr(mt.data.batches.stream, "epoch_batches", counted)
        shared = digests(options)
    with patch.context() as context:
        context.setattr(mt.data.batches.stream, "PAIRS_IN_MEMORY", NUM_PAIRS)
        alone = digests(options)
    return {"shared": shared, "alone": alone, "made": num_made}


def digests(options: dict[str, Any]) -> list[str]:
    """One for each of the epochs 0, 1, and 2, which is begun in the middle."""
    stream = BatchStream(pairs(), batch_tokens=60, num_micro_batches=2, seed=3, **options)
    each = []
    for epoch, batch in ((0, 0), (1, 0), (2, 6)):
        digest, position = hashlib.sha256(), (epoch, batch)
        while position[0] == epoch:
            micro_batches, *following = stream.take(*position)
            for made in micro_batches:
                digest.update(repr([made.src_ids.tolist(), made.labels.tolist(), made.dropout_seed]).encode())
            position = following[0], following[1]
        each.append(digest.hexdigest())
    return each


def mapped_files() -> list[str]:
    """The files of the cache folder that are mapped while an epoch is used, as the system describes them."""
    stream = BatchStream(pairs(), batch_tokens=60, num_micro_batches=2, seed=3, **OPTIONS["BPE-dropout"])
    stream.num_steps(0)
    maps = Path("/proc/self/maps").read_text().splitlines()
    return sorted({line.split(maxsplit=5)[5] for line in maps if str(cache) in line})


def growth_of_memory() -> int:
    """By how many bytes an epoch of many pairs lets the memory of this process grow that is its own."""
    lengths = np.random.default_rng(2).integers(2, 50, MANY_PAIRS).astype(np.int32)
    side = EncodedSentences(np.empty(0, np.int32), np.zeros(MANY_PAIRS + 1, np.int64), lengths)
    stream = BatchStream(EncodedPairs(side, side), batch_tokens=4096, num_micro_batches=2, seed=3)
    before = own_memory()
    stream.num_steps(0)
    return own_memory() - before


def own_memory() -> int:
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0]) * 1024


@contextmanager
def no_room() -> Iterator[None]:
    """The first process can write a few bytes into a file, and no more."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if processes.is_first():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


@contextmanager
def a_machine_without_proc() -> Iterator[None]:
    """Files of other processes cannot be opened."""

    def of_no_other(path: Path, kind: str) -> Any:
        if f"/{os.getpid()}/" not in str(path):
            raise FileNotFoundError(str(path))
        return mapped(path, kind)

    with patch.context() as context:
        context.setattr(mt.data.batches.shared_arrays, "mapped", of_no_other)
        yield


def error_of(error: Exception) -> str:
    """What this process is told when the first one cannot make the epoch."""

    def failing(*arguments: Any, **named: Any) -> NoReturn:
        raise error

    with patch.context() as context:
        context.setattr(mt.data.batches.stream, "epoch_batches", failing)
        return told(lambda: digests({}))


def signal_to_who_waits() -> str:
    """What becomes of the first process, which makes an epoch that never ends, and of the one that waits."""
    with Interruption() as interruption:

        def never_ending(*arguments: Any, **named: Any) -> NoReturn:
            while True:
                interruption.check_share()

        if not processes.is_first():
            os.kill(os.getpid(), signal.SIGTERM)
        with patch.context() as context:
            context.setattr(mt.data.batches.stream, "epoch_batches", never_ending)
            return told(lambda: digests({"before_each_block": interruption.check_share}))


def told(work: Callable[[], object]) -> str:
    try:
        # As training does.
        distributed.together(work)
    except (MtError, Interrupted) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


main()
