"""The ``tokenizer`` section: how text becomes ids."""

from typing import Literal, Self

from pydantic import Field, model_validator

from mt.config.section import Section
from mt.special_tokens import SPECIAL_TOKENS

NUM_BYTES = 256


class TokenizerConfig(Section):
    """How the vocabularies are made, from the training split only."""

    kind: Literal["word", "char", "bpe", "bpe_metaspace", "file"] = "word"
    """Words, characters, parts of words (of bytes, or of characters), or a tokenizer.json that exists."""

    path: str | None = Field(default=None, min_length=1)
    """For kind file: a tokenizer.json, or the Hub id of a model that has one, such as google-t5/t5-small."""

    lowercase: bool = False
    """Turn all text into small letters first; the model then cannot write capital letters."""

    min_frequency: int = Field(default=2, ge=1)
    """What is seen less often gets no entry: a word is then unknown, a part of a word is spelt in smaller."""

    max_size: int = Field(default=32_000, gt=len(SPECIAL_TOKENS))
    """The largest number of entries in a vocabulary; the most frequent win."""

    shared: bool = False
    """One vocabulary for both languages instead of one for each."""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if self.kind == "file" and self.path is None:
            raise ValueError("tokenizer.kind: file needs tokenizer.path, a tokenizer.json or a Hub id.")
        if self.kind != "file" and self.path is not None:
            raise ValueError(
                f"tokenizer.path is for tokenizer.kind: file, and this is {self.kind}, which is made from "
                "the training text. Leave one of the two out."
            )
        if self.kind == "file" and not self.shared:
            raise ValueError(
                "tokenizer.kind: file gives both languages the same vocabulary: set tokenizer.shared: true."
            )
        smallest = len(SPECIAL_TOKENS) + NUM_BYTES
        if self.kind in ("char", "bpe", "bpe_metaspace") and self.max_size <= smallest:
            raise ValueError(
                f"tokenizer.max_size ({self.max_size}) must be above {smallest} for tokenizer.kind: "
                f"{self.kind}, whose vocabulary begins with the {NUM_BYTES} bytes."
            )
        return self
