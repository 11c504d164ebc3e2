"""Reads YAML with the line of each value, and without surprising meanings of plain words and numbers.

Plain scalars follow YAML 1.2: in YAML 1.1, PyYAML's own, ``no`` (Norwegian) is false, ``1e-4`` is text,
``1:30`` is 90 and ``010`` is 8.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import yaml

from mt.errors import ConfigError

KeyPath = tuple[str, ...]
Scalar = str | int | float | bool | None

# At most 18 digits, which fit into 64 bits; longer digit strings are text, such as a commit's name.
_WHOLE = r"(?:0|[1-9](?:_?[0-9]){0,17})"
_INT = re.compile(rf"[-+]?{_WHOLE}")
_FLOAT = re.compile(rf"[-+]?(?:\.[0-9]+|{_WHOLE}(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# Where a value, or an item of a list, begins with a character that means something else to YAML.
_SPECIAL_VALUE = re.compile(r"(?:^|: |- )\s*[*&!\[{|>@`%]")
_MAX_SHOWN = 60


@dataclass(frozen=True)
class Location:
    """Where a value is written, and how."""

    where: str
    """The beginning of an error message, such as ``configs/my.yaml, line 14``."""

    written: str
    """The value as the user wrote it, quotes included, in one short line; empty where nothing is written."""


class _UnsupportedError(yaml.MarkedYAMLError):
    """YAML that a config does not use."""


class _Loader(yaml.SafeLoader):
    """Composes with PyYAML, and constructs mappings and scalars together with the location of each.

    There are no tags, and no aliases, with which a small file can grow huge.
    """

    def __init__(self, text: str, where: Callable[[int], str]) -> None:
        super().__init__(text)
        self.text = text
        self.where = where
        self.locations: dict[KeyPath, Location] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose one node, as the base class does."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "anchor", None) is not None:
            what = "anchors and aliases (& and *) are not used here; write the value out, or quote the text"
            raise _UnsupportedError(problem=what, problem_mark=event.start_mark)
        if getattr(event, "tag", None) is not None:
            what = "tags (a word after !) are not used here; leave it out, or quote the text"
            raise _UnsupportedError(problem=what, problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def value_of(self, node: yaml.Node, path: KeyPath, line: int) -> object:
        """The value of a node, which begins in ``line``, counted from 0; a list becomes an empty one."""
        written = self.text[node.start_mark.index : node.end_mark.index]
        if isinstance(node, yaml.CollectionNode):
            written = "a mapping" if isinstance(node, yaml.MappingNode) else "a list"
        self.locations[path] = Location(self.where(line + 1), one_short_line(written))
        if isinstance(node, yaml.ScalarNode):
            return node.value if node.style else plain_scalar(node.value)
        return self._mapping_of(node, path) if isinstance(node, yaml.MappingNode) else []

    def _mapping_of(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key, value in node.value:
            here = (*path, str(key.value))
            problem = ""
            if not isinstance(key, yaml.ScalarNode) or not key.value.isprintable():
                problem = "a key must be a word"
            elif key.value in mapping:
                name, first = one_short_line(".".join(here)), self.locations[here].where
                problem = f"the key '{name}' is there already, in {first}. Keep one of the two"
            if problem:
                raise _UnsupportedError(problem=problem, problem_mark=key.start_mark)
            mapping[key.value] = self.value_of(value, here, key.start_mark.line)
        return mapping


def plain_scalar(text: str) -> Scalar:
    """The value of ``text`` in YAML, if it is written without quotes."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def printable(text: str) -> str:
    """``text`` with U+FFFD for control characters, and for what only YAML takes for a line end."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def one_short_line(text: str) -> str:
    """``text`` on one line for an error message: shortened if it is long, without control characters."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= _MAX_SHOWN else line[: _MAX_SHOWN - 1] + "…"


def read_yaml(text: str, where: Callable[[int], str]) -> tuple[object, dict[KeyPath, Location]]:
    """Read one YAML document made of mappings and scalars; a list becomes an empty one.

    Args:
        text: The document.
        where: Names a line, counted from 1, for error messages.

    Returns:
        The value, None for an empty text, and the location of each value by its key path, in the order of
        the text.
    """
    try:
        loader = _Loader(text, where)
        root = loader.get_single_node()
        value = None if root is None else loader.value_of(root, (), root.start_mark.line)
        return value, loader.locations
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"YAML does not allow the character U+{error.character:04X}."
        raise ConfigError(f"{where(line)}: {problem}") from error
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_syntax_error(error, text, where)) from error
    except RecursionError as error:
        raise ConfigError(f"{where(1)}: this file is nested too deeply.") from error
    except (ValueError, OverflowError) as error:  # PyYAML lets them through, as for "\UFFFFFFFF".
        raise ConfigError(f"{where(1)}: this is not valid YAML: {error}.") from error


def _syntax_error(error: yaml.MarkedYAMLError, text: str, where: Callable[[int], str]) -> str:
    """PyYAML's error as a sentence: the line, the problem, and the line where what it was reading began."""
    line, index = (mark.line + 1, mark.index) if (mark := error.problem_mark) else (1, 0)
    if isinstance(error, _UnsupportedError):
        return f"{where(line)}: {error.problem}."
    began = error.context_mark.line + 1 if error.context_mark else line
    context = f"{error.context} from line {began}, " if began != line else ""
    hint = ""
    if "'\\t'" in str(error.problem):
        hint = " Indent with spaces, not with tabs."
    elif _SPECIAL_VALUE.search(text[text.rfind("\n", 0, index) + 1 :].partition("\n")[0]):
        hint = " Text that begins with one of * & ! [ { | > @ ` % must be in quotes."
    return f"{where(line)}: this is not valid YAML: {context}{error.problem}.{hint}"
