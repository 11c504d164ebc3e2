"""Unknown words are copied where the alignment head looks at them, which here a script says."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from mt.masks import padding_mask
from mt.search.beam import beam_search
from mt.search.constraints import Constraints
from mt.search.greedy import greedy_search
from mt.search.hypothesis import Hypothesis
from mt.search.sampling import sample
from mt.special_tokens import EOS_ID, UNK_ID
from mt.transformer.transformer import Transformer

VOCAB_SIZE = 12
KNOWN, SECOND = 7, 8


class ScriptedStep(NamedTuple):
    logits: Tensor
    alignment_scores: Tensor | None


class ScriptCache:
    def __init__(self, scripts: list[Sequence[int]]) -> None:
        self.scripts = scripts
        self.length = 0

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        self.scripts = [self.scripts[row] for row in rows.tolist()]


class ScriptedModel:
    """At step t its head looks at the position that the sentence's script says, and it would like to copy.

    Next to the unknown word it likes `KNOWN`, then `SECOND`; after its script it ends. The first source id
    names the script.
    """

    def __init__(self, scripts: Sequence[Sequence[int]], unk: float = 9.0) -> None:
        self.scripts = scripts
        self.unk = unk
        self.asked_for_alignment = 0

    def encode(self, src_ids: Tensor, src_mask: Tensor) -> Tensor:
        return src_ids

    def start_cache(
        self, memory: Tensor, src_mask: Tensor, max_length: int, rows_per_sentence: int = 1
    ) -> ScriptCache:
        self.width = memory.size(1)
        return ScriptCache(
            [self.scripts[int(row) - 4] for row in memory[:, 0] for _ in range(rows_per_sentence)]
        )

    def decode_step(self, ids: Tensor, cache: ScriptCache, *, with_alignment: bool = False) -> ScriptedStep:
        logits = torch.zeros(len(cache.scripts), VOCAB_SIZE)
        scores = torch.zeros(len(cache.scripts), self.width)
        for row, script in enumerate(cache.scripts):
            if cache.length < len(script):
                logits[row, UNK_ID], logits[row, KNOWN], logits[row, SECOND] = self.unk, 6.0, 4.0
                scores[row, script[cache.length]] = 5.0
            else:
                logits[row, EOS_ID] = 9.0
        cache.length += 1
        self.asked_for_alignment += with_alignment
        return ScriptedStep(logits, scores if with_alignment else None)


Search = Callable[[ScriptedModel, list[list[int]]], list[Hypothesis]]


def search_by(way: str, *, keep_unk: bool = False) -> Search:
    """A search over sentences, in which what is UNK may be copied."""

    def search(model: ScriptedModel, sentences: list[list[int]]) -> list[Hypothesis]:
        src_ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in sentences], batch_first=True)
        batch = (model, src_ids, padding_mask(src_ids), [8] * len(sentences))
        copyable = src_ids == UNK_ID
        if way == "greedy":
            return greedy_search(*batch, keep_unk=keep_unk, copyable=copyable)
        if way == "sample":
            seeds = [1] * len(sentences)
            return sample(*batch, temperature=0.05, seeds=seeds, keep_unk=keep_unk, copyable=copyable)
        found = beam_search(*batch, beam_size=3, keep_unk=keep_unk, copyable=copyable)
        return [hypotheses[0] for hypotheses in found]

    return search


@pytest.fixture(params=["greedy", "sample", "beam"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_copy_stands_where_the_head_looks_at_an_unknown_word(way: str) -> None:
    model = ScriptedModel([[1, 2, 1]])
    (found,) = search_by(way)(model, [[4, 5, UNK_ID, EOS_ID]])
    assert found.ids == [KNOWN, UNK_ID, KNOWN]
    assert found.copied == [2]
    assert found.finished


def test_a_word_is_copied_once(way: str) -> None:
    # The head stays with the same word; what it likes next is known, or the other unknown one.
    model = ScriptedModel([[2, 2, 3]])
    (found,) = search_by(way)(model, [[4, 5, UNK_ID, UNK_ID, EOS_ID]])
    assert found.ids == [UNK_ID, KNOWN, UNK_ID]
    assert found.copied == [2, 3]


def test_words_are_copied_in_the_order_in_which_the_head_looks_at_them(way: str) -> None:
    model = ScriptedModel([[3, 1, 2]])
    (found,) = search_by(way)(model, [[4, UNK_ID, 6, UNK_ID, EOS_ID]])
    assert found.ids == [UNK_ID, UNK_ID, KNOWN]
    assert found.copied == [3, 1]


def test_neighbours_make_no_difference(way: str) -> None:
    model = ScriptedModel([[1, 2, 1], [2, 2], [1, 1, 2, 1, 3]])
    sentences = [[4, 5, UNK_ID, EOS_ID], [5, 6, 7, EOS_ID], [6, UNK_ID, 9, UNK_ID, 9, EOS_ID]]
    alone = [search_by(way)(model, [sentence])[0] for sentence in sentences]
    together = search_by(way)(model, sentences)
    assert [(found.ids, found.copied) for found in together] == [(found.ids, found.copied) for found in alone]
    assert [found.copied for found in together] == [[2], [], [1, 3]]


def test_where_nothing_is_unknown_nothing_is_asked(way: str) -> None:
    model = ScriptedModel([[1, 2]])
    (found,) = search_by(way)(model, [[4, 5, 6, EOS_ID]])
    assert found.ids == [KNOWN, KNOWN]
    assert model.asked_for_alignment == 0


def test_with_keep_unk_it_stands_anywhere_and_for_nothing(way: str) -> None:
    (found,) = search_by(way, keep_unk=True)(ScriptedModel([[1, 2]]), [[4, 5, UNK_ID, EOS_ID]])
    assert found.ids == [UNK_ID, UNK_ID]
    assert found.copied == []


def test_a_copy_may_be_the_last_word_of_a_sentence_that_meets_its_limit() -> None:
    model = ScriptedModel([[1, 2, 1]])
    src_ids = torch.tensor([[4, 5, UNK_ID, EOS_ID]])
    batch = (model, src_ids, padding_mask(src_ids), [2])
    (greedy,) = greedy_search(*batch, copyable=src_ids == UNK_ID)
    (beams,) = beam_search(*batch, beam_size=2, copyable=src_ids == UNK_ID)
    for found in (greedy, beams[0]):
        assert (found.ids, found.copied, found.finished) == ([KNOWN, UNK_ID], [2], False)


def test_what_the_head_looks_at_is_copied_however_unlikely(way: str) -> None:
    model = ScriptedModel([[1, 2, 1]], unk=-9.0)
    (found,) = search_by(way)(model, [[4, 5, UNK_ID, EOS_ID]])
    assert found.ids == [KNOWN, UNK_ID, KNOWN]
    # Its score is that of the model, over the whole vocabulary.
    log_probs = torch.tensor([0.0, -9.0, 0, 0, 0, 0, 0, 6.0, 4.0, 0, 0, 0]).log_softmax(-1)
    end = torch.tensor([0.0, 0, 0, 9.0, 0, 0, 0, 0, 0, 0, 0, 0]).log_softmax(-1)[EOS_ID]
    expected = float(2 * log_probs[KNOWN] + log_probs[UNK_ID] + end)
    assert found.score == pytest.approx(expected, rel=1e-5)


def test_beams_remember_what_they_copied() -> None:
    model = ScriptedModel([[1, 2, 2, 4]])
    src_ids = torch.tensor([[4, UNK_ID, UNK_ID, 6, UNK_ID, EOS_ID]])
    (found,) = beam_search(
        model, src_ids, padding_mask(src_ids), [8], beam_size=3, copyable=src_ids == UNK_ID
    )
    assert len({tuple(hypothesis.ids) for hypothesis in found}) == 3
    for hypothesis in found:
        assert [token == UNK_ID for token in hypothesis.ids] == [True, True, False, True]
        assert hypothesis.copied == [1, 2, 4]


def test_a_beam_of_one_is_greedy(
    transformer: Transformer,
    sentences: list[list[int]],
    make_batch: Callable[..., tuple[Tensor, Tensor, list[int]]],
) -> None:
    sentences = [[UNK_ID if token % 3 == 0 else token for token in ids] for ids in sentences]
    src_ids, src_mask, limits = make_batch(sentences)
    copyable = src_ids == UNK_ID
    greedy = greedy_search(transformer, src_ids, src_mask, limits, copyable=copyable)
    beams = beam_search(transformer, src_ids, src_mask, limits, beam_size=1, copyable=copyable)
    assert [(h.ids, h.copied) for h in greedy] == [(h.ids, h.copied) for (h,) in beams]
    assert any(h.copied for h in greedy)
    for hypothesis, ids in zip(greedy, sentences, strict=True):
        assert len(hypothesis.copied) == list(hypothesis.ids).count(UNK_ID)
        assert all(ids[position] == UNK_ID for position in hypothesis.copied)


def test_two_copies_are_no_repetition_and_one_of_a_beginning_is_done() -> None:
    model = ScriptedModel([[1, 2, 3]])
    src_ids = torch.tensor([[4, UNK_ID, UNK_ID, UNK_ID, EOS_ID]])
    batch = (model, src_ids, padding_mask(src_ids), [8])
    for constraints in (
        Constraints(no_repeat_ngram=1),
        Constraints(no_repeat_ngram=1, prefixes=[[UNK_ID, UNK_ID]]),
    ):
        (greedy,) = greedy_search(*batch, copyable=src_ids == UNK_ID, constraints=constraints)
        ((best, *_),) = beam_search(*batch, beam_size=3, copyable=src_ids == UNK_ID, constraints=constraints)
        for found in (greedy, best):
            assert (found.ids, found.copied) == ([UNK_ID] * 3, [1, 2, 3])


def test_a_beginning_may_be_written_where_the_head_looks_at_an_unknown_word() -> None:
    model = ScriptedModel([[2, 2, 1]])
    src_ids = torch.tensor([[4, 5, UNK_ID, EOS_ID]])
    (found,) = greedy_search(
        model,
        src_ids,
        padding_mask(src_ids),
        [8],
        copyable=src_ids == UNK_ID,
        constraints=Constraints(prefixes=[[SECOND]]),
    )
    assert (found.ids, found.copied) == ([SECOND, UNK_ID, KNOWN], [2])
