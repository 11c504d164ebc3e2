"""Reads YAML with the line of each value, and without surprising meanings of plain words and numbers.

Plain scalars follow YAML 1.2: in YAML 1.1, PyYAML's own, ``no`` (Norwegian) is false, ``1e-4`` is text,
``1:30`` is 90 and ``010`` is 8.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import yaml

from mt.display import one_line
from mt.errors import ConfigError

KeyPath = tuple[str, ...]
Scalar = str | int | float | bool | None

# At most 18 digits, which fit into 64 bits; longer digit strings are text, such as a commit's name.
_WHOLE = r"(?:0|[1-9](?:_?[0-9]){0,17})"
_INT = re.compile(rf"[-+]?{_WHOLE}")
_FLOAT = re.compile(rf"[-+]?(?:\.[0-9]+|{_WHOLE}(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
# libyaml takes a tenth of the time, but not every build of PyYAML has it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Much deeper nesting would exhaust libyaml's stack.
_MOST_LEVELS = 100
MAX_SHOWN = 60
"""How many characters of a file an error message shows."""


class Location(NamedTuple):
    """Where a value is written, and how."""

    where: str
    """The beginning of an error message, such as ``configs/my.yaml, line 14``."""
    written: str
    """The value as the user wrote it, quotes included, in one short line; empty where nothing is written."""


def read_yaml(text: str, where: Callable[[int], str]) -> tuple[object, dict[KeyPath, Location]]:
    """Read a document of mappings and scalars (a list becomes text with commas), and locate each value."""
    locations: dict[KeyPath, Location] = {}

    def value_of(node: yaml.Node, path: KeyPath, line: int) -> object:
        kinds: dict[type[yaml.Node], str] = {yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list"}
        written = kinds.get(type(node), text[node.start_mark.index : node.end_mark.index])
        locations[path] = Location(where(line + 1), one_line(written, MAX_SHOWN))
        if isinstance(node, yaml.ScalarNode):
            return node.value if node.style else plain_scalar(node.value)
        if isinstance(node, yaml.SequenceNode):
            items = [item.value for item in node.value]
            # Other lists, which no option takes, become empty.
            return ", ".join(items) if items and all(isinstance(item, str) and item for item in items) else []
        mapping: dict[str, object] = {}
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            here = (*path, str(key.value))
            line = key.start_mark.line
            if not isinstance(key, yaml.ScalarNode) or not key.value.isprintable():
                raise yaml.MarkedYAMLError(problem="a key must be a word", problem_mark=key.start_mark)
            if key.value in mapping:
                name = one_line(".".join(here), MAX_SHOWN)
                first = locations[here].where
                problem = f"the key '{name}' is there already, in {first}"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            mapping[key.value] = value_of(value, here, line)
        return mapping

    try:
        root = _compose(text)
        return None if root is None else value_of(root, (), root.start_mark.line), locations
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        # libyaml counts a line after the last one.
        line = min(line, len(_LINE_BREAK.split(text)))
        problem = f"{', '.join(filter(None, (error.context, error.problem)))}, at column {column}"
        if mark and text[mark.index : mark.index + 1] == "\t":
            problem = f"there is a tab at column {column}, but only spaces indent"
    except (yaml.YAMLError, ValueError) as error:  # For characters that YAML does not allow.
        line = 1
        problem = str(error).partition("\n")[0]
    raise ConfigError(f"{where(line)}: this is not valid YAML: {problem}.")


def _compose(text: str) -> yaml.Node | None:
    """The root of the document, without tags, and without aliases, with which a small file can grow huge."""
    level = 0
    for event in yaml.parse(text, _LOADER):
        level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        problem = "it is nested too deeply" if level > _MOST_LEVELS else ""
        if getattr(event, "anchor", None) or getattr(event, "tag", None):
            problem = "anchors, aliases and tags (&, * and !) are not used here; write the value out"
        if problem:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)  # type: ignore[arg-type]
    return yaml.compose(text, _LOADER)


def plain_scalar(text: str) -> Scalar:
    """The value of ``text`` in YAML, if it is written without quotes."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
