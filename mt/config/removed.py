"""Options that have gone. Configs that have them still load, unless they changed what a run computes."""

from types import EllipsisType

from mt.config.located_yaml import Scalar

REMOVED: dict[str, tuple[Scalar | EllipsisType, str]] = {
    "data.workers": (..., "one process reads a corpus"),
    "data.seed": (1, "the built-in corpora are those of seed 1"),
    "training.simcut": (0, "it lowered BLEU"),
    "training.simcut_share": (..., "it was a part of training.simcut"),
    "training.bidirectional_epochs": (0, "it did not raise BLEU"),
}
"""The value at which each is ignored, which was its default (... for any value), and why it has gone."""


def is_ignored(option: str, value: object) -> bool:
    """Whether this is a removed option at its old default."""
    return option in REMOVED and REMOVED[option][0] in (..., value)
