"""Long lines are cut at the ends of sentences; sentences of like length are searched together."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mt.config.data import TokenizerConfig
from mt.data.tokenizers.train import train_tokenizer
from mt.inference.engines import Sentence, batches_by_length
from mt.inference.exported_folder import ModelFacts
from mt.inference.segments import Lines, Part, join_parts, read_segments
from mt.inference.sentences import split_sentences
from mt.inference.source_reader import SourceReader
from mt.search.hypothesis import Hypothesis


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four… Five", ["One.", "Two!", "Three?", "Four…", "Five"]),
        ('He said: "No." She left.', ['He said: "No."', "She left."]),
        ("(So it is.) And «so.» End.", ["(So it is.)", "And «so.»", "End."]),
        ("你好。再见！", ["你好。", "再见！"]),
        ("他说：“你好。”然后走了。", ["他说：“你好。”", "然后走了。"]),
        ("「好！！」と言った。（はい。）終わり｡", ["「好！！」", "と言った。", "（はい。）", "終わり｡"]),
        ("« Non ! » dit-il. Il part. « Si ! »", ["« Non ! » dit-il.", "Il part.", "« Si ! »"]),
        ("मैं घर जाता हूँ। वह आती है॥ ठीक।", ["मैं घर जाता हूँ।", "वह आती है॥", "ठीक।"]),
        ("ሰላም። ደህና።", ["ሰላም።", "ደህና።"]),
        ("မင်္ဂလာပါ။ နေကောင်းလား။", ["မင်္ဂလာပါ။", "နေကောင်းလား။"]),
        ("Wait... what?! Yes.", ["Wait... what?!", "Yes."]),
        ("one. two. Anna", ["one.", "two.", "Anna"]),
        ("He saw Dr. No, e.g. A. B. See. The U.S. Army", ["He saw Dr. No, e.g. A. B. See.", "The U.S. Army"]),
        ("Am 3. Oktober kam (Nr. 5. Ja", ["Am 3. Oktober kam (Nr. 5. Ja"]),
        ("3.14 is e.g.not split", ["3.14 is e.g.not split"]),
        ("  ", []),
    ],
)
def test_sentences_end_at_their_stops(text: str, sentences: list[str]) -> None:
    src = "de" if "Oktober" in text else "en"
    found = split_sentences(text, facts("Dr", "Nr", src=src))
    assert [sentence.strip() for sentence in found] == sentences


def test_a_number_ends_a_sentence_where_ordinals_have_no_stop() -> None:
    assert split_sentences("It was 1990. Then", facts()) == ["It was 1990.", " Then"]


def test_a_long_run_of_stops_takes_no_longer_than_other_text() -> None:
    # Quadratic time would be hours.
    for text in ("." * 10**6, "。" * 10**6, ".»" * 10**6, "。」" * 10**6):
        assert "".join(split_sentences(text, facts())) == text


def facts(
    *abbreviations: str, src: str = "en", max_length: int = 9, copies_signs: bool = False
) -> ModelFacts:
    return ModelFacts(src, "de", max_length, True, 1.0, "", "", abbreviations, copies_signs)


@pytest.fixture(scope="module")
def reader() -> SourceReader:
    vocabulary = " ".join(map(str, range(30)))
    tokenizer = train_tokenizer(
        [f"{vocabulary} Man sees the dog, dog. www/dog/7/8 1. 2."], TokenizerConfig(min_frequency=1)
    )
    return SourceReader(tokenizer, {}, copies=True)


@pytest.mark.parametrize("max_length", [4, 5, 8])
def test_nothing_is_lost_and_nothing_is_too_long(max_length: int, reader: SourceReader) -> None:
    texts = [["1 2 3"], [""], ["4 5 6. 7 8 9 10 11 12 13 14. 15", "16 17 18 19"], ["20."]]
    segments = read_segments(texts, [[]] * 4, reader, facts(max_length=max_length))
    ids = [token.id for segment in segments for token in segment.tokens]
    assert ids == [id_ for lines in texts for line in lines for id_ in reader.tokenizer.encode(line)]
    assert [(each.index, each.line) for each in segments] == sorted((s.index, s.line) for s in segments)
    assert {(each.index, each.line) for each in segments} == {(0, 0), (2, 0), (2, 1), (3, 0)}
    numbers = [each.number for each in segments if each.index == 2]
    assert numbers == [*range(len(numbers))]
    # With EOS there is room for one token less.
    assert max(len(each.tokens) for each in segments) <= max_length - 1


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        # At a comma, else between words, never inside an address.
        ("1 2 3 4 5, 6 7 8 9 10 11", ["1 2 3 4 5,", "6 7 8 9 10 11"]),
        ("1, 2 3 4 5 6 7 8 9 10", ["1,", "2 3 4 5 6 7 8 9", "10"]),
        ("1 2 3 4 5 6 www/dog/7/8 9", ["1 2 3 4 5 6", "www/dog/7/8 9"]),
        ("1 2 3 4 5 6 7 www/Zorblat/9", ["1 2 3 4 5 6 7 www/Zorblat/9"]),
        # What two or fewer words are a sentence, is joined with its neighbour.
        ("the Man 1 2. Man 4. Man sees 5 6 7 8.", ["the Man 1 2. Man 4.", "Man sees 5 6 7 8."]),
    ],
)
def test_a_long_line_is_cut_where_a_reader_would_pause(
    line: str, parts: list[str], reader: SourceReader
) -> None:
    found = []
    segments = read_segments([[line]], [[]], reader, facts())
    for segment in segments:
        copies = [token.copy for token in segment.tokens if token.copy]
        found.append(reader.tokenizer.decode([token.id for token in segment.tokens], copies))
    assert found == parts
    is_cut = len(parts) > 1 and "." not in line
    assert [segment.is_part for segment in segments] == [is_cut] * len(parts)


def test_lines_without_letters_are_copied_where_the_training_text_has_none(reader: SourceReader) -> None:
    lines = ["12", "", "10:30 –  4.5 %", "Man 12", "---"]
    for copies_signs, searched in ((True, [3]), (False, [0, 2, 3, 4])):
        segments = read_segments([lines], [[]], reader, facts(copies_signs=copies_signs))
        assert [segment.line for segment in segments] == searched
        parts = [Part(segment, Hypothesis([], 0.0, finished=True), 0.0) for segment in segments]
        copied = join_parts(Lines(lines, ["", *["\n"] * 4, ""]), parts, reader.tokenizer).text.split("\n")
        assert copied == (["12", "", "10:30 – 4.5 %", "", "---"] if copies_signs else [""] * 5)


@given(
    lengths=st.lists(st.integers(1, 60), max_size=300),
    most_tokens=st.integers(1, 2000),
    most_sentences=st.integers(1, 200),
)
@example([5] * 4, 10, 9)
def test_each_sentence_is_in_one_batch_of_its_length(
    lengths: list[int], most_tokens: int, most_sentences: int
) -> None:
    # A prefix that is longer than the source counts instead.
    rows = [([0] * (each - 1), [0] * ((each - 1) // 2)) for each in lengths]
    sentences = [Sentence(1, *(row[::-1] if number % 2 else row)) for number, row in enumerate(rows)]
    batches = batches_by_length(sentences, most_tokens, most_sentences)
    assert sorted(index for batch in batches for index in batch) == [*range(len(lengths))]
    ordered = [lengths[index] for batch in batches for index in batch]
    assert ordered == sorted(ordered, reverse=True)
    for batch in batches:
        assert len(batch) <= most_sentences
        assert len(batch) == 1 or lengths[batch[0]] * len(batch) <= most_tokens
        # There was no room for one more.
        is_full = len(batch) == most_sentences or lengths[batch[0]] * (len(batch) + 1) > most_tokens
        assert is_full or batch == batches[-1]
