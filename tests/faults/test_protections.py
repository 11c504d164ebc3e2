"""Without a protection its test fails.

`torture/taken_out.py` replaces the function that protects, in a process that runs the test.
"""

import os
import subprocess
import sys

import pytest

from .torture.processes import ROOT
from .torture.taken_out import PROTECTIONS, VARIABLE

STORE, DAMAGE = "tests/checkpoint/test_store.py", "tests/checkpoint/test_store_damage.py"
INTERRUPTED, HELD = "tests/checkpoint/test_store_interrupted.py", "tests/checkpoint/test_held.py"
RUNS = "tests/test_run_directory.py"
HOSTILE, KILLED = "tests/faults/test_hostile_run.py", "tests/faults/test_kills.py::test_killed[validation]"

TESTS = {
    "fsync of files": f"{INTERRUPTED}::test_everything_is_on_the_disk_before_it_is_renamed_and_pointed_at",
    "fsync of folders": f"{INTERRUPTED}::test_everything_is_on_the_disk_before_it_is_renamed_and_pointed_at",
    "a checkpoint is built beside and renamed": f"{INTERRUPTED}::test_killed_at_every_point_of_a_save",
    "a file is built beside and renamed": f"{INTERRUPTED}::test_a_text_file_is_replaced_whole_or_not_at_all",
    "the pointer comes after what it points at": f"{INTERRUPTED}::test_killed_at_every_point_of_a_save",
    "a checkpoint is removed at one stroke": f"{INTERRUPTED}::test_killed_at_every_point_of_a_save",
    "leftovers are cleared away": (
        f"{INTERRUPTED}::test_half_built_checkpoints_are_not_seen_and_are_cleared_away"
    ),
    "what was set aside is put back": f"{INTERRUPTED}::test_killed_while_recovering_from_a_kill",
    "a full disk is loud": f"{INTERRUPTED}::test_refused_by_the_disk_at_every_point_of_a_save",
    "half a checkpoint is cleared away": f"{INTERRUPTED}::test_a_disk_that_is_full_within_a_file",
    "parts are compared with their checksums": (
        f"{DAMAGE}::test_training_names_the_damaged_one_and_continues_from_the_newest_sound_one"
    ),
    "the record is sealed": f"{DAMAGE}::test_a_flipped_bit_in_any_byte_of_the_record_is_found",
    "training never starts over in silence": (
        f"{DAMAGE}::test_where_none_is_sound_training_does_not_start_over"
    ),
    "the best is never removed": f"{STORE}::test_only_the_newest_stay_and_always_the_best",
    "moments are compared with their parameters": (
        "tests/training/test_train_state.py"
        "::test_a_tensor_that_does_not_fit_its_parameter_is_refused_and_nothing_is_changed"
    ),
    "one writer": (
        f"{RUNS}::test_second_process_is_refused_with_pid_and_host_and_a_killed_one_does_not_block"
    ),
    "the ids of a tokenizer have no gaps": (
        "tests/data/test_tokenizer.py::test_a_malicious_file_is_an_error_when_it_is_loaded"
    ),
    "tokenizers are compared with their checksums": (
        f"{HOSTILE}::test_a_tokenizer_in_which_one_word_is_another_is_refused"
    ),
    "options are compared with the checkpoint": (
        f"{HOSTILE}::test_an_option_that_changes_what_the_weights_compute_is_refused"
    ),
    "a checkpoint that vanished is looked for again": (
        f"{HELD}::test_a_checkpoint_pruned_while_it_is_opened_is_looked_for_again"
    ),
    "weights are finite": f"{HELD}::test_weights_that_are_not_finite_are_refused_by_name",
    "dropout is seeded by where the run is": KILLED,
    "the optimizer is restored": KILLED,
    "figures of later steps are taken back": KILLED,
}


def test_every_protection_has_a_test() -> None:
    assert TESTS.keys() == PROTECTIONS.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("protection", "test"), TESTS.items(), ids=TESTS)
def test_without_it_its_test_fails(protection: str, test: str) -> None:
    plugin = "tests.faults.torture.taken_out"
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-p", plugin, test],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), VARIABLE: protection},
        capture_output=True,
        text=True,
        check=False,
    )
    # 1: some tests failed; anything else would mean that none was run.
    assert ended.returncode == 1, f"{test} without it: {ended.stdout[-1000:]}{ended.stderr[-1000:]}"
