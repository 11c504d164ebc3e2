"""Validation against ``F.cross_entropy`` and sacreBLEU."""

import math
from collections.abc import Callable, Mapping, Sequence

import pytest
import sacrebleu
import torch
from datasets import Dataset
from torch.nn import functional as F

from mt.data.batches.batch import Batch
from mt.data.corpus import NamedSet
from mt.data.text_form import TextForm
from mt.device import Precision
from mt.sides import Sides
from mt.training.loss import Objective
from mt.training.validation import ValidationResult, validate
from tests.fixture_types import MakeBatches, MakeObjective
from tests.training.steps import parameters

SOURCES = ["ein Hund .", "eine Katze schläft hier ."]
REFERENCES = ["a dog .", "a cat is sleeping here ."]
# As the web has them; they are scored in the form of the training text.
WITH_SOFT_HYPHENS = ["a do\u00adg .", "a cat is slee\u00adping here ."]
HYPOTHESES = ["a dog .", "a cat sleeps here ."]


def named_set(sources: Sequence[str], references: Sequence[str], tgt: str = "en") -> NamedSet:
    return NamedSet(Dataset.from_dict({"src": sources, "tgt": references}), Sides("de", tgt))


def run(
    objective: Objective,
    batches: Sequence[Batch],
    translate: Callable[[Sequence[str], Sides[str]], list[str]] = lambda sources, direction: HYPOTHESES,
    others: Mapping[str, NamedSet] | None = None,
) -> ValidationResult:
    return validate(
        objective,
        batches,
        Precision("float32", torch.device("cpu")),
        translate=translate,
        sets={"own": named_set(SOURCES, WITH_SOFT_HYPHENS), **(others or {})},
        form=TextForm(invisible="drop"),
    )


def loss_by_hand(objective: Objective, pairs: list[tuple[list[int], list[int]]]) -> float:
    """One sentence at a time, so without any padding."""
    total, num_tokens = 0.0, 0
    for src, tgt in pairs:
        src_ids, tgt_ids, labels = (
            torch.tensor([[*src, 3]]),
            torch.tensor([[2, *tgt]]),
            torch.tensor([*tgt, 3]),
        )
        causal = torch.ones(len(labels), len(labels)).tril().bool()[None, None]
        src_mask = torch.ones(1, 1, 1, len(src) + 1).bool()
        logits = objective.model(src_ids, src_mask, tgt_ids, causal)[0]
        total += float(F.cross_entropy(logits, labels, reduction="sum").detach())
        num_tokens += len(labels)
    return total / num_tokens


@pytest.mark.parametrize("sizes", [[11], [1, 6, 4], [1] * 11])
def test_loss_is_that_of_every_real_token_whatever_the_batches(
    sizes: list[int],
    make_objective: MakeObjective,
    make_batches: MakeBatches,
    sentence_pairs: list[tuple[list[int], list[int]]],
) -> None:
    objective = make_objective(dropout=0.5, attention_dropout=0.5)
    expected = loss_by_hand(objective.eval(), sentence_pairs)
    result = run(objective.train(), make_batches(sizes))
    assert result.loss == pytest.approx(expected, rel=1e-5)
    assert result.perplexity == pytest.approx(math.exp(expected), rel=1e-4)


def test_scores_are_those_of_sacrebleu(make_objective: MakeObjective, make_batches: MakeBatches) -> None:
    result = run(make_objective(), make_batches([11]))
    assert result.hypotheses == HYPOTHESES
    assert result.scores["bleu"].value == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    values = result.values()
    assert values["bleu"] == result.scores["bleu"].value
    assert values["chrf"] == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert (values["loss"], values["perplexity"]) == (result.loss, result.perplexity)


def test_other_sets_are_translated_and_scored_by_themselves(
    make_objective: MakeObjective, make_batches: MakeBatches
) -> None:
    others = {name: named_set([f"one {name}", f"two {name}"], [f"{name}\u00ad"] * 2, name) for name in "ab"}
    directions = []

    def translate(sources: Sequence[str], direction: Sides[str]) -> list[str]:
        directions.append(direction)
        return [source.split()[1] for source in sources]

    result = run(make_objective(), make_batches([11]), translate, others)
    assert result.hypotheses == ["Hund", "Katze"]
    assert directions == [("de", "en"), ("de", "a"), ("de", "b")]
    values = result.values_of_others()
    assert (values["chrf_on_a"], values["chrf_on_b"]) == (100.0, 100.0)
    own = result.values()
    assert own["mean_chrf"] == pytest.approx((own["chrf"] + 200) / 3)


def test_the_model_is_in_evaluation_mode_and_afterwards_as_before(
    make_objective: MakeObjective, make_batches: MakeBatches
) -> None:
    objective = make_objective(dropout=0.5).train()
    before, state = parameters(objective), torch.get_rng_state()

    def translate(sources: Sequence[str], direction: Sides[str]) -> list[str]:
        assert list(sources) == SOURCES
        assert not any(module.training for module in objective.modules())
        return HYPOTHESES

    run(objective, make_batches([5, 6]), translate)
    # Nothing was drawn, and there is no gradient.
    assert torch.get_rng_state().equal(state)
    assert all(map(torch.equal, before, objective.parameters()))
    assert all(parameter.grad is None for parameter in objective.parameters())
    # Tensors made in inference mode would break the next backward pass.
    objective(make_batches([11])[0], 0.1).backward()
    assert all(parameter.grad is not None for parameter in objective.parameters())


def test_perplexity_of_a_huge_loss_is_still_a_number() -> None:
    assert ValidationResult(1e6, {}, []).perplexity == 1e299
    assert ValidationResult(math.log(7), {}, []).perplexity == pytest.approx(7)
