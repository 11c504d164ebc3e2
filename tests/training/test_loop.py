"""When the loop steps, validates, saves and stops, told from outside by the calls that it makes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mt.config.config import Config
from mt.config.model import ModelConfig
from mt.data.batches.batch import Batch
from mt.data.batches.dataset import EncodedPairs, EncodedSentences
from mt.data.batches.stream import BatchStream
from mt.device import Precision
from mt.errors import Interrupted, TrainingError
from mt.evaluation.scores import Score
from mt.run_directory import RunDirectory
from mt.training.counters import Counters
from mt.training.interruption import Interruption
from mt.training.loop import train
from mt.training.loss import Objective
from mt.training.progress import Progress
from mt.training.schedule import learning_rate
from mt.training.session import Session
from mt.training.step import StepResult
from mt.training.train_state import TrainState
from mt.training.validation import ValidationResult
from mt.transformer.build import build_transformer

MakeConfig = Callable[..., Config]


@dataclass
class Bench:
    """A tiny model on six pairs, two a step, with callbacks that take notes."""

    folder: Path
    config: Config
    state: Counters = field(default_factory=Counters)
    bleu: Iterator[float] = field(default_factory=lambda: repeat(1.0))
    stop_at: int | None = None
    validated: list[int] = field(default_factory=list)
    saved: list[tuple[int, dict[str, float], bool]] = field(default_factory=list)
    seen: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        model = build_transformer(
            ModelConfig(d_model=8, num_heads=2, d_ff=8, num_encoder_layers=1, num_decoder_layers=1),
            src_vocab_size=9,
            tgt_vocab_size=9,
            max_length=8,
        )
        self.objective = Objective(model)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=0.0)

    def run(self) -> str | None:
        ids = np.arange(4, 10, dtype=np.int32).repeat(2) % 5 + 4
        sentences = EncodedSentences.of(ids.reshape(6, 2).tolist())
        stream = BatchStream(EncodedPairs(sentences, sentences), batch_tokens=6, num_micro_batches=1, seed=1)
        take = stream.take

        def noted(epoch: int, batch: int, **which: int) -> object:
            self.seen.append((epoch, batch))
            return take(epoch, batch, **which)

        stream.take = noted  # type: ignore[method-assign, assignment]
        run = RunDirectory(self.folder)
        with Progress(run, counters=self.state, total_steps=None, metric="bleu") as progress:
            train_state = TrainState(
                self.objective,
                self.optimizer,
                Precision("float32", torch.device("cpu")),
                partial(learning_rate, config=self.config.schedule, d_model=self.config.model.d_model),
                self.config.training.label_smoothing,
                self.config.training.clip_norm,
                counters=self.state,
            )
            return train(train_state, stream, NotingSession(self, progress))


class NotingSession(Session):
    """Validates and saves nothing, but takes notes."""

    def __init__(self, bench: Bench, progress: Progress) -> None:
        self.config, self.progress = bench.config, progress
        self.interruption = StopAt(bench)
        self._bench = bench
        self._saved_step = bench.state.step

    def validate(self, train_state: TrainState) -> ValidationResult:
        self._bench.validated.append(train_state.counters.step)
        value = next(self._bench.bleu)
        return ValidationResult(1.0, {"bleu": Score("BLEU", value, ""), "chrf": Score("chrF2", 0.0, "")}, [])

    def show(self, counters: Counters, result: ValidationResult) -> None:
        pass

    def save(self, train_state: TrainState, figures: dict[str, float], *, is_best: bool) -> None:
        self._saved_step = train_state.counters.step
        self._bench.saved.append((self._saved_step, figures, is_best))

    def save_new_steps(self, train_state: TrainState, figures: dict[str, float]) -> None:
        if train_state.counters.step != self._saved_step:
            self.save(train_state, figures, is_best=False)

    def keep_bad_batch(self, step: int, micro_batches: Sequence[Batch], result: StepResult) -> None:
        pass


class StopAt(Interruption):
    """Interrupts the bench at its step."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self._bench = bench

    def check(self) -> None:
        if self._bench.state.step == self._bench.stop_at:
            raise Interrupted


@pytest.fixture
def bench(make_config: MakeConfig, tmp_path: Path) -> Callable[..., Bench]:
    def make(*overrides: str) -> Bench:
        return Bench(
            tmp_path, make_config("validation.every_steps=3", "checkpoint.every_steps=2", *overrides)
        )

    return make


def test_each_at_its_interval_and_all_at_the_end(bench: Callable[..., Bench]) -> None:
    it = bench("training.max_steps=7")
    it.bleu = chain([5, 4, 6])
    assert it.run() == "training.max_steps (7) reached"
    assert it.validated == [3, 6, 7]
    assert [(step, best) for step, _, best in it.saved] == [
        (2, False),
        (3, True),  # Out of turn, because it is the best.
        (4, False),
        (6, False),
        (7, True),
    ]
    figures = {step: figures.get("bleu") for step, figures, _ in it.saved}
    assert figures == {2: None, 3: 5, 4: None, 6: 4, 7: 6}
    # Six pairs, three batches an epoch: each batch once, in every epoch.
    assert it.seen == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0)]
    assert (it.state.epoch, it.state.batch) == (2, 1)


def test_a_last_step_at_its_interval_is_validated_once(bench: Callable[..., Bench]) -> None:
    it = bench("training.max_steps=6")
    it.run()
    assert it.validated == [3, 6]
    assert [step for step, _, _ in it.saved] == [2, 3, 4, 6]


@pytest.mark.parametrize(("step", "saved"), [(5, [2, 3, 4, 5]), (4, [2, 3, 4])])
def test_an_interruption_saves_what_is_not_saved_yet(
    step: int, saved: list[int], bench: Callable[..., Bench]
) -> None:
    it = bench("training.max_steps=9")
    it.stop_at = step
    assert it.run() is None
    assert it.state.step == step
    assert [step for step, _, _ in it.saved] == saved
    assert it.validated == [3]
    # Asked again before it could do a step, it saves nothing.
    assert it.run() is None
    assert [step for step, _, _ in it.saved] == saved


def test_an_interruption_before_the_first_step_saves_nothing(bench: Callable[..., Bench]) -> None:
    it = bench()
    it.stop_at = 0
    assert it.run() is None
    assert (it.saved, it.seen) == ([], [])


def test_patience_ends_the_run_and_saves_it(bench: Callable[..., Bench]) -> None:
    it = bench("training.max_steps=null", "validation.patience=2", "checkpoint.every_steps=100")
    it.bleu = chain([1, 2, 2, 1.5])  # As good as the best is no gain.
    assert it.run() == "no improvement in 2 validations (validation.patience)"
    assert [(step, best) for step, _, best in it.saved] == [(3, True), (6, True), (12, False)]


@pytest.mark.parametrize("first", [0, 6, 9])
def test_the_end_of_the_cosine_is_reported_once_if_training_continues(
    first: int, bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    cosine = "schedule.kind=cosine", "schedule.total_steps=6", "training.max_steps=null"
    it = bench(*cosine, "training.max_epochs=4")
    it.state.step, it.state.epoch = first, first // 3
    it.run()
    assert it.state.step == 12
    message = "the cosine schedule has reached zero at schedule.total_steps (6): the model learns nothing in"
    assert caplog.text.count(message) == 1
    caplog.clear()
    ended = bench(*cosine, "training.max_epochs=2")
    ended.run()
    assert ended.state.step == 6
    assert "cosine" not in caplog.text


def test_each_step_has_the_learning_rate_of_the_schedule(bench: Callable[..., Bench]) -> None:
    it = bench("schedule.kind=noam", "schedule.warmup_steps=3", "training.max_steps=6")
    rates: list[float] = []
    it.optimizer.register_step_pre_hook(lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"]))
    it.run()
    # Section 5.3, equation 3, the first step being step 1; d_model is the config's 16.
    assert rates == pytest.approx([16**-0.5 * min(step**-0.5, step * 3**-1.5) for step in range(1, 7)])


def test_the_time_of_a_run_is_that_of_its_steps_and_validations_in_all_sessions(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def let_take(seconds: float, owner: type, name: str) -> None:
        function = getattr(owner, name)

        def slow(*arguments: Any, **named: Any) -> Any:
            nonlocal now
            now += seconds
            return function(*arguments, **named)

        monkeypatch.setattr(owner, name, slow)

    monkeypatch.setattr("time.perf_counter", lambda: now)
    let_take(2.0, TrainState, "launch")
    let_take(30.0, NotingSession, "validate")
    let_take(500.0, NotingSession, "save")
    it = bench("training.max_steps=7")
    it.state.seconds = 100.0
    it.run()
    assert it.validated == [3, 6, 7]
    # Saving does not count.
    assert it.state.seconds == pytest.approx(100.0 + 7 * 2.0 + 3 * 30.0)


def spoil_gradients(it: Bench, factor: float) -> None:
    parameter = next(it.objective.parameters())
    parameter.register_hook(lambda gradient: gradient * factor)  # type: ignore[no-untyped-call]


def test_a_step_that_is_not_finite_changes_nothing(bench: Callable[..., Bench]) -> None:
    it = bench("training.max_steps=1")
    before = [parameter.clone() for parameter in it.objective.parameters()]
    spoil_gradients(it, torch.inf)
    it.run()
    assert it.state.num_skipped_steps == 1
    assert all(map(torch.equal, before, it.objective.parameters()))
    assert not it.optimizer.state


def test_too_many_in_a_row_are_an_error(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    it = bench("training.max_skipped_steps=4", "validation.every_steps=100")
    spoil_gradients(it, torch.nan)
    with pytest.raises(TrainingError, match=r"in 4 steps in a row, the last at step 4\. Try a lower"):
        it.run()
    assert caplog.text.count("skipped") == 4
    assert [step for step, _, _ in it.saved] == [2]
