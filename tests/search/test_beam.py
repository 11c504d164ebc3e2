"""Beam search against brute force, forced decoding, greedy search and other batches."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from mt.masks import padding_mask, target_mask
from mt.search.beam import beam_search
from mt.search.greedy import greedy_search
from mt.search.hypothesis import Hypothesis, normalised_score
from mt.search.request import SearchRequest
from mt.search.strategy import Beam
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from mt.transformer.packed_transformer import PackedTransformer
from mt.transformer.transformer import Transformer

MakeRequest = Callable[..., SearchRequest]


def _forced_score(model: Transformer, sentence: list[int], ids: Sequence[int]) -> float:
    """Log-probability of a translation and its EOS, by one uncached pass over all of it."""
    src_ids, tgt_ids = torch.tensor([sentence]), torch.tensor([[BOS_ID, *ids]])
    logits = model(src_ids, padding_mask(src_ids), tgt_ids, target_mask(tgt_ids))
    log_probs = logits[0].log_softmax(-1)
    return float(log_probs[torch.arange(len(ids) + 1), torch.tensor([*ids, EOS_ID])].sum())


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0])
def test_wide_beam_equals_brute_force_over_all_short_sequences(
    transformer: Transformer, packed: PackedTransformer, length_penalty: float
) -> None:
    sentence, limit = [5, 9, EOS_ID], 3
    words = [token for token in range(14) if token not in (PAD_ID, UNK_ID, BOS_ID, EOS_ID)]
    everything = [
        Hypothesis(ids, _forced_score(transformer, sentence, ids), True)
        for length in range(limit)
        for ids in product(words, repeat=length)
    ]
    everything.sort(key=lambda found: -normalised_score(found, length_penalty))
    src_ids = torch.tensor([sentence])
    # Ten words at three positions make 1,110 prefixes, so that a beam of 1,200 drops none.
    [found] = beam_search(packed, SearchRequest(src_ids, [limit]), Beam(1200, length_penalty))
    assert len(found) == len(everything) == 111
    for ours, brute in zip(found, everything, strict=True):
        assert tuple(ours.ids) == brute.ids
        assert ours.score == pytest.approx(brute.score, abs=1e-4)


def _plain_beam_search(model: Transformer, sentence: list[int], limit: int, size: int) -> list[Hypothesis]:
    """The search as documented, over lists and without a cache."""
    src_ids = torch.tensor([sentence])
    partial, finished = [Hypothesis([], 0.0, False)], []
    for _ in range(limit):
        continuations = []
        for each in partial:
            tgt_ids = torch.tensor([[BOS_ID, *each.ids]])
            logits = model(src_ids, padding_mask(src_ids), tgt_ids, target_mask(tgt_ids))[0, -1]
            continuations += [
                Hypothesis([*each.ids, token], each.score + log_prob, token == EOS_ID)
                for token, log_prob in enumerate(logits.log_softmax(-1).tolist())
                if token not in (PAD_ID, UNK_ID, BOS_ID)
            ]
        continuations.sort(key=lambda each: -each.score)
        finished += [replace(each, ids=each.ids[:-1]) for each in continuations[:size] if each.finished]
        if len(finished) >= size:
            break
        partial = [each for each in continuations if not each.finished][:size]
    return finished[:size] or partial


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_narrow_beam_equals_a_plain_loop(
    transformer: Transformer,
    packed: PackedTransformer,
    sentences: list[list[int]],
    make_request: MakeRequest,
    size: int,
) -> None:
    request = make_request(sentences)
    found = beam_search(packed, request, Beam(size, 1.0))
    num_finished = set()
    for ours, sentence, limit in zip(found, sentences, request.limits, strict=True):
        expected = _plain_beam_search(transformer, sentence, limit, size)
        expected.sort(key=lambda each: -normalised_score(each, 1.0))
        assert [(tuple(each.ids), each.finished) for each in ours] == [
            (tuple(each.ids), each.finished) for each in expected
        ]
        assert [each.score for each in ours] == pytest.approx([each.score for each in expected], abs=1e-4)
        num_finished.add(len(expected))
    assert size in num_finished


def test_a_beam_of_one_is_greedy_search(
    packed: PackedTransformer, sentences: list[list[int]], make_request: MakeRequest
) -> None:
    request = make_request(sentences)
    greedy = greedy_search(packed, request)
    beam = beam_search(packed, request, Beam(1))
    assert [hypotheses[0].ids for hypotheses in beam] == [found.ids for found in greedy]
    assert [hypotheses[0].finished for hypotheses in beam] == [found.finished for found in greedy]
    for [ours], greedily in zip(beam, greedy, strict=True):
        assert ours.score == pytest.approx(greedily.score, abs=1e-4)


def test_scores_are_those_of_forced_decoding(
    transformer: Transformer, packed: PackedTransformer, sentences: list[list[int]], make_request: MakeRequest
) -> None:
    num_finished = 0
    for sentence, found in zip(sentences, beam_search(packed, make_request(sentences), Beam(4)), strict=True):
        assert len({tuple(hypothesis.ids) for hypothesis in found}) == len(found) > 0
        for hypothesis in found:
            assert not {PAD_ID, UNK_ID, BOS_ID, EOS_ID} & set(hypothesis.ids)
            if hypothesis.finished:
                num_finished += 1
                forced = _forced_score(transformer, sentence, hypothesis.ids)
                assert hypothesis.score == pytest.approx(forced, abs=1e-3)
    assert num_finished > len(sentences)


def test_n_best_are_the_same_in_any_batch_order_and_padding(
    packed: PackedTransformer, sentences: list[list[int]], make_request: MakeRequest
) -> None:
    together = beam_search(packed, make_request(sentences), Beam(3))
    backwards = beam_search(packed, make_request(sentences[::-1], padding=5), Beam(3))[::-1]
    alone = [beam_search(packed, make_request([sentence]), Beam(3))[0] for sentence in sentences]
    for first, second, third in zip(together, backwards, alone, strict=True):
        for a, b, c in zip(first, second, third, strict=True):
            assert a.ids == b.ids == c.ids
            assert a.score == pytest.approx(b.score, abs=1e-4) == pytest.approx(c.score, abs=1e-4)


def test_a_beam_finds_a_likelier_translation_than_greedy_search(
    table_model: Callable[..., Any], table_request: MakeRequest
) -> None:
    # After BOS, 4 is likelier than 5; but after 4 all tokens are equally likely, and after 5 EOS is certain.
    low = -20.0
    table = {
        BOS_ID: [low, low, low, low, 1.0, 0.9],
        4: [low, low, low, 0.0, 0.0, 0.0],
        5: [low, low, low, 9.0, low, low],
    }
    model = table_model(table)
    [greedy] = greedy_search(model, table_request([0], [5]))
    [[best, *_]] = beam_search(model, table_request([0], [5]), Beam(2, 0.0))
    assert greedy.ids[0] == 4
    assert best.ids == [5]
    assert best.score > greedy.score


def test_gnmt_score_equals_the_formula() -> None:
    found = Hypothesis([7, 8, 9], -6.0, finished=True)
    assert normalised_score(found, 0.0) == -6.0
    assert normalised_score(found, 0.6) == pytest.approx(-6.0 / (((5 + 4) / 6) ** 0.6))
    assert normalised_score(Hypothesis([7], -6.0, finished=False), 1.0) == pytest.approx(-6.0)


def test_unk_is_written_only_with_keep_unk(
    table_model: Callable[..., Any], table_request: MakeRequest
) -> None:
    table = {token: [0.0, 5.0, 0.0, 1.0, 0.5] for token in (BOS_ID, UNK_ID, 4)}
    shown = beam_search(table_model(table), table_request([0], [3], keep_unk=True), Beam(2))
    hidden = beam_search(table_model(table), table_request([0], [3]), Beam(2))
    assert any(UNK_ID in found.ids for found in shown[0])
    assert not any(UNK_ID in found.ids for found in hidden[0])
