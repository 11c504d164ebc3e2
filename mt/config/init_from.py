"""The ``init_from`` section: the run whose weights a new run begins with."""

from typing import Self

from pydantic import model_validator

from mt.config.section import Section, Text, TextOrNone, changeable

PARTS = ("encoder", "decoder", "src_embedding", "tgt_embedding", "output")


class InitFromConfig(Section):
    """The run that this one begins from: with its weights, tokenizers and shape, and a new optimizer."""

    run: TextOrNone = None
    """The run directory of the model to begin from, such as runs/general; null: random weights."""

    checkpoint: Text = changeable("best")
    """Its checkpoint: best, latest or a name; training writes the name here."""

    parts: TextOrNone = None
    """Only these of encoder, decoder, src_embedding, tgt_embedding and output, with commas; null: all."""

    sha256: TextOrNone = changeable(None)
    """The checksum of the weights, which training writes here."""

    @property
    def chosen(self) -> tuple[str, ...]:
        """The parts to take; none without a run."""
        if self.run is None:
            return ()
        return PARTS if self.parts is None else tuple(part.strip() for part in self.parts.split(","))

    @property
    def sides(self) -> set[str]:
        """``src`` and ``tgt``, where the tokenizer is taken over, because a part belongs to its ids."""
        return {"src" if part in ("encoder", "src_embedding") else "tgt" for part in self.chosen}

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        for part in self.chosen:
            if part not in PARTS:
                raise ValueError(f"init_from.parts: '{part}' is not one of {', '.join(PARTS)}.")
        if self.run is None and self.parts is not None:
            raise ValueError("init_from.parts needs init_from.run, the run to take them from.")
        return self
