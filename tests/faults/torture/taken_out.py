"""Protections taken out, one at a time: the function that protects is replaced by one that does not.

A pytest plugin, and part of the driver: where the environment variable ``MT_TAKEN_OUT`` names a protection, a
process that imports this runs without it.
"""

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

import mt.atomic_files
import mt.checkpoint.directory
import mt.checkpoint.record
import mt.checkpoint.store
import mt.checkpoint.weights
import mt.data.tokenizers.tokenizer
import mt.inference.loaded_model
import mt.inference.translator
import mt.regular_files
import mt.run_directory
import mt.seeding
import mt.training.progress
import mt.training.run
import mt.training.train_state

VARIABLE = "MT_TAKEN_OUT"
_STORE, _RECORD, _DIRECTORY = mt.checkpoint.store, mt.checkpoint.record, mt.checkpoint.directory


def _everywhere(function: Callable[..., Any], by: Callable[..., Any]) -> Callable[[], None]:
    """Replace a function in each module that has imported it."""

    def replace() -> None:
        for name, module in list(sys.modules.items()):
            if name.startswith("mt."):
                for attribute, value in list(vars(module).items()):
                    if value is function:
                        setattr(module, attribute, by)

    return replace


def _here(owner: object, attribute: str, by: object) -> Callable[[], None]:
    """Replace an attribute of one module or class, which must be there."""
    getattr(owner, attribute)
    return lambda: setattr(owner, attribute, by)


def _nothing(*_: object, **__: object) -> None:
    pass


def _write_unsynced(path: Path, data: bytes | memoryview) -> None:
    path.write_bytes(data)


def _point_then_put(partial: Path, folder: Path) -> None:
    (folder.parent / "latest").write_text(f"{folder.name}\n")
    mt.atomic_files.put_in_place(partial, folder)


@contextlib.contextmanager
def _silence(doing: str) -> Iterator[None]:
    with contextlib.suppress(OSError):
        yield


def _unseal(text: str) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise mt.checkpoint.record.DamagedError("not JSON") from error
    return {key: value for key, value in content.items() if key != "seal"}


def _newest_sound(store: Any, find: Callable[..., Any] = _STORE.CheckpointStore._newest_sound) -> Any:
    newest, damaged = find(store)
    return newest, damaged if newest else {}


def _prune_the_best(directory: Path, newest: object, keep: int) -> None:
    for name in mt.checkpoint.directory.step_names(directory)[:-keep]:
        shutil.rmtree(directory / name)


_NO_REMOVAL = SimpleNamespace(rmtree=_nothing)
_NO_LOCK = SimpleNamespace(flock=_nothing, LOCK_EX=0, LOCK_SH=0, LOCK_NB=0, LOCK_UN=0)

PROTECTIONS: dict[str, Callable[[], None]] = {
    "fsync of files": _everywhere(mt.atomic_files.write_synced, _write_unsynced),
    "fsync of folders": _everywhere(mt.atomic_files.sync_folder, _nothing),
    "a checkpoint is built beside and renamed": _here(
        _STORE, "partial_path", lambda path: path.with_name(f"{path.name}0")
    ),
    "a file is built beside and renamed": _here(mt.atomic_files, "partial_path", lambda path: path),
    "the pointer comes after what it points at": _here(_STORE, "put_in_place", _point_then_put),
    "a checkpoint is removed at one stroke": _here(_DIRECTORY, "remove_folder_atomically", shutil.rmtree),
    "leftovers are cleared away": _here(_STORE, "remove_leftovers", _nothing),
    "what was set aside is put back": _here(_STORE, "put_back_set_aside", _nothing),
    "a full disk is loud": _here(_STORE, "_explain_refusal", _silence),
    "half a checkpoint is cleared away": _here(_STORE, "shutil", _NO_REMOVAL),
    "parts are compared with their checksums": _here(_RECORD, "_compare", _nothing),
    "the record is sealed": _here(_RECORD, "_unseal", _unseal),
    "training never starts over in silence": _here(_STORE.CheckpointStore, "_newest_sound", _newest_sound),
    "the best is never removed": _here(_STORE, "prune", _prune_the_best),
    "moments are compared with their parameters": _here(
        mt.training.train_state.TrainState, "_refuse_other_tensors", _nothing
    ),
    "one writer": _here(mt.run_directory, "fcntl", _NO_LOCK),
    "the ids of a tokenizer have no gaps": _here(mt.data.tokenizers.tokenizer, "_check_usable", _nothing),
    "tokenizers are compared with their checksums": _everywhere(
        mt.inference.loaded_model.refuse_other_tokenizers, _nothing
    ),
    "options are compared with the checkpoint": _everywhere(
        mt.inference.loaded_model.refuse_other_computation, _nothing
    ),
    "a checkpoint that vanished is looked for again": _here(_STORE, "_NUM_LOOKS", 1),
    "weights are finite": _here(mt.checkpoint.weights, "_is_finite", lambda tensor: True),
    "dropout is seeded by where the run is": _everywhere(mt.seeding.seed_device, _nothing),
    "the optimizer is restored": _here(torch.optim.Optimizer, "load_state_dict", _nothing),
    "figures of later steps are taken back": _here(mt.training.progress, "_forget_after", lambda *_: []),
}

if VARIABLE in os.environ:
    PROTECTIONS[os.environ[VARIABLE]]()
