"""The state of training: the model, its optimizer, and everything else in a checkpoint."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial

import torch
from torch import Tensor, nn

from mt import distributed, processes
from mt.checkpoint.record import DamagedError
from mt.checkpoint.training_state import EXP_AVG, EXP_AVG_SQ, MOMENTUM, WEIGHTS, SavedTraining
from mt.config.config import Config
from mt.config.training import TrainingConfig
from mt.data.batches.batch import Batch
from mt.data.batches.stream import Position, StepBatches
from mt.device import DeferredRead, Precision
from mt.training.counters import Counters, SavedValues
from mt.training.loss import Objective
from mt.training.moving_average import MovingAverage
from mt.training.optimizers import Muon, make_optimizers
from mt.training.schedule import learning_rate
from mt.training.step import LaunchedStep, StepResult, accumulate_gradients
from mt.training.update import update_weights
from mt.transformer.transformer import Transformer
from mt.transformer.weights import load_weights


@dataclass
class TrainState:
    """Everything that changes while a model is trained, and therefore everything in a checkpoint."""

    objective: Objective
    """The model with its loss, on the device to compute on."""
    optimizers: list[torch.optim.Optimizer]
    """AdamW, and perhaps Muon, which then updates the matrices of the layers."""
    precision: Precision
    learning_rate: Callable[[int], float]
    """That of each optimizer step, counted from 1."""
    training: TrainingConfig
    average: MovingAverage | None = None
    """The moving average; if there is one, it is validated and saved as the model."""
    counters: Counters = field(default_factory=Counters)
    stop_requested: Callable[[], bool] = lambda: False
    """Whether this process was asked to stop."""

    def __post_init__(self) -> None:
        self._unread: LaunchedStep | None = None
        self._wrapped = distributed.data_parallel(self.objective)
        if (average := self.average) is not None:
            self.optimizers[-1].register_step_post_hook(
                lambda optimizer, *_: average.update(getattr(optimizer, "found_inf", None))
            )

    @property
    def position(self) -> Position:
        """Where the batches of the next step are."""
        return self.counters.epoch, self.counters.batch

    def step(self, batches: StepBatches) -> StepResult | None:
        """Train on these batches; return the newest result that `last_result` has not returned.

        If the device skips updates, it is that of the step before: the device is busy while the host waits.
        """
        before, self._unread = self._unread, self.launch(batches)
        if not self.precision.skips_on_device:
            return self.last_result()
        return None if before is None else self.finish(before)

    def last_result(self) -> StepResult | None:
        """Wait for the newest step; None if its result was returned already."""
        step, self._unread = self._unread, None
        return None if step is None else self.finish(step)

    def launch(self, batches: StepBatches) -> LaunchedStep:
        """Accumulate the gradients, update the parameters once if all is finite, and count the step.

        The loss of all processes is exchanged first, because it decides with the norm whether to update. The
        scale of fp16 is read before the scaler, which has seen the gradient, changes it. If the device skips
        updates, nothing here waits for the device.
        """
        counters, precision = self.counters, self.precision
        own_loss = self._accumulate(batches.micro_batches, batches.num_target_tokens)
        # One exchange for everything that the processes must know about each other.
        stop = torch.full_like(own_loss, self.stop_requested())
        loss, num_stops = distributed.all_reduce(torch.stack((own_loss, stop)))
        rate = self.learning_rate(counters.step + 1)
        for optimizer in self.optimizers:
            if isinstance(optimizer, Muon):
                optimizer.turn = counters.step
        norm = update_weights(
            self.optimizers,
            loss,
            learning_rate=rate,
            clip_norm=self.training.clip_norm,
            precision=precision,
        )
        # One transfer for everything that the host must know.
        scale = precision.scale(own_loss)
        metrics = DeferredRead(torch.stack((loss, num_stops, norm.to(loss.device), scale.to(loss.device))))
        # The scaler has checked the gradient itself, and lowers its scale if it was not finite.
        precision.scaler.update()
        counters.epoch, counters.batch = batches.next_position
        counters.step += 1
        counters.num_target_tokens += batches.num_target_tokens
        return LaunchedStep(batches=batches, learning_rate=rate, counters=replace(counters), metrics=metrics)

    def finish(self, step: LaunchedStep) -> StepResult:
        """Wait for the metrics of a step, and count its loss. Steps must be finished in order."""
        total_loss, num_stops, norm, scale = step.metrics.wait()
        loss = total_loss / processes.SIZE
        updated = math.isfinite(total_loss) and math.isfinite(norm)
        # At a scale of 1 or less, the scale cannot be the reason.
        scale_too_large = not updated and math.isfinite(loss) and scale > 1
        counters, then = self.counters, step.counters
        counters.record_outcome(
            loss, step.batches.num_target_tokens, updated=updated, scale_too_large=scale_too_large
        )
        now = replace(counters, step=then.step, epoch=then.epoch, num_target_tokens=then.num_target_tokens)
        return StepResult(
            **vars(step) | {"counters": now},
            loss=loss,
            gradient_norm=norm,
            updated=updated,
            scale_too_large=scale_too_large,
            stop_requested=num_stops > 0,
            point=counters.next_point() if then.step % self.training.log_every_steps == 0 else None,
        )

    def try_out(self, batch: Batch) -> None:
        """Discard the gradient of a batch: it shows whether it fits, and fixes the order of later sums."""
        self._accumulate([batch], batch.num_target_tokens)
        self.objective.zero_grad()

    def _accumulate(self, micro_batches: Sequence[Batch], num_target_tokens: int) -> Tensor:
        self.objective.train()
        loss, self.counters.positions_too_large = accumulate_gradients(
            self._wrapped,
            micro_batches,
            num_target_tokens,
            self.precision,
            self.training.label_smoothing,
            self.counters.positions_too_large,
        )
        return loss

    def evaluation_weights(self) -> AbstractContextManager[None]:
        """Inside the ``with`` block the model has the weights that are validated and saved."""
        return nullcontext() if self.average is None else self.average.in_the_model()

    def save(self) -> SavedTraining:
        """Everything besides the weights that are saved as the model."""
        scaler, of_adamw = self.precision.scaler, self.optimizers[0].state.values()
        num_updates = int(max((state["step"] for state in of_adamw), default=0))
        # A device that has skipped all updates so far has no moments.
        moments = self._moments() if num_updates else ()
        tensors = {name: optimizer.state[parameter][key] for name, optimizer, parameter, key in moments}
        if self.average is not None:
            tensors |= {WEIGHTS + name: weight for name, weight in self.average.trained_weights().items()}
        values = {
            "state": asdict(self.counters),
            "optimizer": {"num_updates": num_updates},
            "scaler": {"scale": scaler.get_scale(), "growth_tracker": scaler.state_dict()["_growth_tracker"]}
            if scaler.is_enabled()
            else None,
            "average": {"num_updates": int(self.average.num_updates)} if self.average else None,
        }
        return SavedTraining(values, tensors)

    def restore(self, weights: Mapping[str, Tensor], saved: SavedTraining, values: SavedValues) -> None:
        """Continue from the result of `save`; nothing is changed before all of it is verified."""
        num_updates, scaler = values.optimizer.num_updates, self.precision.scaler
        self._check(saved.tensors, values)
        if self.average is None or values.average is None:
            load_weights(self.objective.model, weights)
        else:
            self.average.restore(values.average.num_updates, weights, saved.weights())
        for name, optimizer, parameter, key in self._moments() if num_updates else ():
            optimizer.state[parameter][key] = saved.tensors[name].to(parameter.device)
            if not isinstance(optimizer, Muon):
                step = torch.tensor(num_updates, dtype=torch.float32, device=parameter.device)
                optimizer.state[parameter]["step"] = step
        if values.scaler is not None:
            restored = {"scale": values.scaler.scale, "_growth_tracker": values.scaler.growth_tracker}
            scaler.load_state_dict(scaler.state_dict() | restored)
        self.counters = values.counters

    def _check(self, tensors: Mapping[str, Tensor], values: SavedValues) -> None:
        """Check that names, shapes and values fit: the fused AdamW would write past the end of a tensor."""
        expected: dict[str, Tensor] = {}
        if values.optimizer.num_updates:
            expected = {name: parameter for name, _, parameter, _ in self._moments()}
        if self.average is not None:
            expected |= {WEIGHTS + name: weight for name, weight in self.objective.model.weights().items()}
        wrong = expected.keys() ^ tensors.keys()
        if (values.average is None) != (self.average is None):
            wrong |= {"average"}
        if (values.scaler is None) == self.precision.scaler.is_enabled():
            wrong |= {"scaler"}
        for name, tensor in tensors.items() if not wrong else ():
            # A square may overflow to infinity, but is neither negative nor NaN.
            is_sound = tensor >= 0 if name.startswith(EXP_AVG_SQ) else tensor.isfinite()
            fits = (tensor.shape, tensor.dtype) == (expected[name].shape, expected[name].dtype)
            if not fits or not is_sound.all():
                wrong |= {name}
        if wrong:
            raise DamagedError(
                f"its training state does not fit this run: {min(wrong)} is missing, too many or wrong"
            )

    def _moments(self) -> Iterator[tuple[str, torch.optim.Optimizer, nn.Parameter, str]]:
        """Each moment: its name in a checkpoint, its optimizer, its parameter, and its name there."""
        names = {parameter: name for name, parameter in self.objective.model.named_parameters()}
        of_adamw = {"exp_avg": EXP_AVG, "exp_avg_sq": EXP_AVG_SQ}
        for optimizer in self.optimizers:
            keys = {"momentum_buffer": MOMENTUM} if isinstance(optimizer, Muon) else of_adamw
            for parameter in (parameter for group in optimizer.param_groups for parameter in group["params"]):
                for key, prefix in keys.items():
                    yield prefix + names[parameter], optimizer, parameter, key


def learning_rates(config: Config) -> Callable[[int], float]:
    """The learning rate of each step of a run."""
    return partial(learning_rate, config=config.schedule, d_model=config.model.d_model)


def new_train_state(
    model: Transformer,
    config: Config,
    precision: Precision,
    stop_requested: Callable[[], bool] = lambda: False,
) -> TrainState:
    """The state before the first step or before it is restored, for a model on its device."""
    training = config.training
    return TrainState(
        Objective(
            model,
            guided_alignment=training.guided_alignment,
            r_drop=training.r_drop,
            softmax_interval=training.softmax_interval,
        ),
        make_optimizers(model, training, precision),
        precision,
        learning_rates(config),
        training,
        None if training.ema_decay is None else MovingAverage(model, training.ema_decay),
        stop_requested=stop_requested,
    )
