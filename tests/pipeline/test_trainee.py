"""Optimizer and objective as the config has them."""

from collections.abc import Callable

import torch

from mt.config.config import Config
from mt.pipeline.trainee import new_trainee
from mt.training.precision import Precision
from mt.training.state import TrainingState
from mt.transformer.build import build_transformer


def test_weight_decay_takes_off_a_share_beside_adams_step(make_config: Callable[..., Config]) -> None:
    """Loshchilov and Hutter 2019, algorithm 2: the decay is no part of the gradient."""
    config = make_config()
    config = config.model_copy(update={"training": config.training.model_copy(update={"weight_decay": 0.1})})
    model = build_transformer(config.model, src_vocab_size=9, tgt_vocab_size=9, max_length=8)
    trainee = new_trainee(model, config, Precision("float32", torch.device("cpu")), TrainingState())
    before = {name: weight.clone() for name, weight in model.weights().items()}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    (group,) = trainee.optimizer.param_groups
    group["lr"] = 0.01
    trainee.optimizer.step()
    for name, weight in model.weights().items():
        # The first step of Adam is the learning rate, in the direction of the gradient.
        expected = before[name] * (1 - 0.01 * 0.1) - 0.01
        torch.testing.assert_close(weight, expected)


def test_the_weights_of_the_losses_reach_the_objective(make_config: Callable[..., Config]) -> None:
    config = make_config("training.r_drop=5", "training.guided_alignment=0.3")
    model = build_transformer(config.model, src_vocab_size=9, tgt_vocab_size=9, max_length=8)
    objective = new_trainee(
        model, config, Precision("float32", torch.device("cpu")), TrainingState()
    ).objective
    assert (objective.r_drop, objective.guided_alignment) == (5.0, 0.3)
