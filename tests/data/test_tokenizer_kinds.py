"""Every kind of tokenizer: text comes back from its ids, and training gives the same file each time."""

import unicodedata
from pathlib import Path
from typing import Literal

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from mt.config.data import CleaningConfig, TokenizerConfig
from mt.data.cleaning.filters import Cleaner
from mt.data.text_form import TextForm
from mt.data.tokenizers.tokenizer import Tokenizer, normalise_spacing
from mt.data.tokenizers.train import BYTES, train_tokenizer
from mt.errors import DataError
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID, SPECIAL_TOKENS, UNK_ID
from tests.data.difficult_texts import NASTY

KINDS = ["word", "char", "bpe", "bpe_metaspace"]
SPELLING = ["char", "bpe", "bpe_metaspace"]
NO_TEXT = {PAD_ID, UNK_ID, BOS_ID, EOS_ID}

GERMAN = [
    "Er sagte: „Die Straßenbahn fährt um 7.30 Uhr!“, und lief — wie immer — los.",
    "Das Fußballspiel (2:1) war's: Übermut, Ärger & Öl für 3,50 €.",
]
FRENCH = [
    "« Ça va ? » dit-il ; « non ! » répondit l’élève aujourd'hui : 50 %.",
    "L'été, qu’est-ce que c'est ? — Rien…",
]
CHINESE = [
    "我是中国人。我 在 2024 年说：“你好，world！”",
    "北京市、上海市（共2个）的iPhone用户很多。",
    "他 说 hello 世界 。",
]
JAPANESE = ["東京タワーへコーヒーを飲みに行く。", "ｺｰﾋｰ「１杯」 ください"]
THAI = ["สวัสดีครับ ผมชื่อ John ที่นี่(ครับ) ฿100 ๆ", "นิวยอร์กเป็นเมืองใหญ่ และ สวยงาม"]
SAMPLES = GERMAN + FRENCH + CHINESE + JAPANESE + THAI
ODD = [
    "",
    " \t\u3000",
    "<s> </s><pad> a<unk>b <0x0A> <0x41><0xZZ>",
    "▁ ▁▁a▁b\ue000a\ue000 ￭ ￭,",
    "Ġthe Ċ â\u0306 \x00\x01",
    "👨‍👩‍👧‍👦 ❤️ 🇩🇪 \U0010ffff",
    "الس\u200fلام हिन्दी में 안녕",
]
TEXTS = SAMPLES + ODD + NASTY

# What is difficult for the rules, often; and now and then anything.
any_text = st.text(
    st.one_of(
        st.sampled_from("ab  .,中国ー。กั\u0e31ｰ▁￭\ue000\u0301\u1000က\u102b<s>/É\u3000\t\U0001f600𠀀"),
        st.characters(exclude_categories=["Cs"]),
    )
)


def config(kind: str, **fields: object) -> TokenizerConfig:
    return TokenizerConfig.model_validate({"kind": kind, "min_frequency": 1, **fields})


@pytest.fixture(scope="module")
def trained() -> dict[str, Tokenizer]:
    return {kind: train_tokenizer(SAMPLES * 2, config(kind, max_size=600)) for kind in SPELLING} | {
        "word": train_tokenizer(TEXTS, config("word"))
    }


@pytest.mark.parametrize("kind", SPELLING)
@settings(max_examples=300, deadline=None)
@given(text=any_text)
def test_any_text_comes_back_whatever_was_trained_on(
    trained: dict[str, Tokenizer], kind: str, text: str
) -> None:
    ids, words = trained[kind].encode_with_words(text)
    assert ids == trained[kind].encode(text)
    assert not NO_TEXT & set(ids)
    assert trained[kind].decode([BOS_ID, *ids, EOS_ID, PAD_ID]) == normalise_spacing(text)
    assert "".join(words) == "".join(text.split())


@pytest.mark.parametrize("kind", KINDS)
def test_the_plain_library_gives_the_same_ids_and_text(trained: dict[str, Tokenizer], kind: str) -> None:
    plain = tokenizers.Tokenizer.from_str(trained[kind].to_json())
    for text in TEXTS:
        ids = plain.encode(text).ids
        assert ids == trained[kind].encode(text)
        assert plain.decode([BOS_ID, *ids, EOS_ID, PAD_ID]) == normalise_spacing(text)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_tokenizer_equals_the_saved_one(
    trained: dict[str, Tokenizer], kind: str, tmp_path: Path
) -> None:
    trained[kind].save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.to_json() == trained[kind].to_json()
    one_by_one = [trained[kind].encode(text) for text in TEXTS]
    assert loaded.encode_batch(TEXTS) == trained[kind].encode_batch(TEXTS) == one_by_one
    assert loaded.tokens(range(4)) == list(SPECIAL_TOKENS)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_whatever_a_model_writes_is_one_line(
    trained: dict[str, Tokenizer], kind: str, data: st.DataObject
) -> None:
    ids = st.integers(0, trained[kind].size - 1)
    text = trained[kind].decode(data.draw(st.lists(ids)))
    assert text == normalise_spacing(text)
    assert len(text.splitlines()) <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_surrogate_pair_is_an_error(trained: dict[str, Tokenizer], kind: str) -> None:
    for text in ("a \ud800b", "中\udfff"):
        for encode in (trained[kind].encode, trained[kind].encode_with_words):
            with pytest.raises(DataError, match=r"is not valid Unicode.*U\+D[8F]"):
                encode(text)


def test_characters_are_tokens_and_rare_ones_are_bytes() -> None:
    tokenizer = train_tokenizer(["aab  ab", "é"], config("char", min_frequency=2))
    assert tokenizer.tokens(range(tokenizer.size)) == [*SPECIAL_TOKENS, *BYTES, "▁", "a", "b"]
    assert tokenizer.tokens(tokenizer.encode(" ab é")) == ["a", "b", "▁", "<0xC3>", "<0xA9>"]
    assert tokenizer.encode_with_words("ab é")[1] == ["a", "b", "", "é", ""]
    assert train_tokenizer(["aaabb"], config("char", max_size=262)).size == 262


def test_frequent_words_are_one_token_of_bpe_with_their_space() -> None:
    texts = ["the cat, the dog"] * 3
    for kind, mark in (("bpe", "Ġ"), ("bpe_metaspace", "▁")):
        tokenizer = train_tokenizer(texts, config(kind, min_frequency=2))
        tokens = tokenizer.tokens(tokenizer.encode("the dog, the cat"))
        assert tokens == [f"{mark}the", f"{mark}dog", ",", f"{mark}the", f"{mark}cat"]
        assert tokenizer.encode_with_words("the dog")[1] == ["the", "dog"]


@pytest.mark.parametrize("kind", ["bpe", "bpe_metaspace"])
def test_no_text_is_merged_into_a_special_token(kind: str) -> None:
    texts = ["<s> </s> <unk> <pad> <0x41> <s></s><pad><unk><0x41>"] * 50
    tokenizer = train_tokenizer(texts, config(kind))
    for text in texts:
        assert not NO_TEXT & set(tokenizer.encode(text))
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", SPELLING)
def test_the_vocabulary_has_at_most_the_requested_size(kind: str) -> None:
    assert train_tokenizer(SAMPLES, config(kind, max_size=300)).size <= 300
    rare = train_tokenizer(SAMPLES, config(kind, min_frequency=10**6))
    assert rare.size in (len(SPECIAL_TOKENS) + 256, len(SPECIAL_TOKENS) + 256 + 1)  # the space
    assert rare.decode(rare.encode(CHINESE[0])) == CHINESE[0]


@pytest.mark.parametrize("kind", KINDS)
def test_lower_case_is_all_that_comes_back(kind: str) -> None:
    texts = [*SAMPLES, "ΑΣ ОДИН İ ẞ ǅ"]
    tokenizer = train_tokenizer(texts, config(kind, lowercase=True))
    small = "".join  # Character by character, for the library knows no final sigma.
    for text in texts:
        expected = normalise_spacing(small(character.lower() for character in text))
        assert tokenizer.decode(tokenizer.encode(text)) == expected
        assert not NO_TEXT & set(tokenizer.encode(text))
    # The words of the text keep their case, to be copied.
    assert tokenizer.encode_with_words("Ä b")[1][0] == "Ä"
    assert tokenizer.encode("ÄB") == tokenizer.encode("äb")


def test_text_to_translate_is_normalised_like_the_training_text() -> None:
    # The era Reiwa, a modifier letter and a circled sign, which are newer than the tables of some libraries.
    texts = ["平成 \u32ff 元年", "a \U00010781 b", "c \U0001f16c d", "½ ﬁn", "２０２４年"]
    cleaner = Cleaner(CleaningConfig(unicode_form="NFKC"))
    made = train_tokenizer([src for src, _ in cleaner.clean([(text, "x") for text in texts])], config("word"))
    made.begin_with(TextForm("NFKC").steps())
    for text in texts:
        assert UNK_ID not in made.encode(text)


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
@pytest.mark.parametrize("kind", KINDS)
def test_text_in_any_unicode_form_is_read_in_one(
    kind: str, form: Literal["NFC", "NFKC"], tmp_path: Path
) -> None:
    samples = [*SAMPLES, "한국 사과, ½ ﬁn", "José. Dalí, Đà Nẵng! 홍길동."]
    texts = [unicodedata.normalize(form, text) for text in samples]
    made = train_tokenizer(texts, config(kind))
    made.begin_with(TextForm(form).steps())
    made.save(tmp_path / "tokenizer.json")
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    for text in texts:
        apart = unicodedata.normalize("NFD", text)
        ids, words = tokenizer.encode_with_words(apart)
        assert ids == tokenizer.encode(apart) == tokenizer.encode(text)
        assert tokenizer.decode(ids) == normalise_spacing(text)
        # No accent is lost of what may have to be copied, and it is copied in this form.
        assert words == tokenizer.encode_with_words(text)[1]
        assert "".join(words) == "".join(text.split())


@pytest.mark.parametrize("kind", ["bpe", "bpe_metaspace"])
def test_a_vocabulary_size_beyond_memory_does_not_crash(kind: Literal["bpe", "bpe_metaspace"]) -> None:
    sizes = [
        train_tokenizer(["a cat and a dog"] * 3, TokenizerConfig(kind=kind, max_size=size)).size
        for size in (5_000, 10**18)
    ]
    assert sizes[0] == sizes[1]
