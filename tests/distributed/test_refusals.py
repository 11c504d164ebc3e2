"""What several processes refuse or warn of, as the first of them says it; no others are started."""

import contextlib
from pathlib import Path

import pytest

from mt import distributed, processes
from mt.errors import ConfigError, EngineError, RunError
from mt.training.run import run_training
from tests.fixture_types import MakeConfig


def test_more_processes_than_micro_batches_are_refused_with_the_arithmetic(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "SIZE", 4)
    monkeypatch.setattr(distributed, "connected", lambda device: contextlib.nullcontext())
    with pytest.raises(ConfigError) as refused:
        run_training(make_config(), tmp_path / "run")
    message = str(refused.value)
    assert "4 processes cannot share a step of 2 micro-batches" in message
    # 2 x 100 tokens are 4 x 50.
    assert "training.num_micro_batches=4 and training.batch_tokens=50" in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("mt", "same version"),
        ("torch", "same version"),
        ("precision", "training.precision that all"),
        ("training.seed", "same config"),
    ],
)
def test_processes_with_other_software_or_precision_are_refused(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, remedy: str
) -> None:
    def gather(own: dict[str, object]) -> list[object]:
        return [own, own, own | {name: "another"}]

    monkeypatch.setattr(distributed, "all_gather", gather)
    with pytest.raises(RunError, match=f"process 2 differs .*{name}: .* -> another.*{remedy}"):
        run_training(make_config(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("device", "message"),
    [("mps", "NVIDIA GPU of its own"), ("cuda", r"as many on this machine as it has \(2\)")],
)
def test_devices_that_several_processes_cannot_share(
    device: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "ARE_SEVERAL", True)
    monkeypatch.setattr(processes, "LOCAL_RANK", 2)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(EngineError, match=message), distributed.connected(device):
        pass
