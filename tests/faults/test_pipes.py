"""Pipes and devices where files belong: whoever reads a run ends at once, with an answer or a sentence."""

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mt.config.load import load_config
from mt.data.tokenizers.tokenizer import read_tokenizer_file
from mt.errors import DataError, MtError
from mt.evaluation.test_set import read_lines
from mt.inference.source_reader import read_dictionary
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory
from mt.training.bad_batches import read_bad_batch
from mt.training.run import run_training

from .torture.pipes import FILES, PLACES, path_of, put
from .torture.trial import Arena

SECONDS = 120


@pytest.fixture(autouse=True)
def _hangs_are_failures() -> Iterator[None]:
    """Whoever waits longer is interrupted, and so fails."""

    def fail(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("file", FILES)
def test_no_reader_of_a_run_waits(arena: Arena, tmp_path: Path, file: str, kind: str) -> None:
    run = RunDirectory(Path(shutil.copytree(arena.unbroken, tmp_path / "run")))
    put(kind, path_of(run.path, file))
    with contextlib.suppress(MtError):
        Translator.from_run(run, device=torch.device("cpu"))
    with contextlib.suppress(MtError):
        run_training(load_config(arena.config), run)


@pytest.mark.parametrize("kind", ["a pipe", "an endless device"])
def test_no_reader_of_a_single_file_waits(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    put(kind, path)
    sizes = {"src_vocab_size": 9, "tgt_vocab_size": 9, "max_length": 9}
    for read in (load_config, read_tokenizer_file, read_dictionary, read_lines):
        with pytest.raises(MtError, match=r"file.*it is a"):
            read(path)
    with pytest.raises(DataError, match="it is a"):
        read_bad_batch(path, **sizes)


def test_a_dictionary_may_come_from_another_program() -> None:
    reading, writing = os.pipe()
    os.write(writing, "dog\tHündchen\n".encode())
    os.close(writing)
    assert read_dictionary(Path(f"/dev/fd/{reading}")) == {"dog": "Hündchen"}
    os.close(reading)
