"""Constraints against brute force, a loop without cache, and searches without them."""

from collections.abc import Callable, Sequence
from itertools import pairwise, product
from typing import Any

import pytest
import torch
from torch import Tensor

from mt.masks import padding_mask, target_mask
from mt.search.beam import beam_search
from mt.search.constraints import Constraints
from mt.search.greedy import greedy_search
from mt.search.hypothesis import Hypothesis
from mt.search.sampling import sample
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from mt.transformer.transformer import Transformer

MakeBatch = Callable[..., tuple[Tensor, Tensor, list[int]]]
WORDS = range(4, 14)


def forced_score(model: Transformer, sentence: list[int], ids: Sequence[int]) -> float:
    src_ids, tgt_ids = torch.tensor([sentence]), torch.tensor([[BOS_ID, *ids]])
    log_probs = model(src_ids, padding_mask(src_ids), tgt_ids, target_mask(tgt_ids))[0].log_softmax(-1)
    return float(log_probs[torch.arange(len(ids) + 1), torch.tensor([*ids, EOS_ID])].sum())


@pytest.mark.parametrize(
    ("constraints", "is_allowed"),
    [
        (Constraints(min_length=2), lambda ids: len(ids) >= 2),
        (Constraints(no_repeat_ngram=1), lambda ids: len(set(ids)) == len(ids)),
        (Constraints(prefixes=[[7]]), lambda ids: ids[:1] == (7,)),
        (Constraints(1, 1, [[7]]), lambda ids: ids[:1] == (7,) and ids != (7, 7)),
    ],
)
def test_a_wide_beam_equals_brute_force_over_what_is_allowed(
    constraints: Constraints, is_allowed: Callable[[tuple[int, ...]], bool], transformer: Transformer
) -> None:
    sentence = [5, 9, EOS_ID]
    src_ids = torch.tensor([sentence])
    expected = {
        ids: forced_score(transformer, sentence, ids)
        for length in range(3)
        for ids in product(WORDS, repeat=length)
        if is_allowed(ids)
    }
    [found] = beam_search(
        transformer, src_ids, padding_mask(src_ids), [3], beam_size=1200, constraints=constraints
    )
    scores = {tuple(hypothesis.ids): hypothesis.score for hypothesis in found if hypothesis.finished}
    assert scores == pytest.approx(expected, abs=1e-4)


def naive_search(
    model: Transformer, sentence: list[int], limit: int, constraints: Constraints, prefix: Sequence[int]
) -> list[int]:
    """The likeliest allowed token, by the rules in words, over the whole prefix anew at each step."""
    src_ids, ids = torch.tensor([sentence]), list[int]()
    while len(ids) < limit:
        tgt_ids = torch.tensor([[BOS_ID, *ids]])
        logits = model(src_ids, padding_mask(src_ids), tgt_ids, target_mask(tgt_ids))[0, -1]
        n = constraints.no_repeat_ngram
        seen = {tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)} if n else set()
        allowed = [i for i in WORDS if (*ids[len(ids) - n + 1 :], i) not in seen]
        if len(ids) >= constraints.min_length or not allowed:
            allowed.append(EOS_ID)
        if len(ids) < len(prefix):
            allowed = [prefix[len(ids)]]
        best = max(allowed, key=lambda i: float(logits[i]))
        if best == EOS_ID:
            break
        ids.append(best)
    return ids


@pytest.mark.parametrize(
    "constraints", [Constraints(6, 2), Constraints(0, 1), Constraints(0, 3), Constraints(12, 1)]
)
@pytest.mark.parametrize("with_prefixes", [False, True])
def test_greedy_search_equals_a_naive_loop_and_a_beam_of_one(
    with_prefixes: bool,
    constraints: Constraints,
    transformer: Transformer,
    sentences: list[list[int]],
    make_batch: MakeBatch,
) -> None:
    sentences = sentences[:6]
    src_ids, src_mask, limits = make_batch(sentences)
    # Beginnings of unequal length, with repetitions, and an unknown word.
    beginnings = [[], [4], [4, 4, 4], [UNK_ID, 5], [13, 12], []]
    prefixes = beginnings if with_prefixes else [[]] * 6
    asked = Constraints(
        constraints.min_length, constraints.no_repeat_ngram, prefixes if with_prefixes else ()
    )
    found = greedy_search(transformer, src_ids, src_mask, limits, constraints=asked)
    assert [list(hypothesis.ids) for hypothesis in found] == [
        naive_search(transformer, sentence, limit, constraints, prefix)
        for sentence, limit, prefix in zip(sentences, limits, prefixes, strict=True)
    ]
    beams = beam_search(transformer, src_ids, src_mask, limits, beam_size=1, constraints=asked)
    for greedily, [beam] in zip(found, beams, strict=True):
        assert beam.ids == greedily.ids
        assert beam.score == pytest.approx(greedily.score, abs=1e-4)
    unconstrained = greedy_search(transformer, src_ids, src_mask, limits)
    assert [hypothesis.ids for hypothesis in found] != [hypothesis.ids for hypothesis in unconstrained]


def test_any_batch_and_padding_gives_the_same_n_best(
    transformer: Transformer, sentences: list[list[int]], make_batch: MakeBatch
) -> None:
    prefixes = [[4 + i % 10] * (i % 4) for i in range(len(sentences))]

    def search(rows: list[int], padding: int = 0) -> list[list[Hypothesis]]:
        asked = Constraints(4, 2, [prefixes[row] for row in rows])
        batch = make_batch([sentences[row] for row in rows], padding)
        return beam_search(transformer, *batch, beam_size=3, constraints=asked)

    together = search(list(range(len(sentences))))
    for row, best_first in enumerate(together):
        [alone] = search([row], padding=2)
        assert [found.ids for found in alone] == [found.ids for found in best_first]
        for one, other in zip(alone, best_first, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)
            assert list(one.ids[: len(prefixes[row])]) == prefixes[row]
            ngrams = list(pairwise(one.ids[max(0, len(prefixes[row]) - 1) :]))
            assert len(set(ngrams)) == len(ngrams)


def test_the_own_beginning_of_a_translation_changes_nothing(
    transformer: Transformer, sentences: list[list[int]], make_batch: MakeBatch
) -> None:
    batch = make_batch(sentences)
    found = greedy_search(transformer, *batch)
    for length in (1, 3, 100):
        prefixes = [hypothesis.ids[:length] for hypothesis in found]
        again = greedy_search(transformer, *batch, constraints=Constraints(prefixes=prefixes))
        assert [hypothesis.ids for hypothesis in again] == [hypothesis.ids for hypothesis in found]
        for one, other in zip(again, found, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)


def test_draws_obey_too(transformer: Transformer, sentences: list[list[int]], make_batch: MakeBatch) -> None:
    prefixes = [[9, 9]] * len(sentences)
    found = sample(
        transformer,
        *make_batch(sentences),
        temperature=2.0,
        seeds=range(len(sentences)),
        constraints=Constraints(5, 1, prefixes),
    )
    for hypothesis in found:
        assert list(hypothesis.ids[:2]) == [9, 9]
        assert len(hypothesis.ids) >= 5
        assert len(set(hypothesis.ids)) == len(hypothesis.ids) - 1


def test_where_nothing_is_left_to_write_it_ends(
    table_model: Callable[..., Any], table_batch: Callable[[list[int]], tuple[Tensor, Tensor]]
) -> None:
    # Two words, each of which may be written once, and eight that are asked for.
    table = {token: [0.0, 0.0, 0.0, -3.0, 2.0, 1.0] for token in (PAD_ID, UNK_ID, BOS_ID, EOS_ID, 4, 5)}
    asked = Constraints(min_length=8, no_repeat_ngram=1)
    [greedy] = greedy_search(table_model(table), *table_batch([0]), [10], constraints=asked)
    [beams] = beam_search(table_model(table), *table_batch([0]), [10], beam_size=3, constraints=asked)
    assert (greedy.ids, greedy.finished) == ([4, 5], True)
    assert sorted(list(found.ids) for found in beams) == [[4, 5], [5, 4]]
