"""Which source words are copied as one word, and a model that learns to copy them."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from unicodedata import normalize

import pytest
import torch

from mt.config.data import TokenizerConfig, UnicodeForm
from mt.data.text_form import TextForm
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.train import train_tokenizer
from mt.inference.model_translator import ModelTranslator
from mt.inference.segments import Segment
from mt.inference.source_reader import SourceReader
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory
from mt.search.hypothesis import Hypothesis
from mt.search.strategy import Beam, Sampling, Strategy
from mt.special_tokens import UNK_ID
from mt.training.run import run_training
from tests.fixture_types import MakeConfig

CPU = torch.device("cpu")
KNOWN = 'the man saw a dog on 10 roads , . - " / : hot well known time 3 B 他 是'


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(
        [f'{KNOWN} man-man man. man/man 3:3 3,3 "man", man'], TokenizerConfig(min_frequency=1)
    )


@pytest.mark.parametrize(
    ("text", "copies"),
    [
        ("the man saw a dog .", []),
        ("the Zorblat saw a Quux.", ["Zorblat", "Quux"]),
        ("the man saw 4711-23 roads", ["4711-23"]),
        # An address or a compound is copied with its known words, but not the punctuation around.
        ("the Zorblat-known dog, well-Quux.", ["Zorblat-known", "well-Quux"]),
        (
            "www.man.org, https://dog.org/man/saw?time=3. #dog",
            ["www.man.org", "https://dog.org/man/saw?time=3", "#dog"],
        ),
        ('"a.man@dog.known" the man/dog-Quux "', ["a.man@dog.known", "man/dog-Quux"]),
        ("man,Zorblat", ["Zorblat"]),
        ('"Zorblat", well-known', ["Zorblat"]),
        ("a 4711-time man", ["4711"]),
        # Known numbers and capital letters belong to the unknown one that they touch, and only then.
        ("on 10:4711", ["10:4711"]),
        ("on 3:10:4711:3", ["3:10:4711:3"]),
        ("a B-4711 dog", ["B-4711"]),
        # An unknown mark belongs to an unknown word as well; letters without blanks make one word.
        ("the €4711 dog", ["€4711"]),
        ("他是鱷魚", ["鱷魚"]),
        # Marks of our own in the text.
        ("a Zor￭blat ▁ dog", ["Zor￭blat", "▁"]),
        ("  the\tZorblat \n man  ", ["Zorblat"]),
    ],
)
def test_which_words_are_copied(text: str, copies: list[str], tokenizer: Tokenizer) -> None:
    (tokens,) = SourceReader(tokenizer, {}, copies=True).read_batch([text])
    assert [token.copy for token in tokens if token.copy is not None] == copies
    assert all((token.id == UNK_ID) == (token.copy is not None) for token in tokens)
    # What is not carried over is read as ever.
    known = [token_id for token_id in tokenizer.encode(text) if token_id != UNK_ID]
    assert {token.id for token in tokens} - {UNK_ID} <= set(known)


def test_a_long_chain_is_read_as_one_word(tokenizer: Tokenizer) -> None:
    (tokens,) = SourceReader(tokenizer, {}, copies=True).read_batch(["3," * 30_000 + "Zorblat 3"])
    assert len(tokens) == 2


@pytest.mark.parametrize(
    ("text", "copies"),
    [
        # The longest first; one within an unknown word is ignored.
        ("a dog saw a hot dog.", ["Hund", "Würstchen"]),
        ("a well-known Quux", ["berühmt", "Kwuks"]),
        ("Zorblat-Quux", ["Zorblat-Quux"]),
        ("Quux-Zorblat", ["Kwuks", "Zorblat"]),
        ("the hot dog-Zorblat saw", ["Würstchen", "Zorblat"]),
        ("the Zorblat+B saw", ["Zorblat+B"]),
    ],
)
def test_entries_of_a_dictionary_are_one_word_each(
    text: str, copies: list[str], tokenizer: Tokenizer
) -> None:
    dogs = {"dog": "Hund", "hot dog": "Würstchen", "hot": "heiß"}
    dictionary = {**dogs, "well-known": "berühmt", "Quux": "Kwuks", "B": "Bee"}
    [tokens] = SourceReader(tokenizer, dictionary, copies=True).read_batch([text])
    assert [token.copy for token in tokens if token.copy] == copies
    assert all(token.must_stay == (token.copy in dictionary.values()) for token in tokens)


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_entries_are_found_in_any_equivalent_spelling(form: UnicodeForm) -> None:
    tokenizer = train_tokenizer([KNOWN], TokenizerConfig(min_frequency=1))
    tokenizer.begin_with(TextForm(form).steps())
    composed, decomposed = "crème brûlée", normalize("NFD", "crème brûlée")
    for entry, text in ((composed, decomposed), (decomposed, composed), (decomposed, decomposed)):
        reader = SourceReader(tokenizer, {entry: "gebrannte Creme"}, copies=True)
        (tokens,) = reader.read_batch([f"a {text}"])
        assert [token.copy for token in tokens if token.copy] == ["gebrannte Creme"]


def test_copies_are_put_where_the_unknown_words_are(tokenizer: Tokenizer) -> None:
    unk = tokenizer.encode("Zorblat")
    text = [*tokenizer.encode("the"), *unk, *tokenizer.encode("man. ")[1:], *tokenizer.encode("saw"), *unk]
    assert tokenizer.decode(text, ["Zor￭blat", "4711-23"]) == "the Zor￭blat. saw 4711-23"
    assert tokenizer.decode(text) == "the <unk>. saw <unk>"
    assert tokenizer.decode([*tokenizer.encode("他是"), *unk], ["鱷魚"]) == "他是鱷魚"


@pytest.mark.parametrize("copy", ["王伟", "สมชาย ใจดี", "<s>Milch</s>", "<pad>", "\ue000d", "￭x▁"])
def test_copies_are_written_as_they_are(copy: str, tokenizer: Tokenizer) -> None:
    unk = tokenizer.encode("Zorblat")
    text = [*tokenizer.encode("saw"), *unk, *unk, *tokenizer.encode("dog")]
    assert tokenizer.decode(text, [copy, "Quux"]) == f"saw {copy} Quux dog"


def test_a_space_that_is_unknown_is_not_copied_and_joins_nothing() -> None:
    latin = train_tokenizer(["I saw the man 10"], TokenizerConfig(min_frequency=1))
    reader = SourceReader(latin, {}, copies=True)
    (tokens,) = reader.read_batch(["I saw 10 王伟 I"])
    assert [token.copy for token in tokens] == [None, None, None, "王伟", None]
    assert [token.id for token in tokens] == latin.encode("I saw 10 Quux I")


def test_the_alignment_of_a_prefix_does_not_matter(tokenizer: Tokenizer) -> None:
    reader = SourceReader(tokenizer, {}, copies=True)
    source, beginning = reader.read_batch(["the Quux saw", "a Zorblat"])
    ids = [*(token.id for token in beginning), UNK_ID]
    # The first unknown word was taken for EOS, which follows the last token.
    hypothesis = Hypothesis(ids, -1.0, finished=True, copied=(len(source), 1))
    assert Segment(0, 0, 0, source, beginning).copied_words(hypothesis) == ["Zorblat", "Quux"]


@pytest.mark.parametrize(
    ("prefix", "positions"),
    [
        ("the Quux", [-1, 3]),
        ("Zorblat Quux Wixnub", [0, 3, -1]),
        ("Quux Quux Quux", [3, 5, -1]),
        # What a dictionary writes for a known word may be an unknown word of the target language.
        ("Hund", [2]),
        ("", []),
    ],
)
def test_a_prefix_copies_the_first_unknown_words_of_the_same_text(
    prefix: str, positions: list[int], tokenizer: Tokenizer
) -> None:
    (source,) = SourceReader(tokenizer, {"dog": "Hund"}, copies=True).read_batch(
        ["Zorblat the dog Quux saw Quux"]
    )
    (tokens,) = SourceReader(tokenizer, {}, copies=True).read_batch([prefix])
    assert Segment(0, 0, 0, source, tokens).prefix_copies() == positions


@pytest.fixture(scope="module")
def copying(make_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run of 300 steps that has learnt its little language, and to copy unknown words."""
    run = RunDirectory(tmp_path_factory.mktemp("copying") / "run")
    config = make_config(
        "training.guided_alignment=0.5",
        "training.unknown_share=0.4",
        "training.max_steps=300",
        "training.log_every_steps=50",
        "validation.every_steps=300",
        "checkpoint.every_steps=300",
        "model.d_model=32",
        "model.dropout=0.1",
    )
    run_training(config, run)
    return run


@pytest.fixture(params=["torch", "ctranslate2"])
def load(
    request: pytest.FixtureRequest, copying: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Translator]:
    """Loads that run for each engine."""
    pytest.importorskip(request.param)
    monkeypatch.setenv("MT_ENGINE", request.param)
    return partial(Translator.from_run, copying, device="cpu", precision="float32")


SENTENCES = {
    "the zebra sees milk.": "zebra",
    "Anna buys a Zorblat today.": "Zorblat",
    "Quux finds the car!": "Quux",
    "my aunt paints the 4711-23.": "4711-23",
}


def arrived(translations: Sequence[str], words: Sequence[str]) -> int:
    return sum(word in translation for translation, word in zip(translations, words, strict=True))


@pytest.mark.parametrize("strategy", [None, Beam(3, 1.0), Sampling(0.3, 1)], ids=["greedy", "beam", "sample"])
def test_it_learns_to_copy_unknown_words(strategy: Strategy, load: Callable[..., Translator]) -> None:
    translator = load()
    assert translator.engine.name == os.environ["MT_ENGINE"]
    translations = translator.translate(list(SENTENCES), strategy=strategy)
    assert arrived(translations, list(SENTENCES.values())) >= 3
    assert not any("<unk>" in line for line in translations)
    [[found]] = translator.n_best(["the Zorblat-car sees milk."], strategy=Beam(3))
    assert (found.unknown, found.copied) == (["Zorblat-car"], ["Zorblat-car"])
    assert "Zorblat-car" in found.text
    known = "a child buys milk."
    assert translator.translate([known], strategy=strategy) == ["ein Kind kauft Milch."]
    # A sentence of known words has nothing to copy, whatever else is in the batch.
    *_, [last] = translator.n_best([*SENTENCES, known], strategy=strategy)
    # What is sampled depends on the number of the line.
    [[alone]] = translator.n_best([known], strategy=strategy, first_line=len(SENTENCES) + 1)
    assert last.text == alone.text
    assert last.log_prob == pytest.approx(alone.log_prob, abs=1e-5)


@pytest.mark.parametrize("strategy", [None, Beam(3)])
def test_a_word_of_a_prefix_is_not_copied_in_place_of_another(
    strategy: Strategy, load: Callable[..., Translator]
) -> None:
    translator = load()
    [[found]] = translator.n_best(["the Zorblat sees Quux."], strategy=strategy, prefixes=["Quux"])
    [(_, hypothesis)] = found.parts
    assert hypothesis.copied[0] == 3
    assert found.text.startswith("Quux")
    assert found.text.count("Quux") == 1


def test_a_dictionary_overrides_the_model(load: Callable[..., Translator]) -> None:
    translator = load(dictionary={"zebra": "Steppenpferd", "milk": "Saft"})
    (translation,) = translator.translate(["my aunt sees milk."])
    assert translation == "meine Tante sieht Saft."
    assert "Steppenpferd" in translator.translate(["the zebra sees a house."])[0]


def test_attention_with_a_dictionary(copying: RunDirectory) -> None:
    translator = ModelTranslator.from_run(copying, device=CPU, dictionary={"zebra": "gestreiftes Pferd"})
    for targets in (None, ["das Pferd."]):
        [sentence] = translator.attention(["the zebra sees milk."], targets)
        assert [token.label for token in sentence.src.tokens][:3] == ["the", "zebra", "sees"]
