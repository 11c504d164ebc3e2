"""`mt config`: the options of a config, before there is one."""

from typing import Any, cast

import pytest
import yaml

from mt.config.config import Config
from tests.fixture_types import Call


def test_every_option_is_listed_with_its_default_and_documentation(call: Call) -> None:
    code, out, err = call("config")
    assert (code, err) == (0, "")
    listed = yaml.safe_load(out)
    assert list(listed) == list(Config.model_fields)
    text = " ".join(line.strip(" #") for line in out.splitlines())
    for section, model in Config.model_fields.items():
        fields = cast(Any, model.annotation).model_fields
        assert list(listed[section]) == list(fields)
        for key, field in fields.items():
            assert listed[section][key] == (None if field.is_required() else field.default)
            assert str(field.description) in text
    # What has no default is not said to have null.
    assert "  path:  # has no default\n" in out
    assert "A whole number of at least 1 or null." in text


def test_a_section_or_an_option_alone(call: Call) -> None:
    assert list(yaml.safe_load(call("config", "schedule")[1])) == ["schedule"]
    for name in ("schedule.learning_rate", "learning_rate"):
        assert yaml.safe_load(call("config", name)[1]) == {"schedule": {"learning_rate": 0.001}}
    assert list(yaml.safe_load(call("config", "every_steps")[1])) == ["validation", "checkpoint"]


@pytest.mark.parametrize(
    ("words", "option"),
    [("early stopping", "validation.patience"), ("accumulation", "training.num_micro_batches")],
)
def test_words_are_looked_for_in_names_elsewhere_and_in_descriptions(
    words: str, option: str, call: Call
) -> None:
    section, key = option.split(".")
    for arguments in ([words], words.split()):
        assert list(yaml.safe_load(call("config", *arguments)[1])[section]) == [key]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("training.lr", "schedule.learning_rate"),
        ("shedule", "mean schedule?"),
        ("beam_size", "mt translate --beam 5"),
        ("model.heads", "model.num_heads"),
        ("data.path.lr", "data.path?"),
    ],
)
def test_an_unknown_name_is_answered_with_what_is_meant(name: str, meant: str, call: Call) -> None:
    code, out, err = call("config", name)
    assert (code, out) == (2, "")
    assert err.startswith(f"mt: unknown key '{name}'.")
    assert meant in err
