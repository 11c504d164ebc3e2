"""The ``data`` section: which corpus, which languages."""

from typing import Self

from pydantic import Field, model_validator

from mt.config.columns import Delimiter, parse_columns
from mt.config.mix import parse_mix
from mt.config.section import MAY_CHANGE, Section


class DataConfig(Section):
    """Where the sentence pairs come from."""

    path: str = Field(min_length=1, json_schema_extra=MAY_CHANGE)
    """A folder, file, pattern (part-*.csv), two files (en.txt,de.txt), Hub id, or builtin:primer, say."""

    name: str | None = None
    """The configuration of a Hub corpus that has several, such as en-it."""

    revision: str | None = None
    """The commit, branch or tag of a Hub corpus; null takes the newest and records its commit."""

    src: str = Field(min_length=1)
    """The language translated from: its column in the corpus, or its ending in train.en."""

    tgt: str = Field(min_length=1)
    """The language translated to, likewise."""

    columns: str | None = Field(default=None, json_schema_extra=MAY_CHANGE)
    """Columns with other names than the languages', such as english,german; 1,2 where there is no header."""

    delimiter: Delimiter = Field(default="auto", json_schema_extra=MAY_CHANGE)
    """Separates the columns of .csv, .tsv and, unless auto, .txt; auto tries what the header line fits."""

    mix: str | None = None
    """More to train on, a source a line: its path, then weight=, name=, revision=, src=, tgt= as needed."""

    num_train_pairs: int | None = Field(default=None, ge=1)
    """Train on the first so many pairs of data.path only, or generate so many; null takes all."""

    held_out_fraction: float = Field(default=0.02, gt=0, lt=0.5)
    """Share held out for a validation or test split that the corpus lacks, chosen by a hash of the source."""

    max_length: int = Field(default=128, ge=4)
    """The longest sentence in tokens, end mark included; longer training pairs are dropped and counted."""

    seed: int = Field(default=1, ge=0)
    """What the built-in corpora are generated from."""

    hub_timeout_seconds: float = Field(default=10.0, gt=0, json_schema_extra=MAY_CHANGE)
    """How long the Hub may take to answer before it is taken for unreachable."""

    @model_validator(mode="after")
    def _check_mix(self) -> Self:
        parse_mix(self.mix or "")
        return self

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        if self.columns is not None:
            parse_columns(self.columns)
        return self
