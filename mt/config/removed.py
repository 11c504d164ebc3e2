"""Options that have gone. Configs that have them still load, unless they changed what a run computes."""

from mt.config.located_yaml import KeyPath

_ANYTHING = object()
REMOVED: dict[KeyPath, tuple[object, str]] = {
    ("data", "workers"): (_ANYTHING, "one process reads a corpus"),
    ("data", "seed"): (1, "the built-in corpora are those of seed 1"),
    ("training", "simcut"): (0, "it lowered BLEU"),
    ("training", "simcut_share"): (_ANYTHING, "it was a part of training.simcut"),
    ("training", "bidirectional_epochs"): (0, "it did not raise BLEU"),
}
"""The value at which each is ignored, which was its default, and why it has gone."""


def without_removed(section: str, keys: object) -> object:
    """The keys of a section without removed options at their old defaults."""
    if not isinstance(keys, dict):
        return keys
    return {key: value for key, value in keys.items() if not _is_ignored((section, key), value)}


def why_removed(path: KeyPath) -> str | None:
    """The sentence about a removed option; None for any other key."""
    if path not in REMOVED:
        return None
    why = REMOVED[path][1]
    return (
        f"{'.'.join(path)} was removed, because {why}. Leave it out; a run that used it cannot be continued."
    )


def _is_ignored(path: KeyPath, value: object) -> bool:
    return path in REMOVED and REMOVED[path][0] in (_ANYTHING, value)
