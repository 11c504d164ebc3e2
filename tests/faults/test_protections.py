"""Each protection is taken out of a copy of the code, and the test that stands for it must fail then.

Where a protection was rewritten, its place here is to be rewritten with it. docs/reliability.md has the list.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from .torture.processes import ROOT

STORE, RECORD, FORMAT_1 = "mt/checkpoint/store.py", "mt/checkpoint/record.py", "mt/checkpoint/format_1.py"
OLD_STATES = "tests/checkpoint/test_format_1.py"
ATOMIC, RUN, TRAINEE = "mt/atomic_files.py", "mt/run_directory.py", "mt/training/train_state.py"
INTERRUPTED, DAMAGE = "tests/checkpoint/test_store_interrupted.py", "tests/checkpoint/test_store_damage.py"
STORING, RUNS = "tests/checkpoint/test_store.py", "tests/test_run_directory.py"


class Protection(NamedTuple):
    file: str
    text: str
    without: str
    """What stands in the place of ``text`` when it is taken out."""
    test: str


PROTECTIONS = {
    "files are fsynced": Protection(
        ATOMIC, "        os.fsync(file.fileno())\n", "", f"{INTERRUPTED}::test_everything_is_on_the_disk"
    ),
    "folders are fsynced": Protection(
        ATOMIC,
        "        os.fsync(descriptor)\n",
        "        pass\n",
        f"{INTERRUPTED}::test_everything_is_on_the_disk",
    ),
    "a checkpoint is built beside and renamed": Protection(
        STORE,
        "partial = partial_path(checkpoint.folder)",
        'partial = checkpoint.folder.with_name(checkpoint.folder.name + "0")',
        f"{INTERRUPTED}::test_killed_at_every_point_of_a_save",
    ),
    "a file is built beside and renamed": Protection(
        ATOMIC,
        "    partial = partial_path(path)\n    try:",
        "    partial = path\n    try:",
        f"{INTERRUPTED}::test_a_text_file_is_replaced_whole_or_not_at_all",
    ),
    "the pointer comes after what it points at": Protection(
        STORE,
        "            put_in_place(partial, checkpoint.folder)\n",
        "            self._point_at(written)\n            put_in_place(partial, checkpoint.folder)\n",
        f"{INTERRUPTED}::test_killed_at_every_point_of_a_save",
    ),
    "a checkpoint is removed at one stroke": Protection(
        STORE,
        "                remove_folder_atomically(self.directory / name)",
        "                shutil.rmtree(self.directory / name)",
        f"{INTERRUPTED}::test_killed_at_every_point_of_a_save",
    ),
    "leftovers are cleared away": Protection(
        STORE,
        "            remove_leftovers(self.directory)\n",
        "",
        f"{INTERRUPTED}::test_half_built_checkpoints_are_not_seen",
    ),
    "what was set aside is put back": Protection(
        STORE,
        "            self._put_back_what_was_set_aside()\n",
        "",
        f"{INTERRUPTED}::test_killed_while_recovering_from_a_kill",
    ),
    "a full disk is loud": Protection(
        STORE,
        '        raise CheckpointError(\n            f"Cannot {doing}',
        '        return\n        raise CheckpointError(\n            f"Cannot {doing}',
        f"{INTERRUPTED}::test_refused_by_the_disk_at_every_point_of_a_save",
    ),
    "half a checkpoint is cleared away": Protection(
        STORE,
        "        except BaseException:\n            shutil.rmtree(partial, ignore_errors=True)\n",
        "        except BaseException:\n",
        f"{INTERRUPTED}::test_a_disk_that_is_full_within_a_file",
    ),
    "parts are compared with their checksums": Protection(
        RECORD,
        "    if found != checkpoint.checksums.get(part):",
        "    if not found:",
        f"{DAMAGE}::test_training_names_the_damaged_one",
    ),
    "the record is sealed": Protection(
        RECORD,
        "hexdigest() != seal:",
        "hexdigest() == 0:",
        f"{DAMAGE}::test_a_flipped_bit_in_any_byte_of_the_record_is_found",
    ),
    "training never begins afresh in silence": Protection(
        STORE,
        "        if newest is None and damaged:",
        "        if newest is None and not damaged:",
        f"{DAMAGE}::test_where_none_is_sound_training_does_not_begin_afresh",
    ),
    "the best is never removed": Protection(
        STORE,
        "self._target(_BEST), self._target(_LATEST)}",
        "self._target(_LATEST)}",
        f"{STORING}::test_only_the_newest_stay_and_always_the_best",
    ),
    "nothing is unpickled": Protection(
        FORMAT_1,
        "        return _follow(",
        "        return (lambda data, take: __import__('pickle').loads(data))(",
        f"{OLD_STATES}::test_a_malicious_pickle_is_refused_and_not_executed",
    ),
    "nothing is decompressed": Protection(
        FORMAT_1,
        "        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries) or (",
        "        if False and (",
        f"{OLD_STATES}::test_a_decompression_bomb_is_refused",
    ),
    "moments are compared with their parameters": Protection(
        TRAINEE,
        "            if tensor.shape != weight.shape or tensor.dtype != weight.dtype:\n",
        "            if False:\n",
        "tests/training/test_train_state.py::test_a_tensor_that_does_not_fit_its_parameter",
    ),
    "one writer": Protection(
        RUN,
        "            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "",
        f"{RUNS}::test_second_process_is_refused",
    ),
    "links are not followed": Protection(
        RUN,
        "                    raise _not_its_own(path)\n",
        "                    pass\n",
        f"{RUNS}::test_a_link_in_a_run_directory_is_not_followed",
    ),
    "a line has a longest length": Protection(
        "mt/data/sources/files.py",
        "file.readline(MAX_LINE_BYTES + 1)",
        "file.readline()[:MAX_LINE_BYTES]",
        "tests/data/test_endless_lines.py::test_a_small_file",
    ),
    "a tokenizer has no gaps": Protection(
        "mt/data/tokenizers/tokenizer.py",
        "            _check_usable(tokenizer)\n",
        "",
        "tests/data/test_tokenizer.py::test_a_malicious_file_is_an_error",
    ),
    "tokenizers are compared with their checksums": Protection(
        "mt/inference/loaded_model.py",
        "    if changed:\n",
        "    if False:\n",
        "tests/faults/test_hostile_run.py::test_a_tokenizer_in_which_one_word_is_another",
    ),
    "options are compared with the checkpoint": Protection(
        "mt/inference/loaded_model.py",
        "    if changed:\n",
        "    if False:\n",
        "tests/faults/test_hostile_run.py::test_an_option_that_changes",
    ),
    "a checkpoint that vanished is looked for again": Protection(
        STORE,
        "for look in range(_NUM_LOOKS):",
        "for look in range(1):",
        "tests/checkpoint/test_held.py::test_a_checkpoint_pruned",
    ),
    "nothing but files is read": Protection(
        "mt/regular_files.py",
        "if kind != stat.S_IFREG:",
        "if kind == stat.S_IFLNK:",
        "tests/test_regular_files.py::test_what_is_no_regular_file",
    ),
    "weights are finite": Protection(
        "mt/checkpoint/parts.py",
        "        if not _is_finite(tensor):\n",
        "        if False:\n",
        "tests/checkpoint/test_held.py::test_weights_that_are_not_finite",
    ),
    "dropout is seeded by where the run is": Protection(
        "mt/training/step.py",
        "            seed_device(micro_batch.dropout_seed, device)\n",
        "            pass\n",
        "tests/faults/test_kills.py::test_killed[validation]",
    ),
    "the optimizer is restored": Protection(
        TRAINEE,
        '        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})\n',
        "",
        "tests/faults/test_kills.py::test_killed[validation]",
    ),
    "figures of steps to come are taken back": Protection(
        "mt/training/progress.py",
        "_forget_after(metrics_file, ",
        "(lambda *_: [])(metrics_file, ",
        "tests/faults/test_kills.py::test_killed[validation]",
    ),
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of code and tests."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("mt", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("protection", PROTECTIONS.values(), ids=PROTECTIONS)
def test_taken_out(copy: Path, protection: Protection) -> None:
    path = copy / protection.file
    whole = path.read_text()
    assert whole.count(protection.text) == 1, f"{protection.file} has changed: say here what protects now"
    path.write_text(whole.replace(protection.text, protection.without))
    try:
        file, _, name = protection.test.partition("::")
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", file, "-k", _words(name)],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        path.write_text(whole)
    assert ended.returncode == 1, f"{protection.test} passes without it: {ended.stdout[-1000:]}"
    assert " failed" in ended.stdout, ended.stdout[-1000:]


def _words(name: str) -> str:
    """``test_killed[validation]`` -> ``test_killed and validation``, for ``pytest -k``."""
    return name.rstrip("]").replace("[", " and ")
