"""The ``data``, ``cleaning`` and ``tokenizer`` sections: from a corpus to ids."""

import re
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from mt.config.section import Count, CountOrNone, Fraction, Section, Text, TextOrNone, changeable
from mt.config.sources import CorpusConfig, SourceConfig, sources_of_mix
from mt.sides import Sides
from mt.special_tokens import SPECIAL_TOKENS

NUM_BYTES = 256
IMPORTED = "imported"
"""The ``data.path`` of a run that was imported and has no corpus of its own."""
OWN = "own"
"""The name of the first source, that of ``data.path``."""
SOURCE_NAME = re.compile(r"\w[\w-]*")

Script = Literal[
    "any", "Arabic", "Armenian", "Bengali", "Cyrillic", "Devanagari", "Ethiopic", "Georgian", "Greek",
    "Gujarati", "Gurmukhi", "Han", "Hangul", "Hebrew", "Japanese", "Kannada", "Khmer", "Korean", "Lao",
    "Latin", "Malayalam", "Mongolian", "Myanmar", "Oriya", "Sinhala", "Tamil", "Telugu", "Thai", "Tibetan",
]  # fmt: skip
UnicodeForm = Literal["none", "NFC", "NFKC"]
Invisible = Literal["keep", "drop"]


class DataConfig(CorpusConfig):
    """Where the sentence pairs come from."""

    src: Text
    """The source language: the name of its column, or the extension of its file, as in train.en."""

    tgt: Text
    """The target language, likewise."""

    sources: dict[str, SourceConfig] = Field(default={})
    """More training data, by names of your own; each has a path, other keys of data, and a weight."""

    temperature: float = Field(default=1.0, ge=1, le=1000)
    """Show small directions more often, by their sizes to the power of 1 / temperature; 1 is as they are."""

    mix: str | None = Field(default=None, exclude=True)
    """The sources, as earlier versions had them: a line for each, path weight= name= src= tgt=."""

    held_out_fraction: float = Field(default=0.02, gt=0, lt=0.5)
    """Fraction held out for each missing validation or test split, chosen by a hash of the source."""

    max_length: int = Field(default=128, ge=4)
    """Maximum sentence length in tokens, including EOS; longer training pairs are dropped and counted."""

    hub_timeout_seconds: float = changeable(10.0, gt=0, lt=10**9)
    """How long to wait for the Hub to answer before it is considered unreachable."""

    @model_validator(mode="before")
    @classmethod
    def _read_mix(cls, keys: Any) -> Any:
        if not (isinstance(keys, dict) and isinstance(keys.get("mix"), str)):
            return keys
        if keys.get("sources"):
            raise ValueError("data.mix and data.sources exclude each other: name all in data.sources.")
        return keys | {"sources": sources_of_mix(keys["mix"], keys.get("src"), keys.get("tgt"))}

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for name in self.sources:
            if name == OWN or not SOURCE_NAME.fullmatch(name):
                raise ValueError(
                    f"data.sources.{name}: a name has letters, digits, - and _, and is not {OWN}."
                )
        for language in self.targets if len(self.targets) > 1 else ():
            if re.search(r"[<>\"\s]", language):
                raise ValueError(f"data.tgt: {language!r} cannot be the name of one of several languages.")
        return self

    @property
    def direction(self) -> Sides[str]:
        """The languages of ``path``."""
        return Sides(self.src, self.tgt)

    @property
    def directions(self) -> list[Sides[str]]:
        """The pairs of languages of all sources, each once; first the run's own."""
        directions = [self.direction]
        for source in self.sources.values():
            directions.append(Sides(source.src or self.src, source.tgt or self.tgt))
        return [*dict.fromkeys(directions)]

    @property
    def targets(self) -> list[str]:
        """The languages to translate into, each once; first the run's own."""
        return [*dict.fromkeys(direction.tgt for direction in self.directions)]


class CleaningConfig(Section):
    """What is dropped from the training pairs; validation and test are never touched."""

    unicode_form: UnicodeForm = "NFC"
    """Unicode normalisation form, applied first to training text and to all text that the model reads."""

    invisible: Invisible = "drop"
    """Drop invisible characters, such as U+200B and U+00AD, from the same text; joiners in emoji are kept."""

    unescape_html: bool = False
    """Write & < > and others in place of their names in HTML, such as &amp;, in the same text."""

    skip_bad_rows: bool = False
    """Drop rows that cannot be read, such as those with too few cells, instead of asking to correct them."""

    min_characters: Count = 1
    """Drop pairs with fewer characters on a side, not counting spaces around the text."""

    max_characters: CountOrNone = None
    """Drop pairs with more characters on a side; null keeps them (data.max_length counts tokens)."""

    max_length_ratio: float | None = Field(default=None, gt=1)
    """Drop pairs if one side has more than this many times the characters of the other; null keeps them."""

    remove_control_characters: bool = False
    """Drop pairs that contain a control character other than tab and line ends."""

    src_script: Script = "any"
    """Drop pairs if more than half of the letters in the source are not of this script."""

    tgt_script: Script = "any"
    """Drop pairs if more than half of the letters in the target are not of this script."""

    remove_identical: bool = False
    """Drop pairs whose target equals the source, as in untranslated text."""

    remove_duplicates: bool = False
    """Drop duplicates: of pairs that are the same on both sides, keep only the first."""

    remove_leaks: bool = False
    """Drop pairs that are also in validation or test, ignoring case, spacing and punctuation."""


class AsWrittenConfig(Section):
    """Text as people write it: fractions of the training pairs that are changed, others in each epoch."""

    upper: Fraction = 0.0
    """Pairs in CAPITALS, such as 0.07; only with subwords or characters."""

    title: Fraction = 0.0
    """Pairs in Title Case, such as 0.05; only with subwords or characters."""

    no_final_punctuation: Fraction = 0.0
    """Pairs without the punctuation at their end, such as 0.2."""

    typos: Fraction = 0.0
    """Pairs with typing errors in a tenth of the source's words, such as 0.05; not with words."""

    joined: Fraction = 0.0
    """Pairs that become one with the next one to three of the corpus, such as 0.01."""

    noise: Fraction = 0.0
    """Pairs in whose place is noise to be copied: characters, emoji or an address, such as 0.0005."""

    @property
    def is_any(self) -> bool:
        """Whether any pair is changed."""
        return any(self.model_dump().values())


class TokenizerConfig(Section):
    """How text becomes ids: the vocabularies are built from the training split only."""

    kind: Literal["word", "char", "bpe", "bpe_metaspace", "file", "imported"] = "word"
    """Words, characters, subwords (of bytes or characters), a tokenizer.json, or those of an import."""

    path: TextOrNone = None
    """For kind file: a tokenizer.json, or the Hub id of a model that has one, such as google-t5/t5-small."""

    lowercase: bool = False
    """Lower-case all text first; the model then cannot write capital letters."""

    min_frequency: Count = 2
    """Words that occur less often are unknown; subwords that do are split into smaller ones."""

    max_size: int = Field(default=32_000, gt=len(SPECIAL_TOKENS))
    """Maximum number of entries in a vocabulary; the most frequent are kept."""

    shared: bool = False
    """One vocabulary for both languages instead of one for each."""

    extend: bool = False
    """Add the words (min_frequency) or characters that init_from.run does not know, behind its own."""

    max_lines: Count = 10_000_000
    """Build the vocabulary from at most this many training pairs, spread evenly over the corpus."""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if (self.kind == "file") != (self.path is not None):
            raise ValueError("tokenizer.kind: file needs tokenizer.path, and no other kind takes it.")
        if self.kind == "file" and not self.shared:
            raise ValueError("tokenizer.kind: file has one vocabulary: set tokenizer.shared: true.")
        smallest = len(SPECIAL_TOKENS) + NUM_BYTES
        if self.kind in ("char", "bpe", "bpe_metaspace") and self.max_size <= smallest:
            raise ValueError(
                f"tokenizer.max_size ({self.max_size}) must be above {smallest} for tokenizer.kind: "
                f"{self.kind}, whose vocabulary begins with the {NUM_BYTES} bytes."
            )
        return self
