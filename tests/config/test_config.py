"""The models' own checks, without any file."""

from typing import Any

import pytest
from pydantic import ValidationError

from mt.config.config import Config
from mt.config.section import Section

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


@pytest.mark.parametrize("section", [name for name in SECTIONS if name != "data"])
def test_a_section_left_out_is_the_section_with_its_own_defaults(section: str) -> None:
    assert Config.model_fields[section].get_default() == SECTIONS[section]()


@pytest.mark.parametrize("section", SECTIONS)
def test_defaults_pass_their_own_checks(section: str) -> None:
    values = getattr(config(), section).model_dump()
    assert SECTIONS[section].model_validate(values).model_dump() == values


def test_every_field_is_documented_in_a_sentence() -> None:
    for section, key in FIELDS:
        description = SECTIONS[section].model_fields[key].description
        assert description, f"{section}.{key}"
        assert description.endswith("."), f"{section}.{key}"


@pytest.mark.parametrize("section", SECTIONS)
def test_a_config_is_frozen(section: str) -> None:
    built = config()
    part = getattr(built, section)
    key = next(iter(SECTIONS[section].model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(built, section, part)
    with pytest.raises(ValidationError, match="frozen"):
        setattr(part, key, getattr(part, key))


@pytest.mark.parametrize("section", SECTIONS)
def test_unknown_keys_are_refused(section: str) -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        config(**{section: {"no_such_key": 1}})


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("data", "path", ""),
        ("data", "src", ""),
        ("data", "tgt", True),
        ("data", "held_out_fraction", 0),
        ("data", "held_out_fraction", 0.5),
        ("data", "max_length", 3),
        ("training", "seed", 2**64),
        ("data", "hub_timeout_seconds", 0),
        ("tokenizer", "min_frequency", 0),
        ("tokenizer", "max_size", 4),
        ("model", "d_model", "256"),
        ("model", "d_model", 256.0),
        ("model", "num_heads", True),
        ("model", "dropout", 1),
        ("model", "dropout", -0.1),
        ("model", "activation", "tanh"),
        ("model", "bias", 1),
        ("schedule", "learning_rate", float("nan")),
        ("schedule", "learning_rate", float("inf")),
        ("schedule", "warmup_steps", -1),
        ("training", "batch_tokens", 0),
        ("training", "num_micro_batches", 0),
        ("training", "label_smoothing", 1),
        ("training", "clip_norm", 0),
        ("training", "max_steps", 0),
        ("validation", "metric", "BLEU"),
        ("checkpoint", "keep", 0),
    ],
)
def test_values_out_of_range_or_of_another_type_are_refused(section: str, key: str, value: object) -> None:
    with pytest.raises(ValidationError, match=f"1 validation error for Config\n{section}.{key}\n"):
        config(**{section: {key: value}})


def test_a_whole_number_is_a_number() -> None:
    built = config(schedule={"learning_rate": 1})
    assert built.schedule.learning_rate == 1.0
    assert isinstance(built.schedule.learning_rate, float)


def test_the_width_is_a_multiple_of_the_heads_and_the_message_lists_those_that_fit() -> None:
    with pytest.raises(
        ValidationError, match=r"model\.d_model \(12\).*num_heads \(5\).*from 1, 2, 3, 4, 6, 12\."
    ):
        config(model={"d_model": 12, "num_heads": 5})
    assert config(model={"d_model": 12, "num_heads": 6}).model.num_heads == 6


def test_the_width_is_even() -> None:
    with pytest.raises(ValidationError, match=r"model\.d_model \(9\) must be even"):
        config(model={"d_model": 9, "num_heads": 3})


@pytest.mark.parametrize("total_steps", [None, 1, 10])
def test_cosine_falls_after_the_warm_up(total_steps: int | None) -> None:
    with pytest.raises(ValidationError, match=r"schedule\.total_steps.*schedule\.warmup_steps \(10\)"):
        config(schedule={"kind": "cosine", "warmup_steps": 10, "total_steps": total_steps})
    assert (
        config(schedule={"kind": "cosine", "warmup_steps": 10, "total_steps": 11}).schedule.total_steps == 11
    )


def test_noam_needs_a_warm_up() -> None:
    with pytest.raises(ValidationError, match=r"schedule\.warmup_steps must be at least 1"):
        config(schedule={"kind": "noam", "warmup_steps": 0})
    assert config(schedule={"kind": "constant", "warmup_steps": 0}).schedule.warmup_steps == 0


def test_one_embedding_needs_one_vocabulary() -> None:
    with pytest.raises(ValidationError, match=r"model\.share_embeddings needs tokenizer\.shared"):
        config(model={"share_embeddings": True})
    assert config(model={"share_embeddings": True}, tokenizer={"shared": True}).model.share_embeddings


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        ({"kind": "file", "shared": True}, r"tokenizer\.kind: file needs tokenizer\.path"),
        ({"kind": "file", "path": "a.json"}, r"the same vocabulary: set tokenizer\.shared: true"),
        ({"path": "a.json"}, r"tokenizer\.path is for tokenizer\.kind: file, but the kind is word"),
        ({"kind": "bpe", "max_size": 260}, r"tokenizer\.max_size \(260\) must be above 260 .* bpe"),
    ],
)
def test_the_kind_of_tokenizer_fits_its_options(tokenizer: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config(tokenizer=tokenizer)


def test_a_finished_tokenizer_and_a_small_vocabulary_of_words_are_accepted() -> None:
    assert config(tokenizer={"kind": "file", "path": "a.json", "shared": True}).tokenizer.path == "a.json"
    assert config(tokenizer={"max_size": 5}).tokenizer.max_size == 5
    assert config(tokenizer={"kind": "char", "max_size": 261}).tokenizer.kind == "char"


def test_tokens_that_change_in_each_epoch_are_not_aligned() -> None:
    changing = {"bpe_dropout": 0.1}
    with pytest.raises(
        ValidationError, match=r"bpe_dropout \(0\.1\) and training\.guided_alignment \(0\.5\)"
    ):
        config(training=changing | {"guided_alignment": 0.5}, tokenizer={"kind": "bpe"})
    assert config(training=changing, tokenizer={"kind": "bpe"}).training.bpe_dropout == 0.1


@pytest.mark.parametrize("limit", ["max_steps", "max_epochs", "max_target_tokens", "max_minutes"])
def test_a_run_ends_by_any_one_limit(limit: str) -> None:
    assert getattr(config(training={"max_steps": None, limit: 7}).training, limit) == 7


@pytest.mark.parametrize(
    ("section", "option", "too_large"),
    [
        # The forecast of `mt check` is a whole number of steps.
        ("training", "max_minutes", 1e308),
        # Python waits for at most `threading.TIMEOUT_MAX` seconds.
        ("data", "hub_timeout_seconds", 1e20),
        # Muon's updates are this times the square root of the width, in float32.
        ("schedule", "learning_rate", 9e37),
    ],
)
def test_numbers_with_which_arithmetic_would_overflow_are_refused(
    section: str, option: str, too_large: float
) -> None:
    with pytest.raises(ValidationError, match=f"{option}\n.*should be less than"):
        config(**{section: {option: too_large}})


@pytest.mark.parametrize(
    ("dropout", "is_useless"),
    [
        ({}, True),
        ({"attention_dropout": 0.1}, False),
        ({"activation_dropout": 0.1}, False),
        ({"word_dropout": 0.1}, False),
        ({"dropout": 0.1}, False),
    ],
)
def test_r_drop_without_any_dropout_is_useless(dropout: dict[str, float], is_useless: bool) -> None:
    model = {"dropout": 0.0, **dropout}
    found = config(model=model, training={"max_steps": 1, "r_drop": 5.0}).useless_r_drop()
    assert (found is not None) == is_useless


def test_a_run_that_nothing_ends_is_refused_but_patience_ends_it() -> None:
    with pytest.raises(ValidationError, match="nothing ends this run"):
        config(training={"max_steps": None})
    assert config(training={"max_steps": None}, validation={"patience": 3}).validation.patience == 3


def test_a_cosine_that_is_down_at_zero_before_the_last_step_is_refused() -> None:
    data = {"path": "builtin:primer", "src": "en", "tgt": "de"}
    schedule = {"kind": "cosine", "warmup_steps": 1, "total_steps": 10}
    Config.model_validate({"data": data, "schedule": schedule, "training": {"max_steps": 10}})
    with pytest.raises(ValueError, match=r"training\.max_steps \(11\) is greater than schedule\.total_steps"):
        Config.model_validate({"data": data, "schedule": schedule, "training": {"max_steps": 11}})
