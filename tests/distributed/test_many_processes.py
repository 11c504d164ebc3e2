"""Training by several processes gives the model that one process gives, and uses each pair once."""

import json
import socket
import subprocess
from pathlib import Path

import pytest
import torch

from mt.run_directory import RunDirectory
from tests.distributed.conftest import (
    TORCHRUN,
    Start,
    assert_close,
    environment,
    pairs_of,
    position,
    steps_of,
    tensors,
)

# The last step of an epoch has a single micro-batch, so that all processes but one have nothing to compute.
# The gradient of the bias of keys is zero but for rounding, which Adam makes as large as the learning rate.
STEPS = (
    "training.num_micro_batches=4", "training.batch_tokens=140", "validation.every_steps=25",
    "schedule.learning_rate=0.001", "training.max_steps=50",
)  # fmt: skip


def assert_same_training(one: Path, other: Path, size: int) -> None:
    """Losses, norms, validations, weights, and the moments of Adam; prints how far they are apart."""
    [alone], *_ = steps_of(one, 1), None
    for ours in steps_of(other, size):
        assert [step["step"] for step in ours] == [step["step"] for step in alone]
        for name in ("loss", "norm"):
            found, expected = ([step[name] for step in steps] for steps in (ours, alone))
            print(f"{name}: at most {max(abs(a / b - 1) for a, b in zip(found, expected, strict=True)):.1e}")
            assert found == pytest.approx(expected, rel=1e-12)
    validations = [
        [line for text in (run / "metrics.jsonl").read_text().splitlines()
         if (line := json.loads(text))["kind"] == "validation"]
        for run in (one, other)
    ]  # fmt: skip
    assert len(validations[0]) == 2
    for mine, theirs in zip(*validations, strict=True):
        names = ("step", "loss", "bleu", "chrf")
        assert [mine[name] for name in names] == pytest.approx([theirs[name] for name in names], rel=1e-12)
    assert_close(one, other)


def test_two_processes_train_as_one_does(start: Start) -> None:
    jobs = [start(f"by-{size}", *STEPS, size=size) for size in (1, 2)]
    one, two = (job.succeed().run for job in jobs)
    assert_same_training(one, two, 2)
    records = steps_of(two, 2)
    numbers = [[len(step["pairs"]) for step in steps] for steps in records]
    assert [1, 0] in [list(step) for step in zip(*numbers, strict=True)], "no step had too few micro-batches"
    seen = pairs_of(records)
    assert len(seen) == len(set(seen))
    first_epoch = sorted(pair for epoch, pair in seen if epoch == 0)
    assert first_epoch == list(range(160))
    assert max(epoch for epoch, _ in seen) > 0
    assert sorted(seen) == sorted(pairs_of(steps_of(one, 1)))


def test_one_process_writes_what_all_train_on(start: Start, trained: RunDirectory) -> None:
    written = f"data.write_tgt.run={trained.path}"
    jobs = [start(f"written-by-{size}", *STEPS, written, size=size) for size in (1, 2)]
    one, two = (job.succeed().run for job in jobs)
    assert jobs[1].output.read_text().count("writes; engine") == 1
    [part] = (two / "written" / "own").glob("*.jsonl")
    assert part.read_bytes() == (one / "written" / "own" / part.name).read_bytes()
    assert_same_training(one, two, 2)


def test_the_fast_engine_is_prepared_when_the_processes_have_parted(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As users have it: the tests turn the engine off otherwise.
    monkeypatch.delenv("MT_ENGINE")
    job = start("engine", "training.max_steps=2", size=2, float64=False).succeed()
    # It may be refused, because near-ties of a model of two steps are many.
    [engine] = (job.run / "engine").iterdir()
    assert any(engine.iterdir())


def test_every_exchange_has_its_result(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    program = Path(__file__).with_name("exchange.py")
    command = [*TORCHRUN, "--standalone", "--nproc-per-node=2", str(program), str(tmp_path / "shared")]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=400)
    assert ended.returncode == 0, ended.stderr


def machine_of_two() -> tuple[str, ...]:
    """The options of each of two launchers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
    return (
        "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
        "--local-addr=127.0.0.1",
    )  # fmt: skip


@pytest.mark.slow
def test_machines_with_other_configs_are_refused(start: Start) -> None:
    machine = machine_of_two()
    agents = [start("two", *STEPS, f"training.seed={seed}", size=2, torchrun=machine) for seed in (5, 6)]
    assert all(agent.end() for agent in agents)
    said = agents[0].output.read_text()
    assert said.count("mt: process 1 differs from the first process") == 1
    assert "training.seed: " in said
    assert not (agents[0].run / "config.yaml").exists()


@pytest.mark.slow
def test_two_machines_train_as_one_process_does(start: Start) -> None:
    one = start("alone", *STEPS).succeed().run
    machine = machine_of_two()
    agents = [start("two", *STEPS, size=2, torchrun=machine) for _ in range(2)]
    for agent in agents:
        agent.succeed()
    assert_same_training(one, agents[0].run, 2)


OPTIONS = {
    "R-Drop, guided alignment and moving average": (
        "tokenizer.kind=word", "training.guided_alignment=0.3", "training.r_drop=1", "training.ema_decay=0.9",
    ),
    "Muon": ("training.muon=true", "model.norm_first=false", "model.initial_std=0.02"),
    "BPE-dropout": ("tokenizer.kind=bpe", "tokenizer.max_size=300", "training.bpe_dropout=0.2"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_with_every_option_of_training(start: Start, options: tuple[str, ...]) -> None:
    one, two = (start(f"by-{size}", *STEPS, *options, size=size).succeed().run for size in (1, 2))
    assert_same_training(one, two, 2)


@pytest.mark.slow
def test_a_run_that_begins_from_another_one(start: Start) -> None:
    origin = start("origin", *STEPS).succeed().run
    options = (*STEPS, f"init_from.run={origin}", "training.freeze=encoder.*")
    one, two = (start(f"by-{size}", *options, size=size).succeed().run for size in (1, 2))
    assert_same_training(one, two, 2)


@pytest.mark.slow
def test_a_run_may_continue_with_any_number_of_processes(start: Start) -> None:
    whole = start("whole", *STEPS).succeed().run
    for steps, size in ((16, 2), (34, 4), (50, 1)):
        changing = start("changing", *STEPS, f"training.max_steps={steps}", size=size).succeed().run
        assert position(changing)["batch"] > 0, "it stopped between two epochs"
    assert_close(whole, changing)
    seen = pairs_of(*(steps_of(changing, size) for size in (2, 4, 1)))
    assert len(seen) == len(set(seen))
    assert sorted(seen) == sorted(pairs_of(steps_of(whole, 1)))


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_resuming_with_as_many_processes_is_exact_to_the_bit(start: Start, size: int) -> None:
    def run(name: str, steps: int) -> Path:
        more = (*STEPS, f"training.max_steps={steps}")
        return start(name, *more, size=size, float64=False).succeed().run

    whole = run("whole", 8)
    run("broken", 4)
    broken = run("broken", 8)
    ours, theirs = tensors(whole), tensors(broken)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
