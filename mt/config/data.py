"""The ``data`` section: which corpus, which languages."""

from pydantic import Field

from mt.config.section import MAY_CHANGE, Section


class DataConfig(Section):
    """Where the sentence pairs come from."""

    path: str = Field(min_length=1, json_schema_extra=MAY_CHANGE)
    """A folder, a file, a Hub id such as bentrevett/multi30k, builtin:primer or builtin:reverse."""

    name: str | None = None
    """The configuration of a Hub corpus that has several, such as en-it."""

    revision: str | None = None
    """The commit, branch or tag of a Hub corpus; null takes the newest and records its commit."""

    src: str = Field(min_length=1)
    """The language translated from: its column in the corpus, or its ending in train.en."""

    tgt: str = Field(min_length=1)
    """The language translated to, likewise."""

    num_train_pairs: int | None = Field(default=None, ge=1)
    """Train on the first so many pairs only, or generate so many; null takes all of the corpus."""

    held_out_fraction: float = Field(default=0.02, gt=0, lt=0.5)
    """Share held out for a validation or test split that the corpus lacks, chosen by a hash of the source."""

    max_length: int = Field(default=128, ge=4)
    """The longest sentence in tokens, end mark included; longer training pairs are dropped and counted."""

    seed: int = Field(default=1, ge=0)
    """What the built-in corpora are generated from."""

    hub_timeout_seconds: float = Field(default=10.0, gt=0, json_schema_extra=MAY_CHANGE)
    """How long the Hub may take to answer before it is taken for unreachable."""
