"""The JSON Schema of a config, against a validator that is not ours and against what loading accepts."""

from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
import yaml
from pydantic import ValidationError

from mt.config.config import Config
from mt.config.explain import SECTIONS, choices
from mt.config.located_yaml import plain_scalar, read_yaml

ROOT = Path(__file__).parents[2]
SMALLEST: dict[str, Any] = {
    "data": {"path": "corpus", "src": "en", "tgt": "de"},
    "training": {"max_steps": 1},
}

VALIDATE = fastjsonschema.compile(Config.model_json_schema())


def is_valid(config: object) -> bool:
    try:
        VALIDATE(config)
    except fastjsonschema.JsonSchemaValueException:
        return False
    return True


def test_every_recipe_is_valid() -> None:
    for recipe in (ROOT / "configs").glob("*.yaml"):
        assert is_valid(read_yaml(recipe.read_text(encoding="utf-8"), str)[0]), recipe


@pytest.mark.parametrize("mistake", ["optimizer: {}", "model: {num_head: 4}", "model: [256]"])
def test_mistakes_are_not_valid(mistake: str) -> None:
    assert not is_valid({**SMALLEST, **yaml.safe_load(mistake)})


VALUES: list[Any] = [None, True, False, -1, 0, 1, 5, 0.25, 1.5, 10**18 - 1, 10**18, "", "auto", "x", [], {}]


def test_it_accepts_the_values_of_an_option_that_loading_accepts() -> None:
    for section, key in [(section, key) for section, keys in SECTIONS.items() for key in keys]:
        words = choices(SECTIONS[section][key])
        # In Python, and so for fastjsonschema, 1 is equal to true.
        values = [value for value in VALUES if "true" not in words or value not in (0, 1)]
        for value in [*values, *map(plain_scalar, words)]:
            config = {name: dict(keys) for name, keys in SMALLEST.items()}
            config.setdefault(section, {})[key] = value
            assert is_valid(config) == _is_accepted(config, section, key), f"{section}.{key}: {value}"


def _is_accepted(config: dict[str, Any], section: str, key: str) -> bool:
    """Whether the value itself is; checks between options blame a whole section, or none."""
    try:
        Config.model_validate(config)
    except ValidationError as error:
        return not any(details["loc"][:2] == (section, key) for details in error.errors())
    return True


def test_editors_can_show_the_documentation_and_the_default_of_every_option() -> None:
    schema = Config.model_json_schema()
    sections = {name: schema["$defs"][of["$ref"].split("/")[-1]] for name, of in schema["properties"].items()}
    assert list(sections) == list(SECTIONS)
    for section, fields in SECTIONS.items():
        assert list(sections[section]["properties"]) == list(fields)
        for key, field in fields.items():
            shown = sections[section]["properties"][key]
            assert shown["description"].startswith(str(field.description))
            assert ("default" in shown) != field.is_required()
            assert field.is_required() or shown["default"] == field.default
    assert sections["training"]["properties"]["max_steps"]["description"].endswith("when a run is resumed.")
    assert "resumed" not in sections["training"]["properties"]["seed"]["description"]
