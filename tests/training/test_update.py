"""The file that teaches a step is what training executes: each of its statements counts."""

import ast
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch

from mt.device import Precision
from mt.training import step, train_state, update
from tests.fixture_types import MakeBatches, MakeObjective
from tests.training.steps import Spoilt, new_state, take_step

SOURCE = Path(update.__file__).read_text(encoding="utf-8")


def simple_statements(tree: ast.AST) -> Iterator[ast.stmt]:
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            _, *body = function.body  # The first is the docstring.
            for statement in body:
                yield from (node for node in ast.walk(statement) if isinstance(node, ast.stmt))


STATEMENTS = [ast.unparse(node).splitlines()[0] for node in simple_statements(ast.parse(SOURCE))]


def without(number: int) -> str:
    """The module without one of its statements; of one with a body, only the body is left."""
    tree = ast.parse(SOURCE)
    left_out = list(simple_statements(tree))[number]
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and left_out in body:
            body[body.index(left_out) : body.index(left_out) + 1] = getattr(left_out, "body", [ast.Pass()])
    return ast.unparse(ast.fix_missing_locations(tree))


class Noting(Precision):
    """Counts how often the loss is computed in its precision."""

    num_autocasts = 0

    def autocast(self) -> AbstractContextManager[Any]:
        self.num_autocasts += 1
        return super().autocast()


def train(make_objective: MakeObjective, make_batches: MakeBatches) -> list[object]:
    """What three steps have done, of which the second has a loss that is not finite."""
    torch.manual_seed(1)
    objective = Spoilt(make_objective().model)
    state = new_state(objective, scale=64.0, clip_norm=0.5, learning_rate=lambda n: 0.01 / n)
    precision = Noting("float32", torch.device("cpu"))
    precision.scaler, state.precision = state.precision.scaler, precision
    seen: list[object] = []
    for added in (0.0, math.nan, 0.0):
        objective.added = added
        result = take_step(state, make_batches([3, 4]))
        seen += [result.updated, result.updated and result.loss, result.gradient_norm]
    weights = [weight.tolist() for weight in objective.model.weights().values()]
    return [*seen, precision.num_autocasts, *weights]


@pytest.mark.parametrize("number", range(len(STATEMENTS)), ids=STATEMENTS)
def test_training_is_another_without_it(
    number: int, make_objective: MakeObjective, make_batches: MakeBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = train(make_objective, make_batches)
    changed: dict[str, Any] = {}
    exec(without(number), changed)
    monkeypatch.setattr(step, "add_gradients", changed["add_gradients"])
    monkeypatch.setattr(train_state, "update_weights", changed["update_weights"])
    try:
        found = train(make_objective, make_batches)
    except (NameError, AttributeError, RuntimeError, TypeError, AssertionError):
        return  # What other statements need is missing.
    assert found != expected
