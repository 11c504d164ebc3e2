"""Scores of given translations against what search said of them, and a pass over one sentence by hand."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from mt.data.batches.batch import Batch
from mt.errors import DataError, LinesError
from mt.inference.loaded_model import load_model
from mt.inference.model_translator import ModelTranslator
from mt.inference.torch_engine import label_log_probs
from mt.masks import padding_mask, target_mask
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam, Sampling, Strategy
from mt.special_tokens import BOS_ID, EOS_ID, UNK

CPU = torch.device("cpu")
SENTENCES = ["the dog sees milk.", "Anna buys two red apples today.", "my aunt paints the car!", "the dog"]


@pytest.mark.usefixtures("scored_as_in_search")
@pytest.mark.parametrize("num_runs", [1, 2])
@pytest.mark.parametrize("strategy", [None, Beam(4, 0.6), Sampling(1.0, 1)])
def test_scores_are_those_of_the_search(strategy: Strategy, num_runs: int, trained: RunDirectory) -> None:
    translator = ModelTranslator.from_run(trained, device=CPU, others=[trained] * (num_runs - 1))
    found = translator.n_best(SENTENCES, num_best=4, strategy=strategy)
    pairs = [(source, each.text) for source, best in zip(SENTENCES, found, strict=True) for each in best]
    scored = translator.score(pairs)
    expected = [each.log_prob for best in found for each in best]
    assert [pair.log_prob for pair in scored] == pytest.approx(expected, abs=1e-4)


@torch.no_grad()
def test_each_token_equals_a_separate_forward_pass(trained: RunDirectory) -> None:
    source, target = SENTENCES[0], "der Hund malt ein Quux."
    best = load_model(trained, "best")
    ids = best.tgt_tokenizer.encode(target)
    src_ids = torch.tensor([[*best.src_tokenizer.encode(source), EOS_ID]])
    log_probs = []
    for place, label in enumerate([*ids, EOS_ID]):
        tgt_ids = torch.tensor([[BOS_ID, *ids[:place]]])
        logits = best.model.eval()(src_ids, padding_mask(src_ids), tgt_ids, target_mask(tgt_ids))
        log_probs.append(float(logits[0, -1].double().log_softmax(-1)[label]))
    [scored] = ModelTranslator.from_run(trained, device=CPU).score([(source, target)])
    assert list(scored.log_probs) == pytest.approx(log_probs, abs=1e-4)
    assert scored.log_prob == pytest.approx(sum(log_probs), abs=1e-4)
    assert scored.num_unknown == 1
    assert scored.tokens[4] == UNK
    assert len(scored.tokens) == 7


def test_neither_batch_nor_order_makes_a_difference(trained: RunDirectory) -> None:
    translator = ModelTranslator.from_run(trained, device=CPU)
    pairs = [(source, target) for source in SENTENCES for target in ("", "Milch", "der Hund sieht das Auto.")]

    def score(pairs: Sequence[tuple[str, str]]) -> list[float]:
        return [scored.log_prob for scored in translator.score(pairs)]

    together = score(pairs)
    assert score(pairs[::-1])[::-1] == pytest.approx(together, abs=1e-4)
    assert [score([pair])[0] for pair in pairs] == pytest.approx(together, abs=1e-4)


def test_a_batch_that_does_not_fit_into_memory_is_split(
    trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = ModelTranslator.from_run(trained, device=CPU)
    pairs = [(source, "der Hund sieht das Auto.") for source in SENTENCES]
    together = [scored.log_prob for scored in translator.score(pairs)]
    sizes: list[int] = []

    def cramped(model: Any, batch: Batch) -> Tensor:
        sizes.append(len(batch.labels))
        if len(batch.labels) > room:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return label_log_probs(model, batch)

    monkeypatch.setattr("mt.inference.torch_engine.label_log_probs", cramped)
    room = 1
    assert [scored.log_prob for scored in translator.score(pairs)] == pytest.approx(together, abs=1e-4)
    assert max(sizes) > 1
    room = 0
    with pytest.raises(LinesError, match="tokens that does not fit into memory"):
        translator.score(pairs)


def test_what_is_too_long_is_named(trained: RunDirectory) -> None:
    translator = ModelTranslator.from_run(trained, device=CPU)
    assert translator.score([("the car " * 7 + "the", "das Auto " * 7 + "das")])
    with pytest.raises(DataError, match="line 6: the source has 17 tokens, but this model"):
        translator.score([("milk", "Milch"), ("the car " * 8, "Auto")], first_line=5)
    with pytest.raises(DataError, match="line 5: the translation has 17 tokens"):
        translator.score([("milk", "das Auto " * 8)], first_line=5)


@pytest.mark.parametrize("num_runs", [1, 2])
def test_a_pair_whose_score_is_not_finite_is_named(num_runs: int, trained: RunDirectory) -> None:
    loaded = [load_model(trained, "best") for _ in range(num_runs)]
    with torch.no_grad():
        for each in loaded:
            each.model.src_embedding.tokens.weight[each.src_tokenizer.encode("dog")] = 1e38
    translator = ModelTranslator(loaded[0], device=CPU, others=loaded[1:])
    fine, overflowing = ("Anna buys milk.", "Anna kauft Milch."), ("the dog sees milk.", "der Hund.")
    assert math.isfinite(translator.score([fine])[0].log_prob)
    with pytest.raises(DataError, match=r"line 6 .* logits in float32 are NaN") as error:
        translator.score([fine, overflowing], first_line=5)
    assert "--checkpoint NAME" in str(error.value)
