"""Unknown words are read as known ones that they stand for, and a line in capitals comes back in capitals."""

import pytest

from mt.config.data import TokenizerConfig
from mt.data.tokenizers.train import train_tokenizer
from mt.inference.known_forms import KnownForms
from mt.inference.source_reader import SourceReader
from mt.inference.translator import EngineChoice, Translator
from mt.run_directory import RunDirectory
from mt.special_tokens import UNK_ID

# The more frequent form of a word comes first in the vocabulary.
RARE = "The House Haus walks US US us iyiler a a A man-man, men. Anna In In in"
KNOWN = f"{'the house ' * 9} {'us in ' * 3} {RARE}"
TOKENIZER = train_tokenizer([KNOWN], TokenizerConfig(min_frequency=1))


def read(text: str, language: str = "en") -> str:
    """The words that a text is read as, with its unknown ones in brackets."""
    reader = SourceReader(TOKENIZER, {}, copies=True, known_forms=KnownForms(TOKENIZER, language))
    [tokens] = reader.read_batch([text])
    entries = TOKENIZER.tokens([token.id for token in tokens])
    texts = []
    for token, entry in zip(tokens, entries, strict=True):
        assert (token.id == UNK_ID) == (token.copy is not None)
        texts.append(f"[{token.copy}]" if token.copy else entry)
    return " ".join(texts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the house walks", "the house walks"),
        # An unknown word that is known in other capitals; the one that is known stays.
        ("HAUS haus hAUS", "Haus Haus Haus"),
        ("House us US", "House us US"),
        # One error: two letters swapped, one missing, doubled, or on the key beside it.
        ("huose hose houuse hoyse", "house house house house"),
        # A word is rather unknown than one that is rare.
        ("wlaks", "[wlaks]"),
        # Not two, and nothing short, with a capital, or with other signs.
        ("hsuoe mna Huose h0use", "[hsuoe] [mna] [Huose] [h0use]"),
        # What is copied as a whole stays so.
        ("huose-4711 www.huose.org", "[huose-4711] [www.huose.org]"),
        # The forms that the words of a line in capitals or title case have in other lines.
        ("THE HOUSE IN A US HAUS.", "The house in a us Haus ￭."),
        ("The House In A Haus", "The house in a Haus"),
        ("THE Zorblat HOUSE", "The [Zorblat] house"),
        ("A MAN-HOUSE", "A man ￭-￭ house"),
        # A line of names is not in title case, nor is a single word.
        ("Anna Haus", "Anna Haus"),
        ("Anna Wixnub", "Anna [Wixnub]"),
        # An acronym, and what is too long to be looked up, are no words that are known.
        ("the AN house", "the [AN] house"),
        (f"the {'a' * 5000}", f"the [{'a' * 5000}]"),
        ("House", "House"),
    ],
)
def test_what_a_word_is_read_as(text: str, expected: str) -> None:
    assert read(text) == expected


def test_by_the_rules_of_the_language() -> None:
    assert [read(word, "tr") for word in ("İYİLER", "IYILER")] == ["iyiler", "[IYILER]"]
    assert read("IYILER", "en") == "iyiler"


def test_the_style_of_a_line() -> None:
    style_of = KnownForms(TOKENIZER, "en").style_of
    for line, expected in (("A HOUSE, 12 MEN!", "EIN HAUS"), ("A House, 12 Men", "Ein Haus")):
        style = style_of(line)
        assert style is not None
        assert style("ein Haus", "de") == expected
    for line in ("A house", "A HOUSE in", "HOUSE", "", "12", "他 是 他", "Anna Haus"):
        assert style_of(line) is None, line


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_a_line_comes_back_as_it_was_written(several: RunDirectory, engine: EngineChoice) -> None:
    reading = Translator.from_run(several, tgt="de", engine=engine)
    literal = Translator.from_run(several, tgt="de", engine=engine, as_is=True)
    line, expected = "the dog sees milk.", "der Hund sieht Milch."
    lines = [line, line.upper(), "The Dog Sees Milk.", "the dgo sees mlk.", "the milkk\nANNA SEES MILK."]
    restored = [expected, expected.upper(), "Der Hund Sieht Milch."]
    translations = reading.translate(lines)
    assert translations[:3] == restored
    assert translations[4].split("\n")[1] == "ANNA SIEHT MILCH."
    assert [best.unknown for best, *_ in reading.n_best(lines)][:3] == [[], [], []]
    assert literal.translate([line]) == [expected]
    assert literal.translate(lines)[1] != expected.upper()
    # Of several directions, too.
    assert reading.into("loud").translate(["the dog sees milk."]) == [expected.upper()]
    assert Translator.from_run(several, tgt="en").translate("DER HUND SIEHT MILCH.") == line.upper()
