"""The ``tokenizer`` section: how text becomes ids."""

from pydantic import Field

from mt.config.section import Section
from mt.special_tokens import SPECIAL_TOKENS


class TokenizerConfig(Section):
    """How the vocabularies are made, from the training split only."""

    min_frequency: int = Field(default=2, ge=1)
    """A word seen less often than this is unknown to the model."""

    max_size: int = Field(default=32_000, gt=len(SPECIAL_TOKENS))
    """The largest number of entries in a vocabulary; the most frequent words win."""

    shared: bool = False
    """One vocabulary for both languages instead of one for each."""
