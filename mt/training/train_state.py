"""What learns: the model with its loss, its optimizer, and all else that a checkpoint holds."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mt.checkpoint.record import DamagedError
from mt.checkpoint.training_state import EXP_AVG, EXP_AVG_SQ, WEIGHTS, SavedTraining
from mt.config.config import Config
from mt.training.loss import Objective
from mt.training.moving_average import MovingAverage
from mt.training.precision import Precision
from mt.training.saved_values import SavedValues
from mt.training.state import TrainingState
from mt.transformer.transformer import Transformer


@dataclass
class Trainee:
    """All that changes while a run learns, and so all that a checkpoint holds."""

    objective: Objective
    optimizer: torch.optim.Optimizer
    precision: Precision
    state: TrainingState
    average: MovingAverage | None
    """What is validated and saved as the model, where there is one."""

    def __post_init__(self) -> None:
        if self.average is not None:
            average = self.average
            self.optimizer.register_step_post_hook(lambda *_: average.update())

    def judged_weights(self) -> AbstractContextManager[None]:
        """For the length of a ``with`` the model has the weights that are validated and saved."""
        return nullcontext() if self.average is None else self.average.in_the_model()

    def training_state(self) -> SavedTraining:
        """Everything besides the weights that are saved as the model."""
        scaler = self.precision.scaler
        tensors: dict[str, Tensor] = {}
        num_updates = 0
        for name, parameter in self.objective.model.named_parameters():
            if moments := self.optimizer.state.get(parameter):
                tensors[EXP_AVG + name] = moments["exp_avg"]
                tensors[EXP_AVG_SQ + name] = moments["exp_avg_sq"]
                num_updates = int(moments["step"])
        average = None
        if self.average is not None:
            average = {"num_updates": self.average.num_updates}
            tensors |= {WEIGHTS + name: weight for name, weight in self.average.trained_weights().items()}
        values = {
            "state": self.state.to_dict(),
            "optimizer": {"num_updates": num_updates},
            "scaler": {"scale": scaler.get_scale(), "growth_tracker": scaler.state_dict()["_growth_tracker"]}
            if scaler.is_enabled()
            else None,
            "average": average,
        }
        return SavedTraining(values, tensors)

    def restore(self, weights: Mapping[str, Tensor], saved: SavedTraining, values: SavedValues) -> None:
        """Take up where `training_state` was taken; nothing is changed before all of it is verified.

        Args:
            weights: Those that were saved as the model.
            saved: What was taken.
            values: Its plain values.

        Raises:
            DamagedError: If the training state is not that of this model, optimizer and precision.
            ValueError: If the weights are not those of this model.
        """
        model = self.objective.model
        if saved.is_format_1:
            saved = saved.with_names(list(model.weights()))
        self._refuse_other_values(values)
        self._refuse_other_tensors(saved.tensors, has_moments=values.optimizer.num_updates > 0)
        if self.average is None or values.average is None:
            model.load_weights(weights)
        else:
            self.average.restore(values.average.num_updates, weights, saved.weights())
        self._restore_optimizer(saved.tensors, values.optimizer.num_updates)
        scaler = self.precision.scaler
        if values.scaler is not None:
            restored = {"scale": values.scaler.scale, "_growth_tracker": values.scaler.growth_tracker}
            scaler.load_state_dict(scaler.state_dict() | restored)

    def _refuse_other_values(self, values: SavedValues) -> None:
        for what, is_there, belongs_there in (
            ("the scale of fp16", values.scaler is not None, self.precision.scaler.is_enabled()),
            ("a moving average of the weights", values.average is not None, self.average is not None),
        ):
            if is_there != belongs_there:
                raise DamagedError(
                    f"its training state has {what}, and this run has none"
                    if is_there
                    else f"its training state lacks {what}"
                )

    def _refuse_other_tensors(self, tensors: Mapping[str, Tensor], *, has_moments: bool) -> None:
        """The kernels that update parameters look at no shape, and write past the end of a small tensor."""
        own = self.objective.model.weights()
        kinds = [*([EXP_AVG, EXP_AVG_SQ] if has_moments else []), *([WEIGHTS] if self.average else [])]
        expected = {kind + name: weight for kind in kinds for name, weight in own.items()}
        if tensors.keys() != expected.keys():
            missing = sorted(expected.keys() - tensors.keys())
            raise DamagedError(
                f"its training state lacks {missing[0]}"
                if missing
                else "its training state has tensors that belong to no parameter of this model"
            )
        for name, tensor in tensors.items():
            weight = expected[name]
            if tensor.shape != weight.shape or tensor.dtype != weight.dtype:
                raise DamagedError(
                    f"{name} in its training state is not as large, or not of the type, as its parameter"
                )
            # A square may overflow; a sum of squares is never negative, and NaN is neither.
            is_sound = tensor >= 0 if name.startswith(EXP_AVG_SQ) else tensor.isfinite()
            if not is_sound.all():
                raise DamagedError(f"{name} in its training state has values that training never gives it")

    def _restore_optimizer(self, tensors: Mapping[str, Tensor], num_updates: int) -> None:
        names = {parameter: name for name, parameter in self.objective.model.named_parameters()}
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        moments = {
            number: {
                "step": torch.tensor(float(num_updates)),
                "exp_avg": tensors[EXP_AVG + names[parameter]],
                "exp_avg_sq": tensors[EXP_AVG_SQ + names[parameter]],
            }
            for number, parameter in enumerate(parameters if num_updates else [])
        }
        # The groups are the optimizer's own: all that is in them comes from the config.
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})


def new_trainee(model: Transformer, config: Config, precision: Precision, state: TrainingState) -> Trainee:
    """This model, where it will stay, with everything else as the config has it."""
    training = config.training
    objective = Objective(model, guided_alignment=training.guided_alignment, r_drop=training.r_drop)
    decay = training.ema_decay
    average = None if decay is None else MovingAverage(model, decay)
    return Trainee(objective, _optimizer(model, config), precision, state, average)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """The matrices of linear layers, and all else, which is exempt from weight decay.

    Norms, biases and embeddings are exempt: pulled towards zero, a norm scales its layer down, and words too
    rare for a gradient to speak for them fade. An output matrix that is tied to an embedding is one.
    """
    embeddings = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
    matrices: list[nn.Parameter] = []
    exempt: list[nn.Parameter] = []
    for parameter in model.parameters():
        (matrices if parameter.dim() > 1 and parameter not in embeddings else exempt).append(parameter)
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": exempt, "weight_decay": 0.0},
    ]


def _optimizer(model: Transformer, config: Config) -> torch.optim.Optimizer:
    training = config.training
    # The fused kernel updates all parameters in one pass; the learning rate is set at each step.
    return torch.optim.AdamW(
        parameter_groups(model, training.weight_decay),
        lr=0.0,
        betas=(training.adam_beta1, training.adam_beta2),
        eps=training.adam_epsilon,
        fused=True,
    )
