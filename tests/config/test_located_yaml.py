"""What YAML means here, and on which lines its values are."""

import time

import pytest

from mt.config.located_yaml import read_yaml
from mt.errors import ConfigError

INVALID = "this is not valid YAML: "


def read(text: str) -> object:
    return read_yaml(text, lambda line: f"line {line}")[0]


# YAML 1.2.2, section 10.3.2: null, booleans, numbers.
VALUES = {
    **{"": None, "~": None, "null": None, "true": True, "False": False, "0": 0, "-12": -12, "+12": 12},
    **{
        "1_000": 1000,
        "1e-4": 0.0001,
        "1E+3": 1000.0,
        ".5": 0.5,
        "5.": 5.0,
        "-0.25": -0.25,
        "1_000.5": 1000.5,
    },
    "9" * 18: 999_999_999_999_999_999,
}
# Some of these are anything but text in YAML 1.1.
TEXTS = "no yes on off y 1:30 010 0x10 0o17 1__0 1_ _1 1e . 2024-01-01 .inf .nan 1#2 ٣ 9999999999999999999"


@pytest.mark.parametrize(("text", "value"), [*VALUES.items(), *((text, text) for text in TEXTS.split())])
def test_plain_scalars(text: str, value: object) -> None:
    read_value = read(f"key: {text}\n")["key"]  # type: ignore[index]
    assert (read_value, type(read_value)) == (value, type(value))


def test_keys_are_text_whatever_they_look_like() -> None:
    assert read("no: 1\n2: 2\nnull: 3\n1.5: 4\n") == {"no": 1, "2": 2, "null": 3, "1.5": 4}
    assert [read(text) for text in ("", "# only a comment\n", "---\n")] == [None] * 3


def test_locations_hold_the_line_of_the_key_and_the_value_as_written() -> None:
    text = "# head\r\na:\r\n  b: '3'  # three\r\n\r\n  c:\r\n    1e3\r\n  d: [1,\r\n    {e: 2}]\r\nf:\r\n"
    value, locations = read_yaml(text, lambda line: f"line {line}")
    assert value == {"a": {"b": "3", "c": 1000.0, "d": []}, "f": None}
    assert {path[-1:]: (at.where, at.written) for path, at in locations.items() if path} == {
        ("a",): ("line 2", "a mapping"),
        ("b",): ("line 3", "'3'"),
        ("c",): ("line 5", "1e3"),
        ("d",): ("line 7", "a list"),
        ("f",): ("line 9", ""),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", f"line 3: {INVALID}the key 'a' is there already, in line 1"),
        ("a: 1\nb: &anchor 2\n", f"line 2: {INVALID}anchors, aliases and tags"),
        ("a: 1\nb: *anchor\n", f"line 2: {INVALID}anchors, aliases and tags"),
        ("a: 1\nb: !!python/object/apply:os.system [ls]\n", f"line 2: {INVALID}anchors, aliases and tags"),
        ("? [a]\n: 1\n", f"line 1: {INVALID}a key must be a word"),
        ("a: 1\n---\nb: 1\n", "line 2: .*single document"),
        ("a: 1\nb: [1, 2\n", "line 3: this is not valid YAML: while parsing a flow sequence, "),
        ("a: b: c\n", "line 1: this is not valid YAML: mapping values are not allowed"),
        ("a:\n\tb: 1\n", r"line 2: this is not valid YAML: there is a tab at column 1,"),
        ("a: 1\nb: *.tsv\n", "line 2: this is not valid YAML.*, at column 5"),
        ("a: @x", "line 1: this is not valid YAML.*, at column 4"),
        ("a: 1\nb: \x00\n", f"line 1: {INVALID}unacceptable character"),
        ('a: "C:\\data"\n', "line 1: this is not valid YAML.*escape character.*, at column"),
        ('a: "\\UFFFFFFFF"\n', "line 1: this is not valid YAML"),
    ],
)
def test_other_yaml_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}") as raised:
        read(text)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("opening", ["[", "{", "- ", "[a: ", "? "])
def test_deep_nesting_is_refused_before_it_exhausts_the_stack(opening: str) -> None:
    start = time.process_time()
    with pytest.raises(ConfigError):
        read(opening * (10_000 // len(opening)))
    assert time.process_time() - start < 10
    assert read("[" * 100 + "]" * 100) == []
    with pytest.raises(ConfigError, match="nested too deeply"):
        read("[" * 101 + "]" * 101)
