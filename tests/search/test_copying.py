"""Unknown words are copied where the alignment head attends to them, as a script prescribes here."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from mt.search.beam import beam_search
from mt.search.greedy import greedy_search
from mt.search.hypothesis import Hypothesis
from mt.search.request import SearchRequest
from mt.search.strategy import Beam, Constraints, Sampling, Strategy
from mt.special_tokens import EOS_ID, UNK_ID
from mt.transformer.transformer import Transformer
from tests.fixture_types import MakeRequest
from tests.search import reference

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
    """At step t its head attends to the position in the sentence's script, and UNK is the likeliest token.

    After UNK the likeliest are `KNOWN` and `SECOND`; after its script it writes EOS. The first source id
    names the script.
    """

    def __init__(self, scripts: Sequence[Sequence[int]], unk: float = 9.0) -> None:
        self.scripts = scripts
        self.unk = unk

    def encode(self, src_ids: Tensor, src_mask: Tensor) -> Tensor:
        return src_ids

    def start_cache(self, memory: Tensor, src_mask: Tensor) -> ScriptCache:
        self.width = memory.size(1)
        return ScriptCache([self.scripts[int(row) - 4] for row in memory[:, 0]])

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
        return ScriptedStep(logits, scores if with_alignment else None)


def copying_request(*sentences: list[int], limit: int = 8, **rules: Any) -> SearchRequest:
    """The request of these sentences, in which UNK may be copied."""
    src_ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in sentences], batch_first=True)
    return SearchRequest(src_ids, [limit] * len(sentences), copyable=src_ids == UNK_ID, **rules)


Search = Callable[[ScriptedModel, SearchRequest], list[Hypothesis]]
STRATEGIES: dict[str, Strategy] = {"greedy": None, "sampling": Sampling(0.05), "beam": Beam(3)}


@pytest.fixture(params=["greedy", "sampling", "beam"])
def search(request: pytest.FixtureRequest) -> Search:
    """The best hypothesis of each sentence by one of the decoding strategies."""
    strategy = STRATEGIES[request.param]
    return lambda model, asked: [best for best, *_ in reference.search(model, asked, strategy)]


def test_where_unk_may_be_written_anywhere_nothing_is_copied(search: Search) -> None:
    request = copying_request([4, 5, UNK_ID, EOS_ID], keep_unk=True)
    (found,) = search(ScriptedModel([[1, 2, 1]]), request)
    assert (found.ids, found.copied) == ([UNK_ID] * 3, [])


def test_a_sentence_of_known_words_has_no_unk_beside_one_that_is_copied_from(search: Search) -> None:
    model = ScriptedModel([[1, 2, 1], [1, 1]])
    copying, known = search(model, copying_request([4, 5, UNK_ID, EOS_ID], [5, 6, 7, EOS_ID]))
    assert (copying.ids, copying.copied) == ([KNOWN, UNK_ID, KNOWN], [2])
    assert (known.ids, known.copied) == ([KNOWN, KNOWN], [])
    # They share all probability among the tokens that it may have.
    never = -torch.inf
    words = torch.tensor([never, never, never, 0, 0, 0, 0, 6.0, 4.0, 0, 0, 0]).log_softmax(-1)
    end = torch.tensor([never, never, never, 9.0, 0, 0, 0, 0, 0, 0, 0, 0]).log_softmax(-1)[EOS_ID]
    assert known.score == pytest.approx(float(2 * words[KNOWN] + end), rel=1e-5)


def test_no_word_is_copied_twice(search: Search) -> None:
    # The head stays at the same word, which is copied already; the next position is another unknown word.
    model = ScriptedModel([[2, 2, 3]])
    (found,) = search(model, copying_request([4, 5, UNK_ID, UNK_ID, EOS_ID]))
    assert found.ids == [UNK_ID, KNOWN, UNK_ID]
    assert found.copied == [2, 3]


@pytest.mark.parametrize("unk", [9.0, -9.0])
def test_unk_is_written_as_a_copy_where_the_head_attends_to_an_unknown_word_however_unlikely(
    unk: float, search: Search
) -> None:
    (found,) = search(ScriptedModel([[1, 2, 1]], unk), copying_request([4, 5, UNK_ID, EOS_ID]))
    assert (found.ids, found.copied, found.finished) == ([KNOWN, UNK_ID, KNOWN], [2], True)
    # Its score is that of the model, among UNK and all tokens that may be written.
    never = -torch.inf
    log_probs = torch.tensor([never, unk, never, 0, 0, 0, 0, 6.0, 4.0, 0, 0, 0]).log_softmax(-1)
    end = torch.tensor([never, 0, never, 9.0, 0, 0, 0, 0, 0, 0, 0, 0]).log_softmax(-1)[EOS_ID]
    expected = float(2 * log_probs[KNOWN] + log_probs[UNK_ID] + end)
    assert found.score == pytest.approx(expected, rel=1e-5)


def test_beams_remember_what_they_copied() -> None:
    model = ScriptedModel([[1, 2, 2, 4]])
    request = copying_request([4, UNK_ID, UNK_ID, 6, UNK_ID, EOS_ID])
    (found,) = beam_search(model, request, Beam(3))
    assert len({tuple(hypothesis.ids) for hypothesis in found}) == 3
    for hypothesis in found:
        assert [token == UNK_ID for token in hypothesis.ids] == [True, True, False, True]
        assert hypothesis.copied == [1, 2, 4]


def test_a_beam_of_one_is_greedy(
    transformer: Transformer, sentences: list[list[int]], make_request: MakeRequest
) -> None:
    sentences = [[UNK_ID if token % 3 == 0 else token for token in ids] for ids in sentences]
    request = make_request(sentences)
    request = replace(request, copyable=request.src_ids == UNK_ID)
    greedy = greedy_search(transformer, request)
    beams = beam_search(transformer, request, Beam(1))
    assert [(h.ids, h.copied) for h in greedy] == [(h.ids, h.copied) for (h,) in beams]
    assert any(h.copied for h in greedy)
    for hypothesis, ids in zip(greedy, sentences, strict=True):
        assert len(hypothesis.copied) == list(hypothesis.ids).count(UNK_ID)
        assert all(ids[position] == UNK_ID for position in hypothesis.copied)


def test_copies_are_no_repetition_and_those_of_a_prefix_are_not_copied_again() -> None:
    model = ScriptedModel([[1, 2, 3]])
    for constraints in (
        Constraints(no_repeat_ngram=1),
        Constraints(no_repeat_ngram=1, prefixes=[[UNK_ID, UNK_ID]]),
    ):
        request = copying_request([4, UNK_ID, UNK_ID, UNK_ID, EOS_ID], constraints=constraints)
        (greedy,) = greedy_search(model, request)
        ((best, *_),) = beam_search(model, request, Beam(3))
        for found in (greedy, best):
            assert (found.ids, found.copied) == ([UNK_ID] * 3, [1, 2, 3])


def test_what_followed_one_copied_word_may_follow_another(search: Search) -> None:
    # After each of two words, the head attends to a known one.
    model = ScriptedModel([[1, 0, 2, 0]])
    rules = Constraints(no_repeat_ngram=2)
    (found,) = search(model, copying_request([4, UNK_ID, UNK_ID, EOS_ID], constraints=rules))
    assert found.ids == [UNK_ID, KNOWN, UNK_ID, KNOWN]


def test_an_unk_of_a_prefix_copies_the_word_that_it_names(search: Search) -> None:
    """The head is at the other unknown word, which is then still to be copied."""
    model = ScriptedModel([[2, 1, 1], [2, 1]])
    request = copying_request(
        [4, UNK_ID, 6, UNK_ID, EOS_ID],
        [5, UNK_ID, EOS_ID],
        constraints=Constraints(prefixes=[[SECOND, UNK_ID], []]),
        prefix_copies=[[-1, 3], []],
    )
    named, other = search(model, request)
    assert (named.ids, named.copied) == ([SECOND, UNK_ID, UNK_ID], [3, 1])
    assert (other.ids, other.copied) == ([KNOWN, UNK_ID], [1])


def test_a_known_word_that_a_prefix_refers_to_may_be_attended_to_again(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = ScriptedModel.decode_step

    def leaning(*arguments: Any, **options: Any) -> ScriptedStep:
        decoded = step(*arguments, **options)
        assert decoded.alignment_scores is not None
        # The unknown word is the second that the head attends to.
        decoded.alignment_scores[:, 1] += 2.0
        return decoded

    monkeypatch.setattr(ScriptedModel, "decode_step", leaning)
    constraints = Constraints(prefixes=[[UNK_ID]])
    request = copying_request([4, UNK_ID, 6, EOS_ID], constraints=constraints, prefix_copies=[[-1]])
    (found,) = search(ScriptedModel([[2, 2, 1]]), request)
    assert (found.ids, found.copied) == ([UNK_ID, KNOWN, UNK_ID], [2, 1])
