"""A tokenizer.json from elsewhere: its text rules stay, its special tokens become ours."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from mt.config.data import TokenizerConfig
from mt.data.tokenizers.external import external_tokenizer
from mt.data.tokenizers.tokenizer import Tokenizer, normalise_spacing
from mt.data.tokenizers.train import train_tokenizer
from mt.errors import DataError
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID, SPECIAL_TOKENS, UNK

Hub = Any  # the server in conftest.py

TEXTS = ["the cat sees the dog", "the dog, the cat and the other dog", "a cat! a dog?"]


def read(path: object, **fields: object) -> Tokenizer:
    config = TokenizerConfig.model_validate({"kind": "file", "path": str(path), "shared": True, **fields})
    return external_tokenizer(config, limit_seconds=1)


def trained(
    tokenizer: tokenizers.Tokenizer, trainer: Any, size: int, special_tokens: list[str], **options: Any
) -> tokenizers.Tokenizer:
    options |= {"vocab_size": size, "special_tokens": special_tokens, "show_progress": False}
    tokenizer.train_from_iterator(TEXTS, trainer(**options))
    return tokenizer


def byte_level(special_tokens: list[str], **model: Any) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return trained(tokenizer, trainers.BpeTrainer, 400, special_tokens, initial_alphabet=alphabet)


def roberta_like() -> tokenizers.Tokenizer:
    """<s>, <pad>, </s>, <unk> and <mask> at 0 to 4, a template, truncation, padding and dropout."""
    tokenizer = byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], unk_token="<unk>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(pad_id=1, pad_token="<pad>", length=20)
    tokenizer.model.dropout = 0.5
    return tokenizer


def gpt_like() -> tokenizers.Tokenizer:
    """No <unk>; one special token behind the vocabulary, and one added token that is text."""
    tokenizer = byte_level([])
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.add_tokens(["zorblax"])
    return tokenizer


def characters_without_unk() -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return trained(tokenizer, trainers.BpeTrainer, 60, ["</s>", "<pad>"])


def bert_like() -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return trained(tokenizer, trainers.WordPieceTrainer, 80, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])


def unigram() -> tokenizers.Tokenizer:
    vocabulary = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("▁", -2.0), ("▁the", -3.0), ("▁dog", -4.0)]
    vocabulary += [(character, -5.0 - i / 10) for i, character in enumerate("thedogcansr<>/,!?")]
    tokenizer = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>", "<extra_id_0>"])
    return tokenizer


MAKERS = [roberta_like, gpt_like, characters_without_unk, bert_like, unigram]


@pytest.mark.parametrize("make", MAKERS)
def test_its_tokens_are_those_that_the_library_finds_and_no_text_is_special(
    make: Callable[[], tokenizers.Tokenizer], tmp_path: Path
) -> None:
    theirs = make()
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = read(tmp_path)  # The folder will do.
    theirs.no_truncation()
    theirs.no_padding()
    if isinstance(theirs.model, models.BPE):
        theirs.model.dropout = None
    for text in TEXTS:
        tokens = theirs.encode(text, add_special_tokens=False).tokens
        assert ours.tokens(ours.encode(text)) == [UNK if token == "[UNK]" else token for token in tokens]
        assert ours.decode([BOS_ID, *ours.encode(text), EOS_ID, PAD_ID]) == normalise_spacing(text)
    assert ours.tokens(range(4)) == list(SPECIAL_TOKENS)
    for text in ("<s>", "a </s> b<pad>", " <unk>[PAD] [CLS]", "<|endoftext|><mask>"):
        ids, words = ours.encode_with_words(text)
        assert not {PAD_ID, BOS_ID, EOS_ID} & set(ids)
        assert len(words) == len(ids)
    ours.save(tmp_path / "src_tokenizer.json")
    (tmp_path / "tokenizer.json").unlink()
    assert Tokenizer.load(tmp_path / "src_tokenizer.json").encode_batch(TEXTS) == ours.encode_batch(TEXTS)
    if not isinstance(theirs.pre_tokenizer, pre_tokenizers.ByteLevel):
        # What is unknown becomes UNK and does not vanish.
        assert UNK in ours.decode(ours.encode("the § dog"))


def test_without_a_decoder_tokens_have_spaces_between_them_and_copies_in_place_of_unk(tmp_path: Path) -> None:
    content = json.loads(bert_like().to_str()) | {"decoder": None}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    ours = read(tmp_path / "tokenizer.json")
    ids = ours.encode("the § dog")
    assert ours.decode(ids) == "the <unk> dog"
    assert ours.decode(ids, ["new cat"]) == "the new cat dog"


@pytest.mark.parametrize("dropped", ["\ufeff", "\u0301"])
def test_the_words_are_the_whole_text_wherever_its_normalizer_drops_a_character(
    dropped: str, tmp_path: Path
) -> None:
    bert_like().save(str(tmp_path / "tokenizer.json"))
    ours = read(tmp_path)
    for text in (f"{dropped}the cat", f"the {dropped}cat", f"the cat{dropped}", f"{dropped} the cat"):
        ids, words = ours.encode_with_words(text)
        assert ids == ours.encode("the cat")
        assert "".join("".join(word.split()) for word in words) == "".join(text.split())


def test_entries_keep_their_order_and_one_of_ours_stays_as_it_is(tmp_path: Path) -> None:
    theirs = gpt_like()
    theirs.save(str(tmp_path / "tokenizer.json"))
    entries = [theirs.id_to_token(i) for i in range(theirs.get_vocab_size())]
    entries.remove("<|endoftext|>")
    ours = read(tmp_path)
    assert ours.tokens(range(ours.size)) == [*SPECIAL_TOKENS, *entries]
    assert ours.tokens(ours.encode("a zorblax"))[-1] == entries[-1] == "zorblax"
    assert read(tmp_path, lowercase=True).encode("THE Dog") == ours.encode("the dog")
    for kind in ("word", "bpe_metaspace"):
        own = train_tokenizer(TEXTS, TokenizerConfig.model_validate({"kind": kind, "max_size": 300}))
        own.save(tmp_path / "tokenizer.json")
        assert read(tmp_path).to_json() == own.to_json()


@pytest.mark.parametrize(
    "change",
    [lambda content: content.pop("model"), lambda content: content["model"].update(merges=["missing too"])],
)
def test_something_else_is_an_error(change: Callable[[dict[str, Any]], object], tmp_path: Path) -> None:
    content = json.loads(roberta_like().to_str())
    change(content)
    for damaged in (json.dumps(content).encode(), b"", b"7", b"\xff", b"[" * 100_000):
        (tmp_path / "tokenizer.json").write_bytes(damaged)
        with pytest.raises(DataError, match=r"tokenizer\.json is not a usable tokenizer"):
            read(tmp_path)
    for path in (tmp_path / "gone.json", "gone", "~gone/tokenizer.json", "org/gone.json"):
        with pytest.raises(DataError, match=r"tokenizer\.path: there is no file '.*gone.*It may be a"):
            read(path)


READ = """
import json, sys
from mt.config.data import TokenizerConfig
from mt.data.tokenizers.external import external_tokenizer
from mt.errors import MtError
for path in sys.argv[1:]:
    try:
        config = TokenizerConfig(kind="file", path=path, shared=True)
        print(json.dumps(external_tokenizer(config, limit_seconds=1.5).to_json()))
    except MtError as error:
        print(json.dumps(str(error)))
"""


def read_from(hub: Hub, *paths: str) -> list[str]:
    """The content, or the error."""
    return [json.loads(line) for line in hub.run("-c", READ, *paths).stdout.splitlines()]


def test_a_hub_id_and_then_the_cache(new_hub: Callable[[], Hub], tmp_path: Path) -> None:
    hub = new_hub()
    hub.add("org/model", {"tokenizer.json": roberta_like().to_str()})
    hub.add("org/other", {"spiece.model": "x"})
    hub.add("org/gated", {"tokenizer.json": "{}"})
    hub.repositories["org/gated"].is_gated = True
    good, *errors = read_from(hub, "org/model", "org/other", "org/nothing", "org/gated")
    roberta_like().save(str(tmp_path / "tokenizer.json"))
    assert good == read(tmp_path).to_json()
    for name, error in zip(("other", "nothing", "gated"), errors, strict=True):
        assert re.search(rf"^tokenizer\.path: org/{name} cannot be loaded .* Check the name", error)
    hub.is_silent = True
    cached, not_cached = read_from(hub, "org/model", "org/nothing")
    assert cached == good
    assert re.search("org/nothing cannot be loaded .* The Hub is offline here", not_cached)
