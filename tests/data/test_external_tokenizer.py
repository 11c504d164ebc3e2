"""A tokenizer.json from elsewhere: its text rules stay, its special tokens become ours."""

import json
import os
import subprocess
import sys
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
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID, SPECIAL_TOKENS, UNK, UNK_ID

Hub = Any  # the server in conftest.py

TEXTS = ["the cat sees the dog", "the dog, the cat and the other dog", "a cat! a dog?"]


def read(path: object, **fields: object) -> Tokenizer:
    config = TokenizerConfig.model_validate({"kind": "file", "path": str(path), "shared": True, **fields})
    return external_tokenizer(config, limit_seconds=1)


def byte_level(specials: list[str], **model: Any) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def roberta_like() -> tokenizers.Tokenizer:
    """<s>, <pad>, </s>, <unk> and <mask> at 0 to 4, a template, truncation, padding and dropout."""
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = byte_level(specials, unk_token="<unk>")
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
    trainer = trainers.BpeTrainer(vocab_size=60, special_tokens=["</s>", "<pad>"], show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def bert_like() -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=80, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


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
def test_its_tokens_are_those_that_the_library_finds(
    make: Callable[[], tokenizers.Tokenizer], tmp_path: Path
) -> None:
    theirs = make()
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = read(tmp_path / "tokenizer.json")
    theirs.no_truncation()
    theirs.no_padding()
    if isinstance(theirs.model, models.BPE):
        theirs.model.dropout = None
    for text in TEXTS:
        tokens = theirs.encode(text, add_special_tokens=False).tokens
        assert ours.tokens(ours.encode(text)) == [UNK if token == "[UNK]" else token for token in tokens]
        assert ours.decode([BOS_ID, *ours.encode(text), EOS_ID, PAD_ID]) == normalise_spacing(text)
    assert ours.tokens(range(4)) == list(SPECIAL_TOKENS)


def test_copies_are_written_beside_any_text() -> None:
    # What stands for copies while the rest is decoded, in the text itself.
    texts = ["der \ue000d Hund", "\ue000dd\ue000d", "\ue000der \ue000a"]
    tokenizer = train_tokenizer(texts, TokenizerConfig(min_frequency=1))
    for text in texts:
        ids = [UNK_ID, *tokenizer.encode(text), UNK_ID]
        assert tokenizer.decode(ids, ["Kiribati", "\ue000d"]) == f"Kiribati {text} \ue000d"
        assert tokenizer.decode(ids, ["Kiribati"]) == f"Kiribati {text} <unk>"


def test_copies_are_written_without_a_decoder_too(tmp_path: Path) -> None:
    theirs = tokenizers.Tokenizer(
        models.WordLevel({token: i for i, token in enumerate([*SPECIAL_TOKENS, "man"])}, unk_token=UNK)
    )
    theirs.pre_tokenizer = pre_tokenizers.Whitespace()
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = read(tmp_path / "tokenizer.json")
    assert ours.decode(ours.encode("man Quux man"), ["Qu￭ux"]) == "man Qu￭ux man"


@pytest.mark.parametrize("make", MAKERS)
def test_a_run_needs_nothing_but_its_own_copy(
    make: Callable[[], tokenizers.Tokenizer], tmp_path: Path
) -> None:
    make().save(str(tmp_path / "tokenizer.json"))
    ours = read(tmp_path)  # The folder will do.
    ours.save(tmp_path / "src_tokenizer.json")
    (tmp_path / "tokenizer.json").unlink()
    loaded = Tokenizer.load(tmp_path / "src_tokenizer.json")
    assert loaded.to_json() == ours.to_json()
    assert loaded.encode_batch(TEXTS) == ours.encode_batch(TEXTS)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("text", ["<s>", "a </s> b<pad>", " <unk>[PAD] [CLS]", "<|endoftext|><mask>"])
def test_no_text_is_a_special_token(
    make: Callable[[], tokenizers.Tokenizer], text: str, tmp_path: Path
) -> None:
    make().save(str(tmp_path / "tokenizer.json"))
    ids, words = read(tmp_path).encode_with_words(text)
    assert not {PAD_ID, BOS_ID, EOS_ID} & set(ids)
    assert ids == read(tmp_path).encode(text)
    assert len(words) == len(ids)


@pytest.mark.parametrize("dropped", ["\ufeff", "\u200b", "\u200e", "\u00ad", "\u0301"])
def test_the_words_are_the_whole_text_wherever_its_normalizer_drops_a_character(
    dropped: str, tmp_path: Path
) -> None:
    bert_like().save(str(tmp_path / "tokenizer.json"))
    ours = read(tmp_path)
    for text in (f"{dropped}the cat", f"the {dropped}cat", f"the cat{dropped}", f"{dropped} the cat"):
        ids, words = ours.encode_with_words(text)
        assert ids == ours.encode("the cat")
        assert "".join("".join(word.split()) for word in words) == "".join(text.split())


def test_what_is_unknown_becomes_unk_and_does_not_vanish(tmp_path: Path) -> None:
    for make in (characters_without_unk, bert_like, unigram):
        make().save(str(tmp_path / "tokenizer.json"))
        ours = read(tmp_path)
        assert UNK_ID in ours.encode("the § dog")
        assert UNK in ours.decode(ours.encode("the § dog"))


def test_entries_keep_their_order_and_special_ones_are_gone(tmp_path: Path) -> None:
    theirs = gpt_like()
    theirs.save(str(tmp_path / "tokenizer.json"))
    entries = [theirs.id_to_token(i) for i in range(theirs.get_vocab_size())]
    entries.remove("<|endoftext|>")
    ours = read(tmp_path)
    assert ours.tokens(range(ours.size)) == [*SPECIAL_TOKENS, *entries]
    assert ours.tokens(ours.encode("a zorblax"))[-1] == entries[-1] == "zorblax"


def test_one_of_ours_stays_as_it_is(tmp_path: Path) -> None:
    for kind in ("word", "char", "bpe", "bpe_metaspace"):
        ours = train_tokenizer(TEXTS, TokenizerConfig.model_validate({"kind": kind, "max_size": 300}))
        ours.save(tmp_path / "tokenizer.json")
        assert read(tmp_path).to_json() == ours.to_json()


def test_lower_case_comes_before_its_own_rules(tmp_path: Path) -> None:
    roberta_like().save(str(tmp_path / "tokenizer.json"))
    ours = read(tmp_path, lowercase=True)
    assert ours.encode("THE Dog") == ours.encode("the dog") == read(tmp_path).encode("the dog")


# What may be wrong with it.


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("model"),
        lambda content: content["model"].pop("vocab"),
        lambda content: content["model"].update(vocab=7),
        lambda content: content["model"].update(vocab={"a": "b", "c": 1}),
        lambda content: content["model"].update(vocab=[["a"]], unk_id=9),
        lambda content: content["model"].update(merges=["a b c d"]),
        lambda content: content["model"].update(merges=["missing too"]),
        lambda content: content.update(added_tokens=[{"id": 1}]),
        lambda content: content.update(added_tokens=3),
        lambda content: content.update(normalizer={"type": "NoSuchThing"}),
    ],
)
def test_a_damaged_one_is_an_error_in_a_sentence(
    change: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    content = json.loads(roberta_like().to_str())
    change(content)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"tokenizer\.json is not a usable tokenizer") as error:
        read(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"7", b"\xff", b"[" * 100_000, b'{"a":' * 100_000])
def test_something_else_is_an_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(DataError, match="is not a usable tokenizer"):
        read(tmp_path)


def test_a_path_to_nothing_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.json", "gone", "gone/tokenizer.json", "~gone/tokenizer.json"):
        with pytest.raises(
            DataError, match=r"tokenizer\.path: there is no file '.*gone.*It may be a tokenizer"
        ):
            read(path)
    os.mkfifo(tmp_path / "tokenizer.json")
    with pytest.raises(DataError, match="not a regular file"):
        read(tmp_path)


# The Hub.

READ = """
import io, json, logging, sys, time
from mt.config.data import TokenizerConfig
from mt.data.tokenizers.external import external_tokenizer
from mt.errors import MtError
for path in sys.argv[2:]:
    log = logging.StreamHandler(io.StringIO())
    logging.getLogger("mt").handlers = [log]
    logging.getLogger("mt").propagate = False
    logging.getLogger("mt").setLevel("INFO")
    start = time.monotonic()
    try:
        config = TokenizerConfig(kind="file", path=path, shared=True)
        outcome = {"json": external_tokenizer(config, limit_seconds=float(sys.argv[1])).to_json()}
    except MtError as error:
        outcome = {"error": str(error)}
    print(json.dumps(outcome | {"seconds": time.monotonic() - start, "log": log.stream.getvalue()}))
"""


def read_from(hub: Hub, *paths: str, limit_seconds: float = 30) -> list[dict[str, Any]]:
    """In a fresh process, because ``HF_ENDPOINT`` is read at import."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(hub.home)}
    done = subprocess.run(
        [sys.executable, "-c", READ, str(limit_seconds), *paths],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_hub_id_and_then_the_cache(new_hub: Callable[[], Hub], tmp_path: Path) -> None:
    hub = new_hub()
    commit = hub.add("org/model", {"tokenizer.json": roberta_like().to_str()})
    hub.add("org/other", {"spiece.model": "x"})
    hub.add("org/gated", {"tokenizer.json": "{}"})
    hub.repositories["org/gated"].is_gated = True
    hub.add("org/private", {"tokenizer.json": "{}"})
    hub.repositories["org/private"].refuses_the_token = True
    # Busy for a moment: it is asked again.
    hub.num_busy_answers = 2
    good, other, missing, gated, private = read_from(
        hub, "org/model", "org/other", "org/nothing", "org/gated", "org/private"
    )
    assert hub.num_busy_answers == 0
    roberta_like().save(str(tmp_path / "tokenizer.json"))
    assert good["json"] == read(tmp_path).to_json()
    assert good["log"] == f"tokenizer: org/model, at commit {commit}\n"
    assert other["error"].startswith("tokenizer.path: org/other has no tokenizer.json on the Hub")
    assert missing["error"].startswith("tokenizer.path: there is no model 'org/nothing' on the Hub")
    assert gated["error"].startswith(
        f"tokenizer.path: org/gated is gated: accept its terms at {hub.endpoint}"
    )
    assert private["error"].startswith("tokenizer.path: the Hub refuses access to org/private: ")
    assert "401" in private["error"]
    assert private["log"] == ""
    hub.is_silent = True
    cached, not_cached = read_from(hub, "org/model", "org/nothing", limit_seconds=1.5)
    assert cached["json"] == good["json"]
    assert "treated as offline" in cached["log"]
    assert 1.5 <= cached["seconds"] < 15
    assert not_cached["error"].startswith("tokenizer.path: org/nothing is not cached, the Hub")
    assert not_cached["seconds"] < 1.5


def test_a_busy_hub_is_offline_and_the_cache_serves(new_hub: Callable[[], Hub]) -> None:
    hub = new_hub()
    hub.add("org/model", {"tokenizer.json": gpt_like().to_str()})
    (good,) = read_from(hub, "org/model")
    hub.num_busy_answers = 1_000_000
    (cached,) = read_from(hub, "org/model", limit_seconds=1.5)
    assert cached["json"] == good["json"]
    assert "does not answer" in cached["log"]
