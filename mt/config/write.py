"""Writes a ``Config``, or a list of all options, as documented YAML, and compares two configs."""

import re
import textwrap
from collections.abc import Callable, Collection, Iterator

import yaml
from pydantic.fields import FieldInfo

from mt.config.config import Config
from mt.config.explain import SECTIONS, unknown_key
from mt.config.located_yaml import Scalar
from mt.config.section import accepted, choices
from mt.config.sources import MixedSource, parse_mix
from mt.errors import ConfigError

_COMMENT_WIDTH = 100

# Words that need no quotes in any version of YAML; in YAML 1.1, no, on and y are booleans.
_PLAIN = re.compile(
    r"(?!(?:null|true|false|yes|no|on|off|y|n)$)[a-z/](?:[\w./:-]*[\w/])?", re.ASCII | re.IGNORECASE
)


def config_to_yaml(config: Config, *, comments: bool = True, keys: Collection[str] | None = None) -> str:
    """The YAML that loads back to ``config``, every default written out.

    Args:
        config: What to write.
        comments: Put the documentation of each section and field above it.
        keys: Write only these, such as ``data.path``; None writes all.
    """

    def lines_of(section: str, key: str, field: FieldInfo) -> list[str]:
        if keys is not None and f"{section}.{key}" not in keys:
            return []
        comment = _comment(_documentation(field), indent="  ") if comments else []
        return [*comment, f"  {key}: {_scalar(_value(config, section, key))}"]

    return _document(lines_of, comments=comments)


def options_to_yaml(name: str | None) -> str:
    """Options with their defaults and documentation, as in a config.

    Args:
        name: A section, an option such as ``schedule.kind`` or ``kind``, or None for all.
    """

    def lines_of(section: str, key: str, field: FieldInfo) -> list[str]:
        if name not in {None, section, key, f"{section}.{key}"}:
            return []
        takes = "" if choices(field) else f" {accepted(field).capitalize()}."
        default = " # has no default" if field.is_required() else _scalar(field.default)
        return [*_comment(_documentation(field) + takes, indent="  "), f"  {key}: {default}"]

    text = _document(lines_of, comments=True)
    if not text.strip():
        section, _, key = str(name).partition(".")
        raise ConfigError(unknown_key((section, key) if section in SECTIONS else (str(name),)))
    return text


def all_options(config: Config) -> dict[str, str]:
    """The value of every option, as YAML, by its full name, such as ``model.d_model``."""
    return {f"{section}.{key}": _scalar(_value(config, section, key)) for section, key, _ in _options()}


def changed_options(config: Config) -> set[str]:
    """The full names of the options that have no default, or another value."""
    return {
        f"{section}.{key}"
        for section, key, field in _options()
        if field.is_required() or _value(config, section, key) != field.default
    }


def differences(old: Config, new: Config) -> list[str]:
    """What keeps a run of ``old`` from being resumed with ``new``, such as 'training.seed: 1 -> 2'.

    Fields that do not change the mathematics of a run (limits, intervals, the device) are not listed.
    """
    lines: list[str] = []
    for section, key, field in _options():
        before, after = _value(old, section, key), _value(new, section, key)
        # The text of the corpus is compared when it is loaded, wherever it is now.
        is_moved = (section, key) == ("data", "mix") and _without_paths(before) == _without_paths(after)
        if before != after and not is_moved and not _may_change(field):
            lines.append(f"{section}.{key}: {_scalar(before)} -> {_scalar(after)}")
    return lines


def fixed_options(config: Config) -> dict[str, Scalar]:
    """The options of tokenizer, model, schedule and training that cannot change while a run is trained."""
    return {
        f"{section}.{key}": _value(config, section, key)
        for section, key, field in _options()
        if section in ("tokenizer", "model", "schedule", "training") and not _may_change(field)
    }


def _options() -> Iterator[tuple[str, str, FieldInfo]]:
    for section, fields in SECTIONS.items():
        for key, field in fields.items():
            yield section, key, field


def _document(lines_of: Callable[[str, str, FieldInfo], list[str]], *, comments: bool) -> str:
    """A YAML document with the lines of each option, without the sections that have none."""
    sections = []
    for section, fields in SECTIONS.items():
        if lines := [line for key, field in fields.items() for line in lines_of(section, key, field)]:
            about = _comment(str(Config.model_fields[section].description), indent="") if comments else []
            sections.append("\n".join([*about, f"{section}:", *lines]))
    return "\n\n".join(sections) + "\n"


def _without_paths(mix: Scalar) -> list[MixedSource]:
    nowhere: dict[str, str | int] = {"path": "", "revision": ""}
    return [source._replace(fields=source.fields | nowhere) for source in parse_mix(str(mix or ""))]


def _value(config: Config, section: str, key: str) -> Scalar:
    value: Scalar = getattr(getattr(config, section), key)
    return value


def _may_change(field: FieldInfo) -> bool:
    return isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("may_change") is True


def _documentation(field: FieldInfo) -> str:
    words = choices(field)
    return f"{field.description} One of {', '.join(words)}." if words else str(field.description)


def _comment(text: str, *, indent: str) -> list[str]:
    prefix = f"{indent}# "
    return textwrap.wrap(text, _COMMENT_WIDTH, initial_indent=prefix, subsequent_indent=prefix)


def _scalar(value: Scalar) -> str:
    """``value`` as YAML, in a form that means the same in YAML 1.1 and 1.2."""
    if not isinstance(value, str):
        return yaml.safe_dump(value).split("\n", 1)[0]
    if _PLAIN.fullmatch(value):
        return value
    return yaml.safe_dump(value, default_style='"', allow_unicode=True, width=float("inf")).rstrip("\n")
