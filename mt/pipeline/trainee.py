"""What learns: the model with its loss, its optimizer, and all else that a checkpoint holds."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from mt.config.config import Config
from mt.training.moving_average import MovingAverage
from mt.training.objective import Objective
from mt.training.precision import Precision
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

    def training_state(self) -> dict[str, object]:
        """Everything besides the weights that are saved as the model, as tensors and plain types."""
        average = {} if self.average is None else {"average": self.average.state_dict()}
        return average | {
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.precision.scaler.state_dict(),
            "state": self.state.to_dict(),
        }

    def restore(self, weights: dict[str, torch.Tensor], saved: dict[str, Any]) -> None:
        """Take up where `training_state` was taken."""
        if self.average is None:
            self.objective.model.load_weights(weights)
        else:
            self.average.load_state_dict(saved["average"], weights)
        self.optimizer.load_state_dict(saved["optimizer"])
        self.precision.scaler.load_state_dict(saved["scaler"])


def new_trainee(model: Transformer, config: Config, precision: Precision, state: TrainingState) -> Trainee:
    """This model, where it will stay, with everything else as the config has it."""
    training = config.training
    objective = Objective(model, guided_alignment=training.guided_alignment, r_drop=training.r_drop)
    decay = training.ema_decay
    average = None if decay is None else MovingAverage(model, decay)
    return Trainee(objective, _optimizer(model, config), precision, state, average)


def _optimizer(model: Transformer, config: Config) -> torch.optim.Optimizer:
    training = config.training
    # The fused kernel updates all parameters in one pass; the learning rate is set at each step.
    return torch.optim.AdamW(
        model.parameters(),
        lr=0.0,
        betas=(training.adam_beta1, training.adam_beta2),
        eps=training.adam_epsilon,
        weight_decay=training.weight_decay,
        fused=True,
    )
