"""An ensemble against the mean of probabilities by hand, and its models one by one."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from mt.data.batches.batch import collate
from mt.inference.torch_engine import label_log_probs
from mt.masks import padding_mask, target_mask
from mt.search.beam import beam_search
from mt.search.ensemble import EnsembleModel
from mt.search.greedy import greedy_search
from mt.search.request import SearchRequest
from mt.search.strategy import Beam
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from mt.transformer.attention import mask_scores
from mt.transformer.transformer import Transformer
from tests.fixture_types import MakeRequest
from tests.search.conftest import random_transformer


@pytest.fixture
def other() -> Transformer:
    """A second model, of another width and depth."""
    return random_transformer(
        3, d_model=8, num_heads=1, num_encoder_layers=2, num_decoder_layers=1, tie_output=True
    )


def ensemble(*models: Transformer) -> EnsembleModel:
    return EnsembleModel(models, [model.output.in_features for model in models])


def mean_score(
    models: Sequence[Transformer], sentence: list[int], ids: Sequence[int], *, least: int = EOS_ID
) -> float:
    """The log-probability of a translation and its EOS among the tokens from ``least`` on."""
    src_ids, tgt_ids = torch.tensor([sentence]), torch.tensor([[BOS_ID, *ids]])
    probabilities = sum(
        model(src_ids, padding_mask(src_ids), tgt_ids, target_mask(tgt_ids))[0].double().softmax(-1)
        for model in models
    ) / len(models)
    assert isinstance(probabilities, Tensor)
    chosen = probabilities[torch.arange(len(ids) + 1), torch.tensor([*ids, EOS_ID])]
    return float((chosen / probabilities[:, least:].sum(-1)).log().sum())


def test_a_wide_beam_equals_brute_force_by_the_mean_of_probabilities(
    transformer: Transformer, other: Transformer
) -> None:
    sentence = [5, 9, EOS_ID]
    src_ids = torch.tensor([sentence])
    expected = {
        ids: mean_score([transformer, other], sentence, ids)
        for length in range(3)
        for ids in product(range(4, 14), repeat=length)
    }
    model = ensemble(transformer, other)
    [found] = beam_search(model, SearchRequest(src_ids, [3]), Beam(1200))
    scores = {tuple(hypothesis.ids): hypothesis.score for hypothesis in found if hypothesis.finished}
    assert scores == pytest.approx(expected, abs=1e-4, rel=1e-4)


def test_scores_are_those_of_forced_decoding_in_any_batch(
    transformer: Transformer, other: Transformer, sentences: list[list[int]], make_request: MakeRequest
) -> None:
    model = ensemble(transformer, other)
    num_finished = 0
    for sentence, best_first in zip(
        sentences, beam_search(model, make_request(sentences), Beam(3)), strict=True
    ):
        for hypothesis in best_first:
            if hypothesis.finished:
                num_finished += 1
                forced = label_log_probs(model, collate([sentence[:-1]], [list(hypothesis.ids)]))
                by_hand = mean_score([transformer, other], sentence, hypothesis.ids, least=0)
                assert float(forced.sum()) == pytest.approx(by_hand, abs=1e-4, rel=1e-4)
                by_hand = mean_score([transformer, other], sentence, hypothesis.ids)
                assert hypothesis.score == pytest.approx(by_hand, abs=1e-4, rel=1e-4)
    assert num_finished > 3


def test_words_are_aligned_by_the_mean_attention_of_the_models(
    transformer: Transformer, other: Transformer
) -> None:
    src_ids = torch.tensor([[5, 9, 7, EOS_ID], [6, EOS_ID, PAD_ID, PAD_ID]])
    src_mask, tgt_ids = padding_mask(src_ids), torch.full((2, 1), BOS_ID)
    weights = []
    for each in (transformer, other):
        memory = each.encode(src_ids, src_mask)
        decoded = each.decode(tgt_ids, memory, src_mask, target_mask(tgt_ids), with_alignment=True)
        assert decoded.alignment_scores is not None
        weights.append(mask_scores(decoded.alignment_scores, src_mask[:, 0])[:, 0].softmax(-1))
    assert not torch.allclose(weights[0], weights[1], atol=1e-3)
    model = ensemble(transformer, other)
    cache = model.start_cache(model.encode(src_ids, src_mask), src_mask)
    scores = model.decode_step(tgt_ids[:, 0], cache, with_alignment=True)[1]
    assert scores is not None
    torch.testing.assert_close(scores.exp(), (weights[0] + weights[1]) / 2, atol=1e-5, rtol=1e-4)


def test_an_ensemble_of_one_model_twice_equals_that_model_also_when_copying(
    transformer: Transformer, sentences: list[list[int]], make_request: MakeRequest
) -> None:
    sentences = [[UNK_ID if token % 3 == 0 else token for token in ids] for ids in sentences]
    request = make_request(sentences)
    request = replace(request, copyable=request.src_ids == UNK_ID)
    alone = greedy_search(transformer, request)
    twice = greedy_search(ensemble(transformer, transformer), request)
    assert [(found.ids, found.copied) for found in twice] == [(found.ids, found.copied) for found in alone]
    assert any(found.copied for found in alone)
    for one, other in zip(twice, alone, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4, rel=1e-4)
