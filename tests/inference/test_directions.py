"""One model, three directions: a sentence begins with the id of its target's language, which nobody sees."""

from pathlib import Path

import pytest

from mt.errors import ConfigError
from mt.inference.model_translator import ModelTranslator
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam, Constraints, Sampling


@pytest.fixture(params=["torch", "ctranslate2"])
def translator(three_ways: RunDirectory, request: pytest.FixtureRequest) -> Translator:
    return Translator.from_run(three_ways, engine=request.param, device="cpu", precision="float32")


def lines_of(corpus: Path, language: str) -> list[str]:
    return (corpus / f"test.{language}").read_text(encoding="utf-8").splitlines()[:-1]


def test_each_direction_is_translated_into_its_language(translator: Translator, tiny_corpus: Path) -> None:
    lines = {language: lines_of(tiny_corpus, language) for language in ("en", "de")}
    lines["loud"] = [line.upper() for line in lines["de"]]
    # The text of the first and the last is the same: the id alone says what is wanted.
    for src, tgt in (("en", "de"), ("de", "en"), ("en", "loud")):
        bound = translator.into(tgt)
        written = bound.translate(lines[src], strategy=Beam(2))
        assert sum(map(str.__eq__, written, lines[tgt])) >= 0.8 * len(written)
        assert (bound.facts.src, bound.facts.tgt) == (src, tgt)


def test_a_direction_that_is_not_given_or_was_not_trained_is_refused_with_the_list(
    three_ways: RunDirectory, translator: Translator, trained: RunDirectory
) -> None:
    known = "en to de, de to en, en to loud"
    with pytest.raises(ConfigError, match=f"translates {known}: say into which language"):
        translator.translate(["milk"])
    with pytest.raises(ConfigError, match=f"does not translate into fr, only {known}"):
        translator.into("fr")
    with pytest.raises(ConfigError, match="does not translate from en into en"):
        translator.into("en", "en")
    with pytest.raises(ConfigError, match="into fr, only en to de"):
        Translator.from_run(trained, tgt="fr")
    assert Translator.from_run(trained).into(None).facts.tgt == "de"
    assert Translator.from_run(three_ways, engine="torch", tgt="en").facts.src == "de"


def test_the_id_is_never_copied_shown_or_written(translator: Translator) -> None:
    bound = translator.into("de")
    text = "the Zorblat sees <to:en> milk."
    [[best, *_]] = bound.n_best([text], num_best=2, strategy=Beam(4))
    # Text that looks like an id is text, whose unknown parts are copied.
    assert "Zorblat" in best.unknown
    assert not any("to:de" in word for word in best.unknown)
    assert "to:de" not in best.text
    [pairs] = bound.align("the dog sees milk.", bound.n_best(["the dog sees milk."])[0])
    assert pairs is not None
    assert pairs[0] == (0, 0)
    [begun] = bound.translate(["the dog sees milk."], prefixes=["die"], constraints=Constraints(min_length=3))
    assert begun.startswith("die")
    tokens = bound.score([("the dog sees milk.", "der Hund sieht Milch.")])[0].tokens
    assert not any("<to" in token for token in tokens)


def test_a_line_that_is_too_long_has_the_id_in_each_part(translator: Translator) -> None:
    bound = translator.into("de")
    line = "the dog sees milk. " * 12
    [[best]] = bound.n_best([line])
    assert len(best.parts) > 1
    [number] = bound.src_tokenizer.beginning("de")
    for segment, _ in best.parts:
        assert segment.tokens[0].id == number
        assert len(segment.tokens) < bound.facts.max_length
    assert best.text.lower().count("hund") == 12


def test_attention_maps_do_not_show_the_id(three_ways: RunDirectory) -> None:
    translator = ModelTranslator.from_run(three_ways, device="cpu", tgt="de")
    [attention] = translator.attention(["the dog sees milk."])
    labels = [token.label for token in attention.src.tokens]
    assert labels[0] == "the"
    assert attention.encoder_self.shape[-2:] == (len(labels), len(labels))
    assert attention.cross.shape[-1] == len(labels)
    assert len(attention.src.ids) == len(labels) - 1


def test_sampling_never_writes_an_id(three_ways: RunDirectory) -> None:
    bound = Translator.from_run(three_ways, device="cpu", tgt="de")
    sampled = bound.n_best(["the dog sees milk."] * 50, strategy=Sampling(temperature=5.0))
    written = {number for [best] in sampled for _, hypothesis in best.parts for number in hypothesis.ids}
    assert len(written) > 30
    assert written.isdisjoint(bound.tgt_tokenizer.reserved.values())
