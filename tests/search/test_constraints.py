"""Constraints against brute force, an uncached loop, and searches without constraints."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest
import torch

from mt.search.beam import beam_search
from mt.search.greedy import greedy_search
from mt.search.hypothesis import Hypothesis
from mt.search.request import SearchRequest
from mt.search.sampling import sample
from mt.search.strategy import Beam, Constraints, Sampling
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from mt.transformer.transformer import Transformer
from tests.fixture_types import MakeRequest
from tests.search.reference import WORDS, forced_score, naive_search


@pytest.mark.parametrize(
    ("constraints", "is_allowed"),
    [
        (Constraints(min_length=2), lambda ids: len(ids) >= 2),
        (Constraints(no_repeat_ngram=1), lambda ids: len(set(ids)) == len(ids)),
        # EOS is not the likeliest token after the prefix, so that no hypothesis ends there.
        (Constraints(prefixes=[[7]]), lambda ids: ids[:1] == (7,) and len(ids) > 1),
        (Constraints(1, 1, [[7]]), lambda ids: ids[:1] == (7,) and len(ids) > 1 and ids != (7, 7)),
    ],
)
def test_a_wide_beam_equals_brute_force_over_all_allowed_sequences(
    constraints: Constraints, is_allowed: Callable[[tuple[int, ...]], bool], transformer: Transformer
) -> None:
    sentence = [5, 9, EOS_ID]
    src_ids, [prefix, *_] = torch.tensor([sentence]), [*constraints.prefixes, ()]
    expected = {
        ids: forced_score(transformer, sentence, Hypothesis(ids, 0.0, True), constraints, prefix)
        for length in range(3)
        for ids in product(WORDS, repeat=length)
        if is_allowed(ids)
    }
    request = SearchRequest(src_ids, [3], constraints=constraints)
    [found] = beam_search(transformer, request, Beam(1200))
    scores = {tuple(hypothesis.ids): hypothesis.score for hypothesis in found if hypothesis.finished}
    assert scores == pytest.approx(expected, abs=1e-4, rel=1e-4)


@pytest.mark.parametrize(
    "constraints", [Constraints(6, 2), Constraints(0, 1), Constraints(0, 3), Constraints(12, 1)]
)
@pytest.mark.parametrize("with_prefixes", [False, True])
def test_greedy_search_equals_a_naive_loop_and_a_beam_of_one(
    with_prefixes: bool,
    constraints: Constraints,
    transformer: Transformer,
    sentences: list[list[int]],
    make_request: MakeRequest,
) -> None:
    sentences = sentences[:6]
    free = make_request(sentences)
    # Prefixes of different lengths, with repetitions and UNK.
    prefixes = [[], [4], [4, 4, 4], [UNK_ID, 5], [13, 12], []] if with_prefixes else [[]] * 6
    request = replace(free, constraints=replace(constraints, prefixes=prefixes if with_prefixes else ()))
    found = greedy_search(transformer, request)
    for greedily, sentence, limit, prefix in zip(found, sentences, free.limits, prefixes, strict=True):
        expected = naive_search(transformer, sentence, limit, constraints, prefix)
        assert (greedily.ids, greedily.finished) == (expected.ids, expected.finished)
        assert greedily.score == pytest.approx(expected.score, abs=1e-4, rel=1e-4)
    beams = beam_search(transformer, request, Beam(1))
    for greedily, [beam] in zip(found, beams, strict=True):
        assert beam.ids == greedily.ids
        assert beam.score == pytest.approx(greedily.score, abs=1e-4, rel=1e-4)
    unconstrained = greedy_search(transformer, free)
    assert [hypothesis.ids for hypothesis in found] != [hypothesis.ids for hypothesis in unconstrained]


def test_n_best_are_the_same_in_any_batch_and_padding(
    transformer: Transformer, sentences: list[list[int]], make_request: MakeRequest
) -> None:
    prefixes = [[4 + i % 10] * (i % 4) for i in range(len(sentences))]

    def search(rows: list[int], padding: int = 0) -> list[list[Hypothesis]]:
        constraints = Constraints(4, 2, [prefixes[row] for row in rows])
        request = make_request([sentences[row] for row in rows], padding, constraints=constraints)
        return beam_search(transformer, request, Beam(3))

    together = search(list(range(len(sentences))))
    for row, best_first in enumerate(together):
        [alone] = search([row], padding=2)
        assert [found.ids for found in alone] == [found.ids for found in best_first]
        for one, other in zip(alone, best_first, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4, rel=1e-4)
            assert list(one.ids[: len(prefixes[row])]) == prefixes[row]
            ngrams = list(pairwise(one.ids[max(0, len(prefixes[row]) - 1) :]))
            assert len(set(ngrams)) == len(ngrams)


def test_sampling_obeys_the_constraints(
    transformer: Transformer, sentences: list[list[int]], make_request: MakeRequest
) -> None:
    prefixes = [[9, 9]] * len(sentences)
    found = sample(
        transformer,
        make_request(sentences, constraints=Constraints(5, 1, prefixes)),
        Sampling(2.0),
        range(len(sentences)),
    )
    for hypothesis in found:
        assert list(hypothesis.ids[:2]) == [9, 9]
        assert len(hypothesis.ids) >= 5
        assert len(set(hypothesis.ids)) == len(hypothesis.ids) - 1


@pytest.mark.parametrize("keep_unk", [False, True])
def test_a_translation_ends_when_no_other_token_is_allowed(
    keep_unk: bool, table_model: Callable[..., Any], table_request: MakeRequest
) -> None:
    # Two words, each of which may be written once, but a minimum of eight.
    table = {token: [0.0, 0.0, 0.0, -3.0, 2.0, 1.0] for token in (PAD_ID, UNK_ID, BOS_ID, EOS_ID, 4, 5)}
    constraints = Constraints(min_length=8, no_repeat_ngram=1)
    request = table_request([0], [10], constraints=constraints, keep_unk=keep_unk)
    [greedy] = greedy_search(table_model(table), request)
    if keep_unk:
        # UNK is another word each time.
        assert (greedy.ids, greedy.finished) == ([4, 5, *[UNK_ID] * 8], False)
        return
    [beams] = beam_search(table_model(table), request, Beam(3))
    assert (greedy.ids, greedy.finished) == ([4, 5], True)
    assert sorted(list(found.ids) for found in beams) == [[4, 5], [5, 4]]


@pytest.mark.parametrize("options", [{"min_length": -1}, {"no_repeat_ngram": -1}])
def test_numbers_below_zero_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"must be 0 or above, not .*-1"):
        Constraints(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("eos", "ends"), [(2.0, True), (0.5, False)])
def test_a_beam_ends_right_after_its_prefix_only_if_that_is_the_best(
    eos: float, ends: bool, table_model: Callable[..., Any], table_request: MakeRequest
) -> None:
    low = -20.0
    table = {token: [low, low, low, 1.0, 0.0, 0.0, 0.0] for token in range(7)}
    table |= {BOS_ID: [low, low, low, 0.5, 0.4, 1.0, 0.3], 4: [low, low, low, eos, 0.0, 1.0, 0.2]}
    request = table_request([0, 0], [4, 4], constraints=Constraints(prefixes=[[4], []]))
    given, free = beam_search(table_model(table), request, Beam(2))
    assert ([4] in [list(found.ids) for found in given]) == ends
    assert all(found.ids[:1] == [4] for found in given)
    # Without a prefix, the second best may end at once.
    assert [] in [list(found.ids) for found in free]
    # If only the prefix fits, nothing else is written to fill the beam.
    [cut, _] = beam_search(table_model(table), replace(request, limits=[1, 4]), Beam(2))
    assert [(found.ids, found.finished) for found in cut] == [([4], False)]


@pytest.mark.parametrize("strategy", [None, Beam(3), Sampling(seed=1)], ids=str)
def test_what_stands_for_no_text_is_only_written_in_a_given_prefix(
    strategy: Beam | Sampling | None, transformer: Transformer, sentences: list[list[int]]
) -> None:
    forbidden = [4, 7, 9]
    with torch.no_grad():
        transformer.output.weight[forbidden] += 5 * transformer.output.weight.abs().max()
    src_ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in sentences], batch_first=True)
    written = set()
    for ids in (forbidden, []):
        constraints = Constraints(prefixes=[[7]] * len(sentences))
        request = SearchRequest(src_ids, [8] * len(sentences), forbidden=ids, constraints=constraints)
        if isinstance(strategy, Beam):
            hypotheses = [best for best, *_ in beam_search(transformer, request, strategy)]
        elif strategy is None:
            hypotheses = greedy_search(transformer, request)
        else:
            hypotheses = sample(transformer, request, strategy, range(len(sentences)))
        assert all(hypothesis.ids[0] == 7 for hypothesis in hypotheses)
        written = {token for hypothesis in hypotheses for token in hypothesis.ids[1:]} & set(forbidden)
        assert bool(written) == (ids == [])
