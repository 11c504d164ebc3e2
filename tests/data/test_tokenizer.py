"""Words: tokens and their words, vocabularies equal to those of the library's trainer, and damaged files."""

import json
import os
import random
from pathlib import Path

import pytest
import tokenizers
from tokenizers.models import WordLevel
from tokenizers.trainers import WordLevelTrainer

from mt.config.data import TokenizerConfig
from mt.data.tokenizers.tokenizer import Tokenizer, normalise_spacing
from mt.data.tokenizers.train import train_tokenizer
from mt.errors import DataError
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID, SPECIAL_TOKENS, UNK_ID
from tests.data.difficult_texts import NASTY

FULL = TokenizerConfig(min_frequency=1, max_size=10**9)


def fuzzed(num_texts: int) -> list[str]:
    """Random strings in which what is difficult in `NASTY` meets at random."""
    generator = random.Random(1)
    pieces = [*sorted(set("".join(NASTY))), *"  \t. ,ab￭▁\ue000中ก", *SPECIAL_TOKENS]
    return ["".join(generator.choices(pieces, k=generator.randrange(25))) for _ in range(num_texts)]


def words(tokenizer: Tokenizer) -> list[str]:
    return tokenizer.tokens(range(tokenizer.size))


@pytest.fixture(scope="module")
def nasty() -> Tokenizer:
    return train_tokenizer(NASTY, FULL)


def test_random_texts_come_back() -> None:
    texts = fuzzed(2000)
    tokenizer = train_tokenizer(texts, FULL)
    for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
        assert tokenizer.decode(ids) == normalise_spacing(text)
        assert not set(ids) & {PAD_ID, UNK_ID, BOS_ID, EOS_ID}


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


@pytest.mark.parametrize("train_on", [NASTY, ["nothing of this"]])
def test_the_words_of_all_ids_are_the_text_without_its_spaces(train_on: list[str]) -> None:
    tokenizer = train_tokenizer(train_on, FULL)
    for text in NASTY + fuzzed(1000):
        ids, words = tokenizer.encode_with_words(text)
        assert ids == tokenizer.encode(text)
        assert len(words) == len(ids)
        assert "".join(words) == "".join(text.split())


@pytest.mark.parametrize("kind", ["word", "char", "bpe", "bpe_metaspace"])
def test_after_a_load_too_a_declared_special_token_in_text_loses_nothing(kind: str, tmp_path: Path) -> None:
    text = "a</s>b <pad> <s><unk>"
    made = train_tokenizer([text], TokenizerConfig.model_validate({"kind": kind, "min_frequency": 1}))
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
    ours = train_tokenizer(
        texts, TokenizerConfig(min_frequency=min_frequency, max_size=max_size, lowercase=lowercase)
    )
    theirs = tokenizers.Tokenizer.from_str(ours.to_json())
    trainer = WordLevelTrainer(
        vocab_size=max_size,
        min_frequency=min_frequency,
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=False,
    )
    theirs.train_from_iterator(texts, trainer)
    assert {word: i for i, word in enumerate(words(ours))} == theirs.get_vocab()


def test_training_is_deterministic_and_knows_no_order_of_lines() -> None:
    texts = NASTY + fuzzed(300)
    assert train_tokenizer(texts, FULL).to_json() == train_tokenizer(texts[::-1], FULL).to_json()


def test_no_word_frequent_enough_is_an_error() -> None:
    with pytest.raises(DataError, match=r"no word that occurs 2 times or more \(tokenizer.min_frequency\)"):
        train_tokenizer(["a b c"], TokenizerConfig(min_frequency=2, max_size=100))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read the tokenizer .*gone\.json: No such file"):
        Tokenizer.load(tmp_path / "gone.json")
    with pytest.raises(DataError, match=r"cannot read the tokenizer .*: Is a directory"):
        Tokenizer.load(tmp_path)


def test_a_file_that_is_not_json_is_an_error(nasty: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    for content in (b"", nasty.to_json().encode()[:-1], b"\xff\xfe\x00", b"[" * 200_000):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"tokenizer\.json is damaged"):
            Tokenizer.load(path)


TRUNCATION = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 5}
PADDING: dict[str, object] = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None}
PADDING |= {"pad_id": 4_000_000, "pad_type_id": 0, "pad_token": "x"}


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("vocab", {"word": 1_000_000}, "its ids are not"),
        ("unk_token", "missing", "Missing .UNK."),
        ("truncation", TRUNCATION, "it truncates or pads"),
        ("padding", PADDING, "it truncates or pads"),
        ("pre_tokenizer", {"type": "NoSuchThing"}, "damaged"),
        # Which makes the library panic.
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}, "damaged"),
    ],
)
def test_a_malicious_file_is_an_error_when_it_is_loaded(
    nasty: Tokenizer, tmp_path: Path, key: str, value: object, what: str
) -> None:
    """Each would end translating in a traceback, or in ids that the model has no row for."""
    content = json.loads(nasty.to_json())
    if key == "vocab" and isinstance(value, dict):
        content["model"]["vocab"] |= value
    else:
        (content["model"] if key == "unk_token" else content)[key] = value
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=rf"tokenizer\.json is damaged .*{what}|{what}"):
        Tokenizer.load(path)


def test_a_file_larger_than_any_of_ours_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.touch()
    os.truncate(path, 2**40)  # A hole, which takes no room on the disk.
    with pytest.raises(DataError, match=r"is larger than 268,435,456 bytes"):
        Tokenizer.load(path)


def test_a_tokenizer_without_our_special_tokens_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    tokenizers.Tokenizer(WordLevel({"[UNK]": 0, "<pad>": 1}, unk_token="[UNK]")).save(str(path))
    with pytest.raises(DataError, match="is not a tokenizer of mt: it does not begin with"):
        Tokenizer.load(path)
