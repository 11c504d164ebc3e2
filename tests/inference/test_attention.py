"""Attention recorded for text: which rows and columns there are, and what they are called."""

from typing import Literal

import pytest
import torch

from mt.config.data import TokenizerConfig
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.train import train_tokenizer
from mt.inference.labels import Labelled, Token, aligned_words, label_read
from mt.inference.model_translator import ModelTranslator
from mt.inference.source_reader import SourceReader
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam
from mt.special_tokens import BOS_ID, EOS_ID, UNK_ID
from mt.transformer.transformer import Transformer

Kind = Literal["word", "char", "bpe", "bpe_metaspace"]
CPU = torch.device("cpu")
SENTENCES = ["Anna buys two red apples today.", "the dog sees milk.", "a child finds the car!"]


@pytest.fixture
def translator(trained: RunDirectory) -> ModelTranslator:
    return ModelTranslator.from_run(trained, device=CPU)


@pytest.mark.parametrize("strategy", [None, Beam(4)])
def test_the_sentence_is_shown_as_the_model_translates_it(
    translator: ModelTranslator, strategy: Beam | None
) -> None:
    recorded = translator.attention(SENTENCES, strategy=strategy)
    assert [each.src.text for each in recorded] == SENTENCES
    assert [each.tgt.text for each in recorded] == translator.translate(SENTENCES, strategy=strategy)
    assert [each.line for each in recorded] == [1, 2, 3]


def test_each_row_sums_to_one_and_padding_has_no_column(translator: ModelTranslator) -> None:
    for sentence in translator.attention(SENTENCES):
        num_src, num_tgt = len(sentence.src.ids) + 1, len(sentence.tgt.ids) + 1
        assert len(sentence.src.tokens) == num_src
        assert len(sentence.tgt.tokens) == num_tgt
        assert sentence.encoder_self.shape == (1, 2, num_src, num_src)
        assert sentence.decoder_self.shape == (1, 2, num_tgt, num_tgt)
        assert sentence.cross.shape == (1, 2, num_tgt, num_src)
        assert not sentence.decoder_self.triu(1).any()
        for weights in (sentence.encoder_self, sentence.decoder_self, sentence.cross):
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-5, rtol=0)


def test_a_row_belongs_to_the_token_that_the_same_position_predicts(translator: ModelTranslator) -> None:
    [sentence] = translator.attention(SENTENCES[:1])
    model = translator.engine.model
    assert isinstance(model, Transformer)
    see_all = torch.ones(1, 1, 1, 1, dtype=torch.bool)
    inputs = torch.tensor([[BOS_ID, *sentence.tgt.ids]])
    causal = torch.ones(inputs.size(1), inputs.size(1), dtype=torch.bool).tril()[None, None]
    logits = model.forward(torch.tensor([[*sentence.src.ids, EOS_ID]]), see_all, inputs, causal)
    predicted = logits[0].argmax(-1).tolist()
    assert translator.tgt_tokenizer.decode(predicted[:-1]) == sentence.tgt.text
    assert predicted[-1] == EOS_ID


def test_a_given_translation_is_forced_and_unknown_words_are_shown_as_written(
    translator: ModelTranslator,
) -> None:
    [sentence] = translator.attention(["the zebra sees milk."], ["das Zebra sieht Milch."])
    assert sentence.src.text == "the zebra sees milk."
    assert sentence.tgt.text == "das Zebra sieht Milch."
    for tokens, ids, word in (
        (sentence.src.tokens, sentence.src.ids, "zebra"),
        (sentence.tgt.tokens, sentence.tgt.ids, "Zebra"),
    ):
        [unknown] = [token for token in tokens if token.is_unknown]
        assert unknown.label == word
        assert ids[1] == UNK_ID
    assert [token.label for token in sentence.src.tokens] == ["the", "zebra", "sees", "milk", ".", "</s>"]
    assert [token.word for token in sentence.src.tokens] == [0, 1, 2, 3, 3, None]


TEXTS = [
    'She said: "don\'t!" to 12 people (or more).',
    "Zwei rote Äpfel -- 3,5 % für $5 <script>alert(1)</script>",
    "naïve  cafés\u00a0über Straßen",
]


def labelled(tokenizer: Tokenizer, text: str) -> list[Labelled]:
    """A text as it is read by models that copy unknown words, and by others."""
    return [label_read(SourceReader(tokenizer, {}, copies=copies), text) for copies in (False, True)]


@pytest.mark.parametrize("kind", ["word", "char", "bpe", "bpe_metaspace"])
@pytest.mark.parametrize("text", TEXTS)
def test_the_labels_of_a_word_joined_are_the_word(kind: Kind, text: str) -> None:
    tokenizer = train_tokenizer(TEXTS * 3, TokenizerConfig(kind=kind, min_frequency=1))
    words = text.split()
    for side in labelled(tokenizer, text):
        assert side.text == " ".join(words)
        of_words = [[token.label for token in side.tokens if token.word == n] for n in range(len(words))]
        assert ["".join(labels) for labels in of_words] == words
        assert (side.tokens[-1].label, side.tokens[-1].word) == ("</s>", None)


@pytest.mark.parametrize("kind", ["char", "bpe", "bpe_metaspace"])
def test_a_character_in_bytes_is_part_of_its_word(kind: Kind) -> None:
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig(kind=kind, min_frequency=1))
    text = "a snow☃man \N{GRINNING FACE} here"
    for side in labelled(tokenizer, text):
        assert side.text == text
        assert all(token.label for token in side.tokens)
        words = [token.word for token in side.tokens if token.word is not None]
        assert words == sorted(words)
        assert set(words) == {0, 1, 2, 3}
        assert words.count(2) == 4


def test_unsegmented_script_has_a_label_for_each_character() -> None:
    tokenizer = train_tokenizer(["他 说hello。"], TokenizerConfig(min_frequency=1))
    for side in labelled(tokenizer, "他 说hello。"):
        assert side.text == "他 说hello。"
        assert [(token.label, token.word) for token in side.tokens] == [
            ("他", 0), ("▁", None), ("说", 1), ("hello", 1), ("。", 1), ("</s>", None),
        ]  # fmt: skip


def test_what_is_copied_or_in_a_dictionary_is_one_token_with_the_text_of_the_source() -> None:
    tokenizer = train_tokenizer(["ask about it"], TokenizerConfig(min_frequency=1))
    unknown = [("ask", 0, False), ("about", 1, False), ("4711-23", 2, True), ("it", 3, False)]
    entries = [("ask", 0, True), ("about it", 1, True), ("now", 3, True)]
    for dictionary, text, expected in (
        ({}, "ask about 4711-23 it", unknown),
        ({"about it": "darum", "ask": "bitten"}, "ask about it now", entries),
    ):
        side = label_read(SourceReader(tokenizer, dictionary, copies=True), text)
        found = [(token.label, token.word, token.is_unknown) for token in side.tokens]
        assert found == [*expected, ("</s>", None, False)]
        assert side.text == text


def test_words_are_aligned_by_the_sums_of_their_tokens() -> None:
    first, second, end = Token("a", 0), Token("b", 1), Token("</s>", None)
    weights = [[0.4, 0.3, 0.3], [0.1, 0.4, 0.5], [0.4, 0.4, 0.2], [0.0, 0.0, 1.0]]
    tgt = [first, first, second, Token("c", 2), end]
    # Of equal sums, the first; a word that attends to the end alone translates none.
    assert aligned_words([first, second, end], tgt, weights) == [(1, 0), (0, 1)]
