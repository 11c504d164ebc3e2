"""What several processes refuse or warn of, as the first of them says it; no others are started."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from mt import distributed, processes
from mt.config.config import Config
from mt.config.model import ModelConfig
from mt.data.batches.batch import collate
from mt.device import Precision, choose_device
from mt.display import show_only_errors
from mt.errors import ConfigError, DeviceError, RunError, TrainingError
from mt.run_directory import RunDirectory
from mt.training.loss import Objective
from mt.training.run import run_training
from mt.training.run_log import log_file
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
    assert "4 processes cannot share a step of 2 micro-batches (training.num_micro_batches)" in message
    assert "Start at most 2" in message
    # 2 x 100 tokens are 4 x 50.
    assert "training.num_micro_batches=4 and training.batch_tokens=50" in message
    assert not (tmp_path / "run").exists()
    # Steps of fewer tokens than processes cannot be divided further.
    with pytest.raises(ConfigError, match=r"Start at most 2\.$"):
        run_training(make_config("training.batch_tokens=1"), tmp_path / "run")


@pytest.mark.parametrize(
    ("size", "each", "lost"), [(2, 3, "25 %"), (2, 5, "17 %"), (3, 4, "33 %"), (2, 4, None), (3, 3, None)]
)
def test_an_uneven_split_is_warned_of_with_the_time_lost(
    be: Callable[[int, int], None],
    make_config: MakeConfig,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    size: int,
    each: int,
    lost: str | None,
) -> None:
    be(0, size)
    run_training(make_config(f"training.num_micro_batches={each}", "training.max_steps=1"), tmp_path / "run")
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    found = [text for text in warnings if "spent waiting" in text]
    assert len(found) == (lost is not None)
    if lost is not None:
        assert f"{each} micro-batches on {size} processes: {lost} of the time" in found[0]
        assert f"multiple of {size} (training.num_micro_batches)" in found[0]


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("mt", "same version"), ("torch", "same version"), ("precision", "training.precision=float32")],
)
def test_processes_with_other_software_or_precision_are_refused(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, remedy: str
) -> None:
    def gather(own: tuple[dict[str, object], object]) -> list[object]:
        return [own, own, (own[0] | {name: "another"}, own[1])]

    monkeypatch.setattr(distributed, "gather", gather)
    with pytest.raises(RunError) as refused:
        run_training(make_config(), tmp_path / "run")
    message = str(refused.value)
    assert message.startswith(f"{name} is ")
    assert "another in process 2" in message
    assert remedy in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("theirs", "is_refused"), [("cpu", False), ("cuda", True)])
def test_processes_on_another_kind_of_device_are_refused(
    monkeypatch: pytest.MonkeyPatch, theirs: str, is_refused: bool
) -> None:
    class ConnectedError(Exception):
        pass

    def init(*_: object, **__: object) -> None:
        raise ConnectedError

    store = HashStore()
    store.set("mt/device", theirs)
    monkeypatch.setattr(distributed, "rendezvous", lambda *_, **__: iter([(store, 1, 2)]))
    monkeypatch.setattr("torch.distributed.init_process_group", init)
    monkeypatch.setattr(processes, "rank", lambda: 1)
    monkeypatch.setattr(processes, "size", lambda: 2)
    with (
        pytest.raises(TrainingError if is_refused else ConnectedError) as ended,
        distributed.connected("cpu"),
    ):
        pass
    assert not is_refused or "on cpu, but the first one on cuda" in str(ended.value)


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
    with pytest.raises(TrainingError) as full:
        accumulate_gradients(Full(model), [batch], batch.num_target_tokens, precision, 0.1, None)
    message = str(full.value)
    assert "process 1 of 2 has run out of memory in a batch of 2 pairs" in message
    assert f"{batch.src_ids.size(1)} source and {batch.labels.size(1)} target tokens" in message
    assert "Lower training.batch_tokens and raise training.num_micro_batches" in message


def test_another_process_writes_its_errors_alone_into_the_log_with_its_number(
    be: Callable[[int, int], None], tmp_path: Path
) -> None:
    logger = logging.getLogger("mt")
    before = logger.level, logger.handlers
    be(3, 4)
    try:
        show_only_errors()
        with log_file(RunDirectory(tmp_path)):
            logging.getLogger("mt.anywhere").warning("not me")
            logging.getLogger("mt.anywhere").error("that\x1b failed")
    finally:
        logger.level, logger.handlers = before
        logger.setLevel(before[0])
    [line] = (tmp_path / "train.log").read_text().splitlines()
    assert line.split(" ", 2)[2] == "ERROR process 3: that\\x1b failed"


def test_a_device_on_which_processes_cannot_communicate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "size", lambda: 2)
    with pytest.raises(DeviceError, match="cannot work together on mps"), distributed.connected("mps"):
        pass


def test_more_processes_than_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "size", lambda: 4)
    monkeypatch.setattr(processes, "local_rank", lambda: 2)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    message = r"start at most as many processes on this machine as it has GPUs \(2\)"
    with pytest.raises(DeviceError, match=message), distributed.connected("cuda"):
        pass


@pytest.mark.parametrize(("backend", "ended"), [("nccl", []), ("gloo", ["destroyed"])])
def test_after_an_error_it_does_not_wait_for_others_to_disconnect(
    backend: str, ended: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "size", lambda: 2)
    done: list[str] = []
    reason = "NCCL error in init.cpp\nLast error:\nno room in /dev/shm"
    monkeypatch.setattr(distributed, "rendezvous", lambda *_, **__: iter([(None, 0, 2)]))
    monkeypatch.setattr(distributed, "_refuse_other_device", lambda device_type: None)
    for name, value in {
        "init_process_group": None,
        "new_group": None,
        "is_initialized": True,
        "get_backend": backend,
    }.items():
        monkeypatch.setattr(f"torch.distributed.{name}", lambda *_, value=value, **__: value)
    monkeypatch.setattr("torch.distributed.destroy_process_group", lambda: done.append("destroyed"))
    message = r"has ended, or has not answered .* \(The error was: no room in /dev/shm\)"
    with pytest.raises(TrainingError, match=message), distributed.connected("cpu"):
        raise RuntimeError(reason)
    assert done == ended
    with distributed.connected("cpu"):
        pass
    # What all processes but the first do when sentences have been translated.
    with pytest.raises(SystemExit), distributed.connected("cpu"):
        raise SystemExit(0)
    assert done == [*ended, "destroyed", "destroyed"]
