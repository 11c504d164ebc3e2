"""Long lines are cut at the ends of sentences; sentences of like length are searched together."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt.inference.engines import Sentence, batches_by_length
from mt.inference.segments import read_segments, split_sentences
from mt.inference.source_reader import SourceReader, SourceToken


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four… Five", ["One.", "Two!", "Three?", "Four…", "Five"]),
        ('He said: "No." She left.', ['He said: "No."', "She left."]),
        ("(So it is.) And «so.» End.", ["(So it is.)", "And «so.»", "End."]),
        ("你好。再见！", ["你好。", "再见！"]),
        ("他说：“你好。”然后走了。", ["他说：“你好。”", "然后走了。"]),
        ("「好！！」と言った。（はい。）終わり｡", ["「好！！」", "と言った。", "（はい。）", "終わり｡"]),
        ("« Non ! » dit-il. Il part. « Si ! »", ["« Non ! »", "dit-il.", "Il part.", "« Si ! »"]),
        ("मैं घर जाता हूँ। वह आती है॥ ठीक।", ["मैं घर जाता हूँ।", "वह आती है॥", "ठीक।"]),
        ("ሰላም። ደህና።", ["ሰላም።", "ደህና።"]),
        ("မင်္ဂလာပါ။ နေကောင်းလား။", ["မင်္ဂလာပါ။", "နေကောင်းလား။"]),
        ("Wait... what?! Yes.", ["Wait...", "what?!", "Yes."]),
        ("3.14 is e.g.not split", ["3.14 is e.g.not split"]),
        ("  ", []),
    ],
)
def test_sentences_end_at_their_stops(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def test_a_long_run_of_stops_takes_no_longer_than_other_text() -> None:
    # Quadratic time would be hours.
    for text in ("." * 10**6, "。" * 10**6, ".»" * 10**6, "。」" * 10**6):
        assert "".join(split_sentences(text)) == text


class Numbers(SourceReader):
    """Reads numbers, with a full stop at the end of a sentence."""

    def __init__(self) -> None:
        pass

    def read_batch(self, texts: Sequence[str]) -> list[list[SourceToken]]:
        return [[SourceToken(int(word.rstrip(".")), None) for word in text.split()] for text in texts]


@pytest.mark.parametrize("max_length", [4, 5, 8])
def test_nothing_is_lost_and_nothing_is_too_long(max_length: int) -> None:
    texts = [["1 2 3"], [""], ["4 5 6. 7 8 9 10 11 12 13 14. 15", "16 17 18 19"], ["20."]]
    segments = read_segments(texts, [[]] * 4, Numbers(), max_length)
    assert [token.id for segment in segments for token in segment.tokens] == list(range(1, 21))
    assert [(each.index, each.line) for each in segments] == sorted((s.index, s.line) for s in segments)
    assert {(each.index, each.line) for each in segments} == {(0, 0), (2, 0), (2, 1), (3, 0)}
    numbers = [each.number for each in segments if each.index == 2]
    assert numbers == [*range(len(numbers))]
    # With EOS there is room for one token less.
    assert max(len(each.tokens) for each in segments) <= max_length - 1


@given(
    lengths=st.lists(st.integers(1, 60), max_size=300),
    most_tokens=st.integers(1, 2000),
    most_sentences=st.integers(1, 200),
)
def test_each_sentence_is_in_one_batch_of_its_length(
    lengths: list[int], most_tokens: int, most_sentences: int
) -> None:
    batches = batches_by_length(
        [Sentence(1, [0] * (each - 1)) for each in lengths], most_tokens, most_sentences
    )
    assert sorted(index for batch in batches for index in batch) == [*range(len(lengths))]
    ordered = [lengths[index] for batch in batches for index in batch]
    assert ordered == sorted(ordered, reverse=True)
    for batch in batches:
        assert len(batch) <= most_sentences
        assert len(batch) == 1 or lengths[batch[0]] * len(batch) <= most_tokens


def test_a_line_that_leaves_no_room_for_eos_is_cut_between_its_sentences() -> None:
    for max_length, lengths in ((7, [6]), (6, [2, 4])):
        segments = read_segments([["1 2. 3 4 5 6"]], [[]], Numbers(), max_length)
        assert [len(segment.tokens) for segment in segments] == lengths
