"""Epochs of a large corpus are shared by the processes of a machine, as one process alone would make them."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import TORCHRUN, environment

DRIVER = Path(__file__).with_name("shared_epochs.py")
Found = list[dict[str, Any]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What the two processes of a machine found."""
    folder = tmp_path_factory.mktemp("shared")
    command = [*TORCHRUN, "--standalone", "--nproc-per-node=2", "--", str(DRIVER), str(folder)]
    with (folder / "output").open("w") as output:
        code = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment(), timeout=300
        ).returncode
    assert code == 0, (folder / "output").read_text()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("options", ["order", "BPE-dropout", "both directions", "both"])
def test_shared_batches_are_those_of_a_process_alone_and_one_process_makes_them(
    found: Found, options: str
) -> None:
    first, other = (each[options] for each in found)
    assert first["shared"] == other["shared"] == first["alone"]
    assert len(set(first["shared"])) == 3
    assert first["warnings"] == other["warnings"] == []
    # What the first one makes alone is not counted.
    assert [first["made"], other["made"]] == [3, 0]


def test_epochs_are_in_files_without_a_name_which_leave_nothing_behind(found: Found) -> None:
    for each in found:
        # The order, and the ids of both sides.
        assert len(each["mapped"]) == 9
        assert all(path.endswith(" (deleted)") for path in each["mapped"])
        assert each["left"] == []


def test_the_other_processes_have_no_copy_of_an_epoch(found: Found) -> None:
    # The indices of the pairs alone are 8 MB.
    assert found[1]["memory"] < 2_000_000


@pytest.mark.parametrize(("trouble", "reason"), [("no room", "File too large"), ("no cache", "File exists")])
def test_where_the_files_cannot_be_written_each_process_makes_its_own(
    found: Found, trouble: str, reason: str
) -> None:
    first, other = (each[trouble] for each in found)
    assert first["shared"] == other["shared"] == first["alone"]
    assert [first["made"], other["made"]] == [3, 3]
    assert len(first["warnings"]) == 3
    assert all("cannot be written" in warning and reason in warning for warning in first["warnings"])
    assert other["warnings"] == []


def test_where_they_cannot_be_opened_a_process_makes_its_own(found: Found) -> None:
    first, other = (each["no /proc"] for each in found)
    assert first["shared"] == other["shared"] == first["alone"]
    assert [first["made"], other["made"]] == [3, 3]
    assert len(other["warnings"]) == 3
    assert first["warnings"] == []


@pytest.mark.parametrize(
    ("trouble", "expected"),
    [("no memory", "TrainingError: the order of epoch 0"), ("bad data", "DataError: made up for this test.")],
)
def test_an_error_of_the_process_that_makes_an_epoch_is_that_of_all(
    found: Found, trouble: str, expected: str
) -> None:
    assert found[0][trouble] == found[1][trouble]
    assert found[0][trouble].startswith(expected)


def test_a_signal_to_a_process_that_waits_ends_the_making_of_an_epoch(found: Found) -> None:
    assert [each["signal"] for each in found] == ["Interrupted: "] * 2
