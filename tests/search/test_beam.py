"""Beam search against brute force, and against a plain loop over one sentence."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from mt.search.beam import beam_search
from mt.search.hypothesis import Hypothesis
from mt.search.request import SearchRequest
from mt.search.strategy import Beam
from mt.special_tokens import EOS_ID
from mt.transformer.transformer import Transformer
from tests.fixture_types import MakeRequest
from tests.search.reference import WORDS, forced_score, log_probs_after


def test_wide_beam_equals_brute_force_over_all_short_sequences(transformer: Transformer) -> None:
    sentence, limit = [5, 9, EOS_ID], 3
    everything = [
        Hypothesis(ids, forced_score(transformer, sentence, Hypothesis(ids, 0.0, True)), True)
        for length in range(limit)
        for ids in product(WORDS, repeat=length)
    ]
    request = SearchRequest(torch.tensor([sentence]), [limit])
    for length_penalty in (0.0, 0.6, 1.0):
        everything.sort(key=lambda found: -Beam(1, length_penalty).normalised_score(found))
        # Ten words at three positions make 1,110 prefixes, so that a beam of 1,200 drops none.
        [found] = beam_search(transformer, request, Beam(1200, length_penalty))
        assert len(found) == len(everything) == 111
        for ours, brute in zip(found, everything, strict=True):
            assert tuple(ours.ids) == brute.ids
            assert ours.score == pytest.approx(brute.score, abs=1e-4, rel=1e-4)


def _plain_beam_search(model: Transformer, sentence: list[int], limit: int, size: int) -> list[Hypothesis]:
    """The search as documented, over lists and without a cache."""
    partial, finished = [Hypothesis([], 0.0, False)], []
    for _ in range(limit):
        continuations = [
            Hypothesis([*each.ids, token], each.score + log_prob, token == EOS_ID)
            for each in partial
            for token, log_prob in log_probs_after(model, sentence, each.ids).items()
        ]
        continuations.sort(key=lambda each: -each.score)
        finished += [replace(each, ids=each.ids[:-1]) for each in continuations[:size] if each.finished]
        if len(finished) >= size:
            break
        partial = [each for each in continuations if not each.finished][:size]
    return finished or partial


@pytest.mark.parametrize("size", [2, 4])
def test_a_narrow_beam_equals_a_plain_loop(
    transformer: Transformer, sentences: list[list[int]], make_request: MakeRequest, size: int
) -> None:
    request = make_request(sentences)
    found = beam_search(transformer, request, Beam(size, 1.0))
    most_finished = 0
    for ours, sentence, limit in zip(found, sentences, request.limits, strict=True):
        expected = _plain_beam_search(transformer, sentence, limit, size)
        most_finished = max(most_finished, len(expected))
        # The best of all that have finished, not the first.
        expected = sorted(expected, key=lambda each: -Beam(1, 1.0).normalised_score(each))[:size]
        assert [(tuple(each.ids), each.finished) for each in ours] == [
            (tuple(each.ids), each.finished) for each in expected
        ]
        assert [each.score for each in ours] == pytest.approx(
            [each.score for each in expected], abs=1e-4, rel=1e-4
        )
    assert most_finished > size
