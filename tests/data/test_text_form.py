"""Text in one form: what is canonically equal, or differs in nothing that can be seen, is read alike."""

import html
import random
import sys
import time
import unicodedata

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from mt.config.data import CleaningConfig, TokenizerConfig
from mt.data.cleaning.filters import Cleaner
from mt.data.text_form import TextForm
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.train import train_tokenizer

FORM = TextForm.of(CleaningConfig())
CHANCE = random.Random(1)
# Characters of the category Cf that have ink, or lay out hieroglyphs.
VISIBLE = {
    *range(0x600, 0x606),
    0x6DD,
    0x70F,
    0x890,
    0x891,
    0x8E2,
    0x110BD,
    0x110CD,
    *range(0x13430, 0x13440),
}


def lines(words: str, num_words: int = 7, between: str = " ") -> list[str]:
    return [between.join(CHANCE.choices(words.split(), k=num_words)) for _ in range(1000)]


GOOD = {
    # With joiners within and at the end of words.
    "Hindi": lines("मैं घर जा रहा हूँ। क्‍या श्रीमान् राजकुमार क़लम ज़रूर शक्‌ति पढ़ाई क्‍ है, १२३"),
    "Persian": lines("او می‌خواهد خانه‌ای کتاب‌ها نمی‌دانم؟ قطعاً‌ ه‍.ش «سلام» ۱۳۷۵ ‏(ایران)‎ شده‌"),
    "Thai": lines("ผม กำลัง อ่าน หนังสือ น้ำ ที่ บ้าน ๑๒๓ ฯลฯ เด็กๆ", between=""),
    "Vietnamese": lines("Tôi đang đọc một quyển sách ở nhà, người Việt Nam rất thích phở! Đường"),
    "emoji": lines("👨‍👩‍👧‍👦 👩🏽‍💻 🏳️‍🌈 🏴󠁧󠁢󠁳󠁣󠁴󠁿 1️⃣ #️⃣ ❤️ ❤️‍🔥 👍🏿 🇩🇪 🏴‍☠️ 🧑🏻‍🤝‍🧑🏾 ☺️ ©️ 🫱🏻‍🫲🏿 👁️‍🗨️ ok!"),
    "code": lines("if(x<=y){ return&a[i++]; } //→ \"ä\\n\" 'π' λ: #!/bin/sh 0xFF $$ {{%s}} a\u00a0b ﬁ ２ ²"),
}


@pytest.mark.parametrize("kind", GOOD)
def test_good_text_is_not_changed_but_for_its_form(kind: str) -> None:
    texts = GOOD[kind]
    assert FORM.rewrite(texts) == [unicodedata.normalize("NFC", text) for text in texts]
    composed = FORM.rewrite(texts)
    cleaner = Cleaner(CleaningConfig())
    assert cleaner.clean([(text, text) for text in composed]) == [(text, text) for text in composed]


def test_every_character_without_ink_is_dropped_between_latin_letters() -> None:
    formats = [chr(code) for code in range(sys.maxunicode) if unicodedata.category(chr(code)) == "Cf"]
    assert len(formats) > 150
    for character in [*formats, "\ufe0f"]:
        is_kept = ord(character) in VISIBLE
        assert FORM.rewrite([f"a{character}é", character]) == (
            [f"a{character}é", character] if is_kept else ["aé", ""]
        ), ascii(character)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ko\u0308nigin", "Königin"),
        # Only what is dropped lets the accent reach its letter.
        ("e\xad\u0301", "é"),
        ("\ufeffThe \u200bcat\u2060.", "The cat."),
        ("price\u200e (new\u200f)", "price (new)"),
        ("price\u200e (חדש)", "price\u200e (חדש)"),
        ("Auf\u200clage \u200d", "Auflage "),
        ("👩 \u200d 💻 1\ufe0f a\ufe0f", "👩  💻 1 a"),
        ("x\U000e0067\U000e007f 🏴\U000e0067\U000e007f", "x 🏴\U000e0067\U000e007f"),
    ],
)
def test_what_cannot_be_seen_goes_where_it_does_nothing(text: str, expected: str) -> None:
    assert FORM.rewrite([text]) == [expected]


def test_the_names_of_characters_in_html_are_written_out_on_request() -> None:
    form = TextForm(unescape_html=True)
    names = "quot apos lt gt nbsp amp #34 #39 #91 #93 #124 #160"
    for name in names.split():
        text = f"a &{name}; b &amp;{name};"
        assert form.rewrite([text, "no name"]) == [html.unescape(text), "no name"]
        assert FORM.rewrite([text]) == [text]
    cleaner = Cleaner(CleaningConfig(unescape_html=True))
    assert cleaner.clean([("&quot;Tom&quot; &amp; Ann", "&lt;ja&gt;")]) == [('"Tom" & Ann', "<ja>")]


@given(
    st.text(
        st.sampled_from(
            "ae\u0301\u0308 1\u20e3שقक\u094d👩❤🏽🏴᠊\ufe0f\u200b\u200c\u200d\u200e\u180e\U000e0067\xad"
        )
    )
)
def test_text_in_the_form_stays_as_it_is(text: str) -> None:
    [once] = FORM.rewrite([text])
    assert FORM.rewrite([once]) == [once]
    assert TextForm("NFC").rewrite([f"a{text}"]) == [unicodedata.normalize("NFC", f"a{text}")]


def test_a_line_of_a_million_marks_takes_no_time() -> None:
    started = time.perf_counter()
    for text in ("\u200e a" * 100_000, "\u200d" * 10**6, "\U000e0041" * 10**6, "🏴" + "\U000e0041" * 10**6):
        assert len(FORM.rewrite([text])[0]) <= 200_000
    assert time.perf_counter() - started < 30


def test_pairs_with_nothing_to_see_are_dropped_and_counted() -> None:
    cleaner = Cleaner(CleaningConfig())
    pairs = [("a", "b"), ("\u200b", "b"), ("a", "\xad\u2060"), ("a\u200b", "b")]
    assert cleaner.clean(pairs) == [("a", "b"), ("a", "b")]
    assert cleaner.dropped.counts == {"a side has nothing that can be seen": 2}


def test_a_tokenizer_file_says_the_form_to_any_program() -> None:
    made = train_tokenizer(["Königin mag Bücher"], TokenizerConfig(min_frequency=1))
    expected = made.encode("Königin mag Bücher")
    before = made.to_json()
    made.begin_with(FORM.steps())
    for each in (made, Tokenizer.from_json(made.to_json().encode())):
        assert each.form == FORM
        assert each.encode("Ko\u0308ni\u200bgin mag Bu\u0308cher\u200e") == expected
        assert each.encode_with_words("Ko\u0308ni\u200bgin")[1] == ["Königin"]
        assert each.encode("\u200b") == []
    other = Tokenizer.from_json(before.encode())
    assert other.form == TextForm()
    assert other.to_json() == before
    library = tokenizers.Tokenizer.from_str(made.to_json())
    assert library.encode("Ko\u0308ni\u200bgin mag Bu\u0308cher\u200e").ids == expected
