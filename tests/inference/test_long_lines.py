from collections.abc import Sequence

import pytest

from mt.inference.segments import Translation, joined, segments_of, split_sentences


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


@pytest.mark.parametrize(
    ("sentences", "line"),
    [
        (["One.", "Two!"], "One. Two!"),
        (["你好。", "再见！", "OK."], "你好。再见！OK."),
        (["今日は", "晴れです。"], "今日は晴れです。"),
        (["สวัสดี", "ลาก่อน"], "สวัสดี ลาก่อน"),
        (["안녕.", "잘 가."], "안녕. 잘 가."),
        (["", "One.", "", "Two."], "One. Two."),
        ([], ""),
    ],
)
def test_translated_sentences_are_joined_as_their_script_joins_them(sentences: list[str], line: str) -> None:
    translation = joined([Translation(sentence, -1.0, -0.5) for sentence in sentences])
    assert translation.text == line
    assert translation.log_prob == -len(sentences)


@pytest.mark.parametrize("max_length", [4, 5, 8])
def test_nothing_is_lost_and_nothing_is_too_long(max_length: int) -> None:
    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [[int(word.rstrip(".")) for word in text.split()] for text in texts]

    texts = ["1 2 3", "", "4 5 6. 7 8 9 10 11 12 13 14. 15", "16 17 18 19", "20."]
    segments = segments_of(texts, encode, max_length=max_length, first_line=1, refuse_long=False)
    assert [number for _, ids in segments for number in ids] == list(range(1, 21))
    assert [index for index, _ in segments] == sorted(index for index, _ in segments)
    assert {index for index, _ in segments} == {0, 2, 3, 4}
    # With EOS there is room for one token less.
    assert max(len(ids) for _, ids in segments) <= max_length - 1
