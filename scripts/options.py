"""Prints docs/options.md, the reference of all options: ``python scripts/options.py > docs/options.md``."""

import json
from typing import Any

from pydantic.fields import FieldInfo

from mt.config.config import Config
from mt.config.explain import SECTIONS
from mt.config.section import accepted

HEAD = """\
# All options of a config

This page is made from the options themselves, by `python scripts/options.py > docs/options.md`, and a test
fails when it is not current. `mt config` prints the same in a terminal, `mt config schedule` a section, and
`mt schema` what editors need in order to complete options ([installing.md](installing.md)). Why one would
choose another value is in the guides and in the comments of the recipes, in `configs/`.

When a run is resumed, an option may have changed only where this page says so. Checks between two options,
such as that `d_model` is a multiple of `num_heads`, are made when a config is loaded.
"""


def options_page() -> str:
    """The page in Markdown, with a table for each section."""
    return "\n".join([HEAD, *(_table(name, section) for name, section in Config.model_fields.items())])


def _table(name: str, section: FieldInfo) -> str:
    assert section.annotation is not None
    rows = [
        [f"`{key}`", _default(option), accepted(SECTIONS[name][key]), option["description"]]
        for key, option in section.annotation.model_json_schema()["properties"].items()
    ]
    head = ["| option | default | takes | what it does |", "|---|---|---|---|"]
    body = [f"| {' | '.join(_cell(text) for text in row)} |" for row in rows]
    return "\n".join([f"## {name}", "", str(section.annotation.__doc__), "", *head, *body, ""])


def _default(option: dict[str, Any]) -> str:
    if "default" not in option:
        return "must be given"
    default = option["default"]
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(options_page(), end="")
