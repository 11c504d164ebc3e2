"""The models' own checks, without any file."""

from typing import Any

import pytest
from pydantic import ValidationError

from mt.config.config import Config
from mt.config.section import Section
from mt.config.sources import parse_mix

SECTIONS: dict[str, type[Section]] = {
    name: section
    for name, field in Config.model_fields.items()
    if isinstance(section := field.annotation, type) and issubclass(section, Section)
}
FIELDS = [(name, key) for name, section in SECTIONS.items() for key in section.model_fields]


def config(**sections: dict[str, Any]) -> Config:
    """The smallest config, changed by ``sections``."""
    values: dict[str, dict[str, Any]] = {
        "data": {"path": "builtin:primer", "src": "en", "tgt": "de"},
        "training": {"max_steps": 1},
    }
    for name, keys in sections.items():
        values[name] = values.get(name, {}) | keys
    return Config.model_validate(values)


def test_only_the_corpus_and_its_languages_have_no_default() -> None:
    required = [(name, key) for name, key in FIELDS if SECTIONS[name].model_fields[key].is_required()]
    assert required == [("data", "path"), ("data", "src"), ("data", "tgt")]


def test_every_field_is_documented_in_a_sentence() -> None:
    for section, key in FIELDS:
        description = SECTIONS[section].model_fields[key].description
        assert description, f"{section}.{key}"
        assert description.endswith("."), f"{section}.{key}"


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("data", "path", ""),
        ("data", "tgt", True),
        ("data", "held_out_fraction", 0.5),
        ("training", "seed", 2**64),
        ("model", "d_model", "256"),
        ("model", "d_model", 256.0),
        ("model", "dropout", 1),
        ("model", "activation", "tanh"),
        ("schedule", "learning_rate", float("nan")),
        # Arithmetic with these would overflow.
        ("training", "max_minutes", 1e308),
        ("data", "hub_timeout_seconds", 1e20),
        ("schedule", "learning_rate", 9e37),
    ],
)
def test_values_out_of_range_or_of_another_type_are_refused(section: str, key: str, value: object) -> None:
    with pytest.raises(ValidationError, match=f"1 validation error for Config\n{section}.{key}\n"):
        config(**{section: {key: value}})


def test_a_whole_number_is_a_number() -> None:
    built = config(schedule={"learning_rate": 1})
    assert built.schedule.learning_rate == 1.0
    assert isinstance(built.schedule.learning_rate, float)


# Changes that do not fit together, and the options and the remedy in the message.
CONTRADICTIONS: list[tuple[dict[str, dict[str, Any]], str]] = [
    (
        {"model": {"d_model": 12, "num_heads": 5}},
        r"d_model \(12\).*num_heads \(5\).*from 1, 2, 3, 4, 6, 12\.",
    ),
    ({"model": {"d_model": 9, "num_heads": 3}}, r"model\.d_model \(9\) must be even"),
    ({"schedule": {"kind": "cosine"}}, r"schedule\.total_steps.*schedule\.warmup_steps"),
    ({"schedule": {"kind": "cosine", "warmup_steps": 9, "total_steps": 9}}, r"warmup_steps \(9\)"),
    (
        {"schedule": {"kind": "cosine", "warmup_steps": 1, "total_steps": 10}, "training": {"max_steps": 11}},
        r"training\.max_steps is above schedule\.total_steps",
    ),
    ({"schedule": {"kind": "noam", "warmup_steps": 0}}, r"schedule\.warmup_steps must be at least 1"),
    ({"model": {"share_embeddings": True}}, r"share_embeddings needs tokenizer\.shared: true"),
    ({"tokenizer": {"kind": "file", "shared": True}}, r"tokenizer\.kind: file needs tokenizer\.path"),
    ({"tokenizer": {"kind": "file", "path": "a.json"}}, r"set tokenizer\.shared: true"),
    ({"tokenizer": {"path": "a.json"}}, r"tokenizer\.kind: file needs .* no other kind takes it"),
    ({"tokenizer": {"kind": "bpe", "max_size": 260}}, r"max_size \(260\) must be above 260 .* bpe"),
    ({"training": {"bpe_dropout": 0.1}}, r"training\.bpe_dropout needs tokenizer\.kind"),
    (
        {"training": {"bpe_dropout": 0.1, "guided_alignment": 0.5}, "tokenizer": {"kind": "bpe"}},
        r"bpe_dropout and training\.guided_alignment",
    ),
    ({"training": {"max_steps": None}}, "nothing ends this run: set training.max_steps"),
    ({"data": {"columns": "1"}}, r"data\.columns must be two columns"),
]


@pytest.mark.parametrize(("changes", "message"), CONTRADICTIONS)
def test_options_that_do_not_fit_together_are_refused(
    changes: dict[str, dict[str, Any]], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        config(**changes)


def test_paths_may_hold_spaces_and_equals_signs() -> None:
    assert parse_mix(" my corpus/a=b.jsonl   weight=1e-1 ;; x name=en-de revision=v1 ") == [
        (0.1, {"path": "my corpus/a=b.jsonl"}),
        (1.0, {"path": "x", "name": "en-de", "revision": "v1"}),
    ]
