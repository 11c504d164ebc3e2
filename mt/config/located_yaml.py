"""Reads YAML with the place of each value, and without surprising meanings of plain words and numbers.

Only the parser is PyYAML's. Scalars follow YAML 1.2: in PyYAML's own YAML 1.1, ``no`` (Norwegian) is false,
``1e-4`` is text, ``1:30`` is 90 and ``010`` is 8.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import yaml

from mt.errors import ConfigError

KeyPath = tuple[str, ...]
Scalar = str | int | float | bool | None

MAX_DIGITS = 18  # More may not fit into 64 bits; longer digit strings are text, such as a commit's name.
_WHOLE = rf"(?:0|[1-9](?:_?[0-9]){{0,{MAX_DIGITS - 1}}})"
_INT = re.compile(rf"[-+]?{_WHOLE}")
_FLOAT = re.compile(rf"[-+]?(?:\.[0-9]+|{_WHOLE}(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, Scalar] = {"": None, "~": None}
_WORDS |= dict.fromkeys(("null", "Null", "NULL"))
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True)
_WORDS |= dict.fromkeys(("false", "False", "FALSE"), False)

# Where a value, or an item of a list, begins with a character that means something else to YAML.
_SPECIAL_VALUE = re.compile(r"(?:^|: |- )\s*[*&!\[{|>@`%]")
_SURROGATE = re.compile("[\ud800-\udfff]")

# A config is nested two deep; a file nested much deeper is refused before it exhausts the stack.
_MAX_DEPTH = 20
_MAX_SHOWN = 60

# With libyaml, which a build of PyYAML may lack, reading is ten times as fast.
_FAST_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# libyaml accepts a tab after a value, and byte order marks inside the text; PyYAML's own parser refuses them.
_DIFFERENTLY_READ = re.compile("[\t\ufeff]")


@dataclass(frozen=True)
class Place:
    """Where a value is written, and how."""

    where: str
    """The beginning of an error message, such as ``configs/my.yaml, line 14``."""

    written: str
    """The value as the user wrote it, quotes included, in one short line; empty where nothing is written."""


def plain_scalar(text: str) -> Scalar:
    """The value of ``text`` in YAML, if it is written without quotes."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def printable(text: str) -> str:
    """``text`` with U+FFFD for control characters, and for what only YAML takes for a line end."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def one_short_line(text: str) -> str:
    """``text`` on one line for an error message: shortened if it is long, without control characters."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= _MAX_SHOWN else line[: _MAX_SHOWN - 1] + "…"


def read_yaml(text: str, where: Callable[[int], str]) -> tuple[object, dict[KeyPath, Place]]:
    """Read one YAML document made of mappings, lists and scalars.

    Args:
        text: The document.
        where: Names the place of a line, counted from 1, for error messages.

    Returns:
        The value, and the place of each value by its key path, in the order of the text.
    """
    if not _DIFFERENTLY_READ.search(text):
        reader = _Reader(text, where, _FAST_LOADER)
        # What libyaml cannot read is read again, so that messages do not depend on how PyYAML was built.
        with contextlib.suppress(yaml.YAMLError, ValueError, OverflowError, ConfigError):
            return reader.read(), reader.places
    reader = _Reader(text, where, yaml.SafeLoader)
    try:
        return reader.read(), reader.places
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"{where(line)}: YAML does not allow the character U+{error.character:04X}."
        ) from error
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, where) from error
    except (ValueError, OverflowError) as error:  # PyYAML lets them through, as for "\UFFFFFFFF".
        raise ConfigError(f"{where(reader.line)}: this is not valid YAML: {error}.") from error


def _syntax_error(error: yaml.MarkedYAMLError, text: str, where: Callable[[int], str]) -> ConfigError:
    """PyYAML's error as a sentence: the line, the problem, and the line where what it was reading began."""
    line, index = (mark.line + 1, mark.index) if (mark := error.problem_mark) else (1, 0)
    began = error.context_mark.line + 1 if error.context_mark else line
    context = f" {error.context} from line {began}" if began != line else ""
    hint = ""
    if "'\\t'" in str(error.problem):
        hint = " Indent with spaces, not with tabs."
    elif _SPECIAL_VALUE.search(text[text.rfind("\n", 0, index) + 1 :].partition("\n")[0]):
        hint = " Text that begins with one of * & ! [ { | > @ ` % must be in quotes."
    return ConfigError(f"{where(line)}: this is not valid YAML: {error.problem}{context}.{hint}")


class _Reader:
    """Builds the value from PyYAML's events, and records the place of each."""

    def __init__(self, text: str, where: Callable[[int], str], loader: type[yaml.SafeLoader]) -> None:
        self.text = text
        self.where = where
        self.loader = loader
        self.line = 1
        self.places: dict[KeyPath, Place] = {}
        self.events = self._checked_events()

    def read(self) -> object:
        """The only document's value; None for an empty text."""
        value = None
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if self.places:
                    raise self._refusal("a second document begins here ('---'), but a config is only one.")
                value = self._value(next(self.events), (), self.line)
        return value

    def _checked_events(self) -> Iterator[yaml.Event]:
        """PyYAML's events; anchors, with which a small file can grow huge, and tags are refused."""
        for event in yaml.parse(self.text, Loader=self.loader):
            if event.start_mark is not None:
                self.line = event.start_mark.line + 1
            if getattr(event, "anchor", None) is not None:
                raise self._refusal(
                    "anchors and aliases (& and *) are not used here; write the value out, or quote the text."
                )
            if getattr(event, "tag", None) is not None:
                raise self._refusal(
                    "tags (a word after !) are not used here; leave it out, or quote the text."
                )
            yield event

    def _refusal(self, what: str) -> ConfigError:
        return ConfigError(f"{self.where(self.line)}: {what}")

    def _value(self, event: yaml.Event, path: KeyPath, line: int) -> object:
        if len(path) > _MAX_DEPTH:
            raise self._refusal("this is nested too deeply.")
        if isinstance(event, yaml.ScalarEvent):
            self.places[path] = Place(self.where(line), one_short_line(self._written(event)))
            if _SURROGATE.search(event.value):
                raise self._refusal("half of a surrogate pair, as \\ud800 is one, is not a character.")
            # The style of a plain scalar is None in PyYAML and "" in libyaml.
            return event.value if event.style else plain_scalar(event.value)
        if isinstance(event, yaml.SequenceStartEvent):
            self.places[path] = Place(self.where(line), "a list")
            items = self._until(yaml.SequenceEndEvent)
            return [self._value(item, (*path, "[]"), self.line) for item in items]
        self.places[path] = Place(self.where(line), "a mapping")
        return self._mapping(path)

    def _mapping(self, path: KeyPath) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for event in self._until(yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise self._refusal("a key must be a word, not a list or a mapping.")
            if not event.value.isprintable():
                raise self._refusal("a key must be a word, and this one has unprintable characters.")
            key, line = event.value, self.line
            here = (*path, key)
            if key in mapping:
                raise self._refusal(
                    f"the key '{one_short_line('.'.join(here))}' is there already, "
                    f"in {self.places[here].where}. Keep one of the two."
                )
            mapping[key] = self._value(next(self.events), here, line)
        return mapping

    def _written(self, event: yaml.Event) -> str:
        if event.start_mark is None or event.end_mark is None:
            return ""
        return self.text[event.start_mark.index : event.end_mark.index]

    def _until(self, end: type[yaml.Event]) -> Iterator[yaml.Event]:
        while not isinstance(event := next(self.events), end):
            yield event
