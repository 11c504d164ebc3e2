"""Every kind of tokenizer: text and words come back from ids, and damaged files are refused."""

import json
import os
import random
import unicodedata
from pathlib import Path
from typing import Any, Literal

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.models import WordLevel
from tokenizers.trainers import WordLevelTrainer

from mt.config.data import CleaningConfig, TokenizerConfig
from mt.data.cleaning.filters import Cleaner
from mt.data.text_form import TextForm
from mt.data.tokenizers.tokenizer import Tokenizer, normalise_spacing
from mt.data.tokenizers.train import BYTES, extended, old_pieces, train_tokenizer
from mt.errors import DataError
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID, SPECIAL_TOKENS, UNK_ID
from tests.data.difficult_texts import NASTY

KINDS = ["word", "char", "bpe", "bpe_metaspace"]
SPELLING = KINDS[1:]
NO_TEXT = {PAD_ID, UNK_ID, BOS_ID, EOS_ID}
FULL = TokenizerConfig(min_frequency=1, max_size=10**9)


def config(kind: str, **fields: object) -> TokenizerConfig:
    return TokenizerConfig.model_validate({"kind": kind, "min_frequency": 1, **fields})


def fuzzed(num_texts: int) -> list[str]:
    """Random strings in which what is difficult in `NASTY` meets at random."""
    generator = random.Random(1)
    pieces = [*sorted(set("".join(NASTY))), *"  \t. ,ab￭▁\ue000中ก", *SPECIAL_TOKENS]
    return ["".join(generator.choices(pieces, k=generator.randrange(25))) for _ in range(num_texts)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('She said: "don\'t!"', 'She said ￭: "￭ don ￭\'￭ t ￭! ￭"'),
        ("(a) - b-c", "(￭ a ￭) - b ￭-￭ c"),
        ("« a ! »", "« a ! »"),
        ("他 说hello 世界。", "他 ▁ 说 hello ▁ 世 界 ￭。"),
        ("ที่ นี่", "ที่ ▁ นี่"),
        ("コーヒー", "コ ー ヒ ー"),
        ("हिन्दी में", "हिन्दी में"),
        ("3.50 $", "3 ￭.￭ 50 $"),
    ],
)
def test_tokens_by_hand(text: str, expected: str) -> None:
    tokenizer = train_tokenizer([text], FULL)
    assert tokenizer.tokens(tokenizer.encode(text)) == expected.split(" ")


def test_each_id_comes_with_its_word_by_hand() -> None:
    tokenizer = train_tokenizer(["er sagte : war nicht da ! 他 说"], FULL)
    ids, words = tokenizer.encode_with_words('  Er sagte:  "Zorblax-7 war nicht da!"\t他 说他')
    assert ids == tokenizer.encode('  Er sagte:  "Zorblax-7 war nicht da!"\t他 说他')
    assert " ".join(words) == 'Er sagte : " Zorblax - 7 war nicht da ! " 他  说 他'
    unknown = [word for word, token_id in zip(words, ids, strict=True) if token_id == UNK_ID]
    assert unknown == ["Er", ":", '"', "Zorblax", "-", "7", "!", '"']


@pytest.mark.parametrize("are_known", [True, False])
def test_random_texts_come_back_and_their_words_are_the_text_without_its_spaces(are_known: bool) -> None:
    texts = NASTY + fuzzed(1000)
    tokenizer = train_tokenizer(texts if are_known else ["nothing of this"], FULL)
    for text in texts:
        ids, words = tokenizer.encode_with_words(text)
        assert ids == tokenizer.encode(text)
        assert len(words) == len(ids)
        assert "".join(words) == "".join(text.split())
        if are_known:
            assert tokenizer.decode(ids) == normalise_spacing(text)
            assert not set(ids) & NO_TEXT


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_load_too_a_declared_special_token_in_text_loses_nothing(kind: str, tmp_path: Path) -> None:
    text = "a</s>b <pad> <s><unk>"
    made = train_tokenizer([text], config(kind))
    plain = tokenizers.Tokenizer.from_str(made.to_json())
    plain.add_special_tokens(list(SPECIAL_TOKENS))
    assert EOS_ID in plain.encode(text).ids
    plain.save(str(tmp_path / "tokenizer.json"))
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.encode(text) == loaded.encode_with_words(text)[0] == made.encode(text)
    assert loaded.decode(loaded.encode(text)) == text


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize(("min_frequency", "max_size"), [(1, 10**9), (2, 10**9), (1, 50)])
def test_vocabulary_equals_that_of_the_library_trainer(
    min_frequency: int, max_size: int, lowercase: bool
) -> None:
    texts = NASTY + fuzzed(300)
    fields = TokenizerConfig(min_frequency=min_frequency, max_size=max_size, lowercase=lowercase)
    ours = train_tokenizer(texts, fields)
    theirs = tokenizers.Tokenizer.from_str(ours.to_json())
    trainer = WordLevelTrainer(
        vocab_size=max_size,
        min_frequency=min_frequency,
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=False,
    )
    theirs.train_from_iterator(texts, trainer)
    assert {word: i for i, word in enumerate(ours.tokens(range(ours.size)))} == theirs.get_vocab()
    # The order of lines does not matter.
    assert ours.to_json() == train_tokenizer(texts[::-1], fields).to_json()


def test_no_word_frequent_enough_is_an_error() -> None:
    with pytest.raises(DataError, match=r"no word that occurs 2 times or more \(tokenizer.min_frequency\)"):
        train_tokenizer(["a b c"], TokenizerConfig(min_frequency=2, max_size=100))


SOUND: dict[str, dict[str, Any]] = {
    kind: json.loads(train_tokenizer(["a b"], config(kind, max_size=300)).to_json())
    for kind in ("word", "bpe")
}


def changed(kind: str = "word", model: dict[str, object] | None = None, **changes: object) -> bytes:
    content = SOUND[kind] | changes
    return json.dumps(content | {"model": content["model"] | (model or {})}).encode()


PADDING: dict[str, object] = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None}
PADDING |= {"pad_id": 4_000_000, "pad_type_id": 0, "pad_token": "x"}
WRONG = {
    "missing": (None, r"^cannot read the tokenizer .*tokenizer\.json: No such file"),
    "empty": (b"", "is damaged"),
    "cut": (b'{"version": "1.0", "truncation": nul', "is damaged"),
    "not UTF-8": (b"\xff\xfe\x00", "is damaged"),
    "nested": (b"[" * 200_000, "is damaged"),
    "foreign": (
        tokenizers.Tokenizer(WordLevel({"[UNK]": 0, "<pad>": 1}, unk_token="[UNK]")).to_str().encode(),
        "is not a tokenizer of mt: it does not begin with",
    ),
    # Each of these would end translating in a traceback, or in ids that the model has no row for.
    "a gap in its ids": (
        changed(model={"vocab": SOUND["word"]["model"]["vocab"] | {"x": 10**6}}),
        "its ids are",
    ),
    "no UNK": (changed(model={"unk_token": "missing"}), "is damaged .*Missing .UNK."),
    "dropout": (changed("bpe", model={"dropout": 0.1}), "drops merges at random"),
    "truncation": (
        changed(truncation={"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 5}),
        "is damaged",
    ),
    "padding": (changed(padding=PADDING), "is damaged .*it truncates or pads"),
    "an unknown part": (changed(pre_tokenizer={"type": "NoSuchThing"}), "is damaged"),
    # Which makes the library panic.
    "rules": (changed(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}), "is damaged"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_is_not_a_sound_tokenizer_is_an_error(name: str, tmp_path: Path) -> None:
    content, message = WRONG[name]
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        Tokenizer.load(path)
    (tmp_path / "sound.json").write_bytes(changed())
    assert Tokenizer.load(tmp_path / "sound.json").size == 6


def test_a_folder_or_a_file_larger_than_any_of_ours_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read the tokenizer .*: Is a directory"):
        Tokenizer.load(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.touch()
    os.truncate(path, 2**40)  # A hole, which takes no room on the disk.
    with pytest.raises(DataError, match=r"is larger than 268,435,456 bytes"):
        Tokenizer.load(path)


CHINESE = "我是中国人。我 在 2024 年说：“你好，world！”"
SAMPLES = [
    "Er sagte: „Die Straßenbahn fährt um 7.30 Uhr!“, und lief — wie immer — los.",
    "Das Fußballspiel (2:1) war's: Übermut, Ärger & Öl für 3,50 €.",
    "« Ça va ? » dit-il ; « non ! » répondit l’élève aujourd'hui : 50 %.",
    "L'été, qu’est-ce que c'est ? — Rien…",
    CHINESE,
    "北京市、上海市（共2个）的iPhone用户很多。",
    "他 说 hello 世界 。",
    *("東京タワーへコーヒーを飲みに行く。", "ｺｰﾋｰ「１杯」 ください"),
    *("สวัสดีครับ ผมชื่อ John ที่นี่(ครับ) ฿100 ๆ", "นิวยอร์กเป็นเมืองใหญ่ และ สวยงาม"),
]
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
def test_the_saved_file_gives_the_same_ids_and_text_to_mt_and_to_the_plain_library(
    trained: dict[str, Tokenizer], kind: str, tmp_path: Path
) -> None:
    made = trained[kind]
    made.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    plain = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert loaded.to_json() == made.to_json()
    assert loaded.tokens(range(4)) == list(SPECIAL_TOKENS)
    encoded = made.encode_batch(TEXTS)
    for text, ids in zip(TEXTS, encoded, strict=True):
        assert made.encode(text) == plain.encode(text).ids == ids
        assert plain.decode([BOS_ID, *ids, EOS_ID, PAD_ID]) == normalise_spacing(text)
    assert loaded.encode_batch(TEXTS) == encoded


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


@pytest.mark.parametrize(
    ("copies", "text"),
    [
        ([], "a <unk>, (<unk>)"),
        (["New York"], "a New York, (<unk>)"),
        (["<unk>", "\ue000d ￭x▁"], "a <unk>, (\ue000d ￭x▁)"),
        (["b", "c", "d"], "a b, (c)"),
    ],
)
def test_each_unknown_word_is_written_as_the_next_copy_or_as_unk(copies: list[str], text: str) -> None:
    tokenizer = train_tokenizer(["a x, (x)"], FULL)
    [known] = tokenizer.encode("x")
    ids = [UNK_ID if i == known else i for i in tokenizer.encode("a x, (x)")]
    assert tokenizer.decode([BOS_ID, *ids, EOS_ID], copies) == text


@pytest.mark.parametrize(
    ("kind", "lowercase", "added"),
    [
        ("word", False, ["New", "new"]),
        ("word", True, ["new"]),
        ("char", False, ["w", "N"]),
        ("char", True, ["w"]),
    ],
)
def test_what_is_frequent_in_new_text_is_added_behind_a_vocabulary(
    kind: str, lowercase: bool, added: list[str]
) -> None:
    options: dict[str, Any] = {"max_size": 300, "lowercase": lowercase}
    old = train_tokenizer(["a e n"], config(kind, **options))
    new = extended(old, ["New new a b", "New new"], config(kind, min_frequency=2, extend=True, **options))
    assert new.tokens(range(new.size)) == [*old.tokens(range(old.size)), *added]
    # What it was written as before: bytes, where there are some.
    expected = [old.encode(entry) if kind == "char" else [] for entry in added]
    assert old_pieces(old, new) == expected
    assert extended(old, ["New"] * 9, config(kind, **options)) is old


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_surrogate_pair_is_an_error(trained: dict[str, Tokenizer], kind: str) -> None:
    for text in ("a \ud800b", "中\udfff"):
        for encode in (trained[kind].encode, trained[kind].encode_with_words):
            with pytest.raises(DataError, match=r"has a lone surrogate"):
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
    assert rare.decode(rare.encode(CHINESE)) == CHINESE


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


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("kind", [*KINDS, "external"])
def test_reserved_ids_are_never_read_from_text_nor_written_as_text(
    kind: str, is_new: bool, trained: dict[str, Tokenizer], tmp_path: Path
) -> None:
    if kind == "external":
        # One whose text is words between spaces, among which a name would be found.
        words = ["<pad>", "<unk>", "<s>", "</s>", "the", "dog", "<to:de>"]
        content = json.loads(changed())
        content["model"]["vocab"] = {word: number for number, word in enumerate(words[:-1])}
        plain = Tokenizer.from_json(json.dumps(content).encode())
    else:
        plain = trained[kind]
    names = ["<to:de>", "<to:pt-BR>", "<tag:own>", "<tag:synthetic>"]
    tokenizer = plain.with_entries(names, is_new=is_new)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    first = len(SPECIAL_TOKENS) if is_new else plain.size
    assert loaded.reserved == {name: first + number for number, name in enumerate(names)}
    assert (plain.reserved, loaded.size) == ({}, plain.size + len(names))
    text = "the dog <to:de> <tag:own> <tag:synthetic> <to:pt-BR>"
    ids = loaded.encode(text)
    assert not set(ids) & set(loaded.reserved.values())
    assert loaded.encode_with_words(text)[0] == ids
    moved = len(names) if is_new else 0
    if kind != "external":
        assert ids == [i + moved if i >= len(SPECIAL_TOKENS) else i for i in plain.encode(text)]
    assert loaded.decode([loaded.reserved["<to:de>"], *ids, loaded.reserved["<tag:own>"]]) == loaded.decode(
        ids
    )
    more = loaded.with_entries(["<to:it>"], is_new=False)
    assert more.reserved == loaded.reserved | {"<to:it>": loaded.size}
