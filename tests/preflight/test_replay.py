"""A batch that went wrong is kept, can be read back as nothing else can, and tells where it went wrong."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import mt.preflight.replay
import mt.training.run
from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.data.batches.batch import Batch, collate
from mt.device import Precision
from mt.errors import DataError
from mt.inference.loaded_model import load_model
from mt.preflight.replay import replay
from mt.run_directory import RunDirectory
from mt.special_tokens import PAD_ID
from mt.training.bad_batches import read_bad_batch
from mt.training.loss import Objective
from mt.training.run import run_training
from mt.transformer.feed_forward import FeedForward

MakeConfig = Callable[..., Config]
CPU = torch.device("cpu")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "run")


def spoil(monkeypatch: pytest.MonkeyPatch, calls: set[int]) -> list[Batch]:
    """Makes these forward passes of training give NaN, and notes the batches of all."""
    forward = Objective.forward
    seen: list[Batch] = []

    def sometimes_nan(self: Objective, batch: Batch, smoothing: float) -> torch.Tensor:
        loss = forward(self, batch, smoothing)
        if not self.training:
            return loss
        seen.append(batch)
        return loss * math.nan if len(seen) in calls else loss

    monkeypatch.setattr(Objective, "forward", sometimes_nan)
    return seen


@pytest.fixture(scope="module")
def spoilt(
    make_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RunDirectory, list[Batch]]:
    """Trains twelve steps, of which the second micro-batch of step 7 goes wrong."""
    run = RunDirectory(tmp_path_factory.mktemp("spoilt") / "run")
    with pytest.MonkeyPatch.context() as patch:
        seen = spoil(patch, {14})
        run_training(make_config(), run)
    return run, seen


@pytest.fixture
def kept(spoilt: tuple[RunDirectory, list[Batch]], run: RunDirectory) -> list[Batch]:
    """That run, and the two micro-batches of that step."""
    shutil.copytree(spoilt[0].path, run.path)
    return spoilt[1][12:14]


def test_what_was_in_the_step_is_kept(
    kept: list[Batch], run: RunDirectory, spoilt: tuple[RunDirectory, list[Batch]]
) -> None:
    (file,) = (run.path / "bad_batches").iterdir()
    content = json.loads(file.read_text(), parse_constant=pytest.fail)  # NaN is no JSON.
    assert (content["step"], file.name) == (7, "step_0000007.json")
    assert (content["loss"], content["gradient_norm"]) == ("nan", "nan")
    # Of each third step and of the best there is a checkpoint.
    assert content["after_checkpoint"] == "step_0000006"
    for batch, pairs in zip(kept, content["micro_batches"], strict=True):
        for side, ids in (("src_ids", batch.src_ids), ("tgt_ids", batch.labels)):
            assert [row[: len(row)] for row in pairs[side]] == [
                row[row != PAD_ID][:-1].tolist() for row in ids
            ]
    logged = (run.path / "train.log").read_text(encoding="utf-8").splitlines()
    assert [line.partition(" WARNING ")[2] for line in logged if " WARNING " in line][-2:] == [
        "step 7 skipped: the gradient norm is nan, the loss is nan",
        f"the batch of step 7 is saved in {spoilt[0].path / 'bad_batches' / file.name} and can be examined",
    ]


def test_the_weights_are_those_before_the_step_and_not_their_average(
    make_config: MakeConfig, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, {14})
    run_training(make_config("training.ema_decay=0.9", "checkpoint.keep=9"), run)
    (file,) = (run.path / "bad_batches").iterdir()
    result = replay(run, file, checkpoint=None, device=CPU)
    assert result.checkpoint == "step_0000006"
    store, trained = CheckpointStore(run.checkpoints_dir), load_model(run, "step_0000006")
    own_weights = store.load_training_state(store.require("step_0000006")).weights()
    losses = []
    for weights in (trained.model.weights(), own_weights):
        trained.model.load_weights(weights)
        objective = Objective(trained.model).eval()
        batches = [collate(pairs.src_ids, pairs.tgt_ids) for pairs in result.bad.micro_batches]
        total = sum(float(objective(batch, 0.1).detach()) for batch in batches)
        losses.append(total / sum(batch.num_target_tokens for batch in batches))
    averaged, own = losses
    assert result.loss == pytest.approx(own, rel=1e-5)
    assert abs(own - averaged) > 1e-3
    shutil.rmtree(run.checkpoints_dir / "step_0000006")
    assert replay(run, file, checkpoint=None, device=CPU).checkpoint == "step_0000012"


def test_the_replay_computes_the_batch(kept: list[Batch], run: RunDirectory) -> None:
    (file,) = (run.path / "bad_batches").iterdir()
    result = replay(run, file, checkpoint="step_0000012", device=CPU)
    trained = load_model(run, "step_0000012")
    model = trained.model.eval()
    total, tokens = torch.zeros(()), 0
    for batch in kept:
        logits = model(batch.src_ids, batch.src_mask, batch.tgt_ids, batch.tgt_mask).flatten(0, 1)
        total = total + F.cross_entropy(
            logits, batch.labels.flatten(), label_smoothing=0.1, ignore_index=PAD_ID, reduction="sum"
        )
        tokens += batch.num_target_tokens
    loss = total / tokens
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    assert result.is_sound
    assert result.checkpoint == "step_0000012"
    assert result.loss == pytest.approx(float(loss.detach()), rel=1e-5)
    norm = math.sqrt(sum(float(gradient.double().square().sum()) for gradient in gradients))
    assert result.gradient_norm == pytest.approx(norm, rel=1e-5)
    assert result.not_finite == {}
    # The pairs, as text, the worst first.
    assert len(result.pairs) == sum(len(batch.labels) for batch in kept)
    losses = [pair.loss for pair in result.pairs]
    assert losses == sorted(losses, reverse=True)
    texts = {(pair.src, pair.tgt) for pair in result.pairs}
    tokenizers = trained.src_tokenizer, trained.tgt_tokenizer
    row = [side[0] for side in kept[0].sentences()]
    assert tuple(t.decode(ids) for t, ids in zip(tokenizers, row, strict=True)) in texts


class Break(torch.autograd.Function):
    """The identity, whose gradient is NaN."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * math.nan


def test_the_first_value_that_is_not_finite_is_named(
    kept: list[Batch], run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = (run.path / "bad_batches").iterdir()
    forward = FeedForward.forward
    monkeypatch.setattr(FeedForward, "forward", lambda self, x: forward(self, x) * math.inf)
    result = replay(run, file, checkpoint="latest", device=CPU)
    assert not result.is_sound
    # The encoder has one layer, and its feed-forward comes before the decoder's.
    assert result.not_finite["output"].startswith("encoder.layers.0.feed_forward")
    assert "weight" not in result.not_finite

    monkeypatch.setattr(FeedForward, "forward", lambda self, x: Break.apply(forward(self, x)))  # type: ignore[no-untyped-call]
    result = replay(run, file, checkpoint="latest", device=CPU)
    assert math.isfinite(result.loss)
    assert not result.is_sound
    # Backward, the decoder comes first.
    assert result.not_finite.keys() == {"gradient"}
    assert result.not_finite["gradient"].startswith("decoder.layers.0.feed_forward")

    trained = load_model(run, "latest")
    name, parameter = next(trained.model.decoder.named_parameters())
    parameter.data.fill_(math.nan)
    monkeypatch.setattr(mt.preflight.replay, "load_model", lambda *_: trained)
    assert replay(run, file, checkpoint="latest", device=CPU).not_finite["weight"] == f"decoder.{name}"


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["micro_batches"][0]["src_ids"][0].append(10**6),
        lambda content: content["micro_batches"][0]["tgt_ids"][0].append(-1),
        lambda content: content["micro_batches"][0]["src_ids"].pop(),
        lambda content: content["micro_batches"][0].update(src_ids=[], tgt_ids=[]),
        lambda content: content["micro_batches"][0]["src_ids"][0].extend([5] * 99),
        lambda content: content["micro_batches"][0]["src_ids"][0].append(5.5),
        lambda content: content["micro_batches"][0]["src_ids"][0].append("5"),
        lambda content: content["micro_batches"].clear(),
        lambda content: content.pop("step"),
        lambda content: content.update(micro_batches=[[[5]]]),
    ],
)
def test_a_file_that_is_not_what_was_kept_is_refused(
    change: Callable[[dict[str, Any]], object], kept: list[Batch], run: RunDirectory
) -> None:
    (file,) = (run.path / "bad_batches").iterdir()
    content = json.loads(file.read_text())
    replay(run, file, checkpoint="latest", device=CPU)
    change(content)
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"does not belong to this run|not a batch saved by training"):
        replay(run, file, checkpoint="latest", device=CPU)


def test_other_files_are_refused(run: RunDirectory, tmp_path: Path) -> None:
    for text in (b"", b"[]", b"{" * 100_000, b"\xff\xfe"):
        (tmp_path / "file").write_bytes(text)
        with pytest.raises(DataError, match="not a batch saved by training"):
            read_bad_batch(tmp_path / "file")
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_bad_batch(tmp_path / "nothing")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(DataError, match="it is larger than 50,000,000 bytes"):
        read_bad_batch(tmp_path / "huge")


def test_a_scale_of_fp16_that_falls_is_not_a_bad_batch(
    make_config: MakeConfig, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scaled(name: Any, device: torch.device, *, tf32: bool) -> Precision:
        precision = Precision("float32", device, tf32=tf32)
        # The loss is still a number, its gradient is not any more, and so it takes some steps.
        precision.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126)
        return precision

    monkeypatch.setattr(mt.training.run, "Precision", scaled)
    forward = Objective.forward
    monkeypatch.setattr(Objective, "forward", lambda self, *a: forward(self, *a) * 50)
    outcome = run_training(make_config("training.max_skipped_steps=1"), run)
    state = outcome.counters
    assert state.step == 12
    assert 1 < state.num_scaler_skips < 12
    assert (state.num_skipped_steps, state.num_skipped_in_a_row) == (0, 0)
    assert not (run.path / "bad_batches").exists()
