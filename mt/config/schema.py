"""The config as a JSON Schema, with which editors complete and check options."""

from typing import Any

from mt.config.config import Config

SCHEMA_FILE = "mt.schema.json"
"""The name under which configs refer to the schema."""


def config_schema() -> dict[str, Any]:
    """A JSON Schema of config files, in draft 7 for editors, without the checks between two options."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A config of mt",
        "type": "object",
        "properties": {name: _section(name) for name in Config.model_fields},
        "required": [name for name, field in Config.model_fields.items() if field.is_required()],
        "additionalProperties": False,
    }


def _section(name: str) -> dict[str, Any]:
    field = Config.model_fields[name]
    assert field.annotation is not None
    schema: dict[str, Any] = field.annotation.model_json_schema()
    del schema["title"]
    schema["description"] = field.description
    if "required" not in schema:
        # A section with nothing beneath it keeps every option at its default.
        schema["type"] = ["object", "null"]
    for option in schema["properties"].values():
        del option["title"]
    return schema
