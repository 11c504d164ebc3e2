"""`mt config`: the options of a config, before there is one."""

from typing import Any, cast

import pytest
import yaml

from mt.config.config import Config
from tests.fixture_types import Call, Refuse


def test_every_option_is_listed_with_its_default_and_documentation(succeed: Call) -> None:
    _, out, err = succeed("config")
    assert err == ""
    listed = yaml.safe_load(out)
    assert list(listed) == list(Config.model_fields)
    text = " ".join(line.strip(" #") for line in out.splitlines())
    for section, model in Config.model_fields.items():
        fields = cast(Any, model.annotation).model_fields
        # What is only read, in configs of earlier versions, is not listed.
        fields = {key: field for key, field in fields.items() if not field.exclude}
        assert list(listed[section]) == list(fields)
        for key, field in fields.items():
            assert listed[section][key] == (None if field.is_required() else field.default)
            assert str(field.description) in text
    # What has no default is not said to have null.
    assert "  path:  # has no default\n" in out
    assert "A whole number of at least 1 or null." in text


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("schedule.learning_rate", {"schedule": ["learning_rate"]}),
        ("learning_rate", {"schedule": ["learning_rate"]}),
        ("every_steps", {"validation": ["every_steps"], "checkpoint": ["every_steps"]}),
        # Words are looked for in names elsewhere and in descriptions.
        ("early stopping", {"validation": ["patience"]}),
        ("accumulation", {"training": ["num_micro_batches"]}),
    ],
)
def test_options_are_found_by_name_and_by_words(
    words: str, options: dict[str, list[str]], succeed: Call
) -> None:
    for arguments in ([words], words.split()):
        found = yaml.safe_load(succeed("config", *arguments).out)
        assert {section: list(found[section]) for section in options} == options
    assert list(yaml.safe_load(succeed("config", "schedule").out)) == ["schedule"]


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
def test_an_unknown_name_is_answered_with_what_is_meant(name: str, meant: str, refuse: Refuse) -> None:
    sentence = refuse("config", name)
    assert sentence.startswith(f"mt: unknown key '{name}'.")
    assert meant in sentence
