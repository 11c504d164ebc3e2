"""What several processes refuse or warn of, as the first of them says it; no others are started."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mt import distributed, processes
from mt.config.config import Config
from mt.config.model import ModelConfig
from mt.data.batches.batch import collate
from mt.device import Precision, choose_device
from mt.errors import ConfigError, DeviceError, RunError, TrainingError
from mt.training.loss import Objective
from mt.training.run import run_training
from mt.training.step import accumulate_gradients
from mt.transformer.build import build_transformer

MakeConfig = Callable[..., Config]


@pytest.fixture
def be(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Makes this process one of several that are not there."""

    @contextlib.contextmanager
    def connected(_: str) -> Iterator[None]:
        yield

    def become(rank: int, size: int) -> None:
        monkeypatch.setattr(processes, "rank", lambda: rank)
        monkeypatch.setattr(processes, "size", lambda: size)
        monkeypatch.setattr(distributed, "connected", connected)

    return become


def test_more_processes_than_micro_batches_are_refused_with_the_arithmetic(
    be: Callable[[int, int], None], make_config: MakeConfig, tmp_path: Path
) -> None:
    be(0, 4)
    with pytest.raises(ConfigError) as refused:
        run_training(make_config(), tmp_path / "run")
    message = str(refused.value)
    assert "4 processes cannot share a step of 2 micro-batches" in message
    # 2 x 100 tokens are 4 x 50.
    assert "training.num_micro_batches=4 and training.batch_tokens=50" in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "remedy"), [("torch", "same version"), ("precision", "training.precision that all")]
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


class Full(Objective):
    """Finds no memory."""

    def forward(self, *_: object) -> None:  # type: ignore[override]
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")


def test_out_of_memory_names_the_process_and_the_batch(be: Callable[[int, int], None]) -> None:
    be(1, 2)
    sizes = ModelConfig(d_model=16, num_heads=2, d_ff=24, num_encoder_layers=1, num_decoder_layers=1)
    model = build_transformer(sizes, src_vocab_size=12, tgt_vocab_size=12, max_length=8)
    batch = collate([[5, 6, 7], [5]], [[8, 9], [8]])
    precision = Precision("float32", choose_device("cpu"))
    message = r"process 1 of 2 .*out of memory in a batch of 2 pairs.*lower training\.batch_tokens"
    with pytest.raises(TrainingError, match=message):
        accumulate_gradients(Full(model), [batch], batch.num_target_tokens, precision, 0.1, None)


@pytest.mark.parametrize(
    ("device", "message"),
    [("mps", "cannot work together on mps"), ("cuda", r"as many processes .*GPUs \(2\)")],
)
def test_devices_that_several_processes_cannot_share(
    device: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "size", lambda: 4)
    monkeypatch.setattr(processes, "local_rank", lambda: 2)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(DeviceError, match=message), distributed.connected(device):
        pass
