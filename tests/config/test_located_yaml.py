"""What YAML means here, and where its values stand."""

import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mt.config import located_yaml
from mt.config.config import Config
from mt.config.located_yaml import one_short_line, plain_scalar, read_yaml
from mt.config.write import config_to_yaml
from mt.errors import ConfigError

QUOTES = r"Text that begins with one of \* .* must be in quotes\."
ROOT = Path(__file__).parent.parent.parent
CONFIGS = [*sorted((ROOT / "configs").glob("*.yaml")), *sorted((ROOT / "tests/golden").rglob("config.yaml"))]


def read(text: str) -> object:
    return read_yaml(text, lambda line: f"line {line}")[0]


# YAML 1.2.2, section 10.3.2: null, booleans, numbers; and words that YAML 1.1 takes for anything but text.
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("0", 0),
        ("-12", -12),
        ("+12", 12),
        ("1_000", 1000),
        ("32_000_000", 32_000_000),
        ("1e-4", 0.0001),
        ("5e-5", 0.00005),
        ("1E+3", 1000.0),
        ("12e03", 12000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-0.25", -0.25),
        ("1_000.5", 1000.5),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("1:30", "1:30"),
        ("010", "010"),
        ("0x10", "0x10"),
        ("0o17", "0o17"),
        ("1__0", "1__0"),
        ("1_", "1_"),
        ("_1", "_1"),
        ("1e", "1e"),
        (".", "."),
        ("2024-01-01", "2024-01-01"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("1 2", "1 2"),
        ("٣", "٣"),
        ("9" * 18, 999_999_999_999_999_999),
        ("9" * 19, "9" * 19),
    ],
)
def test_plain_scalars(text: str, value: object) -> None:
    for read_value in (plain_scalar(text), read(f"key: {text}\n")["key"]):  # type: ignore[index]
        assert read_value == value
        assert type(read_value) is type(value)


@pytest.mark.parametrize("quoted", ["'3'", '"3"', "|-\n  3", ">-\n  3"])
def test_what_is_quoted_is_text(quoted: str) -> None:
    assert read(f"key: {quoted}\n") == {"key": "3"}


def test_keys_are_text_whatever_they_look_like() -> None:
    assert read("no: 1\n2: 2\nnull: 3\n1.5: 4\n") == {"no": 1, "2": 2, "null": 3, "1.5": 4}


def test_places_hold_the_line_of_the_key_and_the_value_as_written() -> None:
    text = "# head\r\na:\r\n  b: '3'  # three\r\n\r\n  c:\r\n    1e3\r\n  d: [1,\r\n    {e: 2}]\r\nf:\r\n"
    value, places = read_yaml(text, lambda line: f"line {line}")
    assert value == {"a": {"b": "3", "c": 1000.0, "d": [1, {"e": 2}]}, "f": None}
    assert [(place.where, place.written) for place in places.values()][1:5] == [
        ("line 2", "a mapping"),
        ("line 3", "'3'"),
        ("line 5", "1e3"),
        ("line 7", "a list"),
    ]
    assert (places[("f",)].where, places[("f",)].written) == ("line 9", "")


def test_nothing_is_null() -> None:
    assert read("") is None
    assert read("# only a comment\n") is None
    assert read("---\n") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", r"line 3: the key 'a' is there already, in line 1\. Keep one of the two\."),
        ("a:\n  b: 1\n  b: 1\n", r"line 3: the key 'a\.b' is there already, in line 2"),
        ("a: {b: 1, 'b': 1}\n", r"line 1: the key 'a\.b' is there already, in line 1"),
        ("a: 1\nb: &anchor 2\n", "line 2: anchors and aliases"),
        ("a: 1\nb: *anchor\n", "line 2: anchors and aliases"),
        ("a: 1\nb: !!python/object/apply:os.system [ls]\n", "line 2: tags"),
        ("a: !!int '3'\n", "line 1: tags"),
        ("!!map {a: 3}\n", "line 1: tags"),
        ("? [a]\n: 1\n", "line 1: a key must be a word"),
        ("a: 1\n---\nb: 1\n", "line 2: a second document begins here"),
        ("a: 1\nb: [1, 2\n", "line 3: this is not valid YAML"),
        ("a: b: c\n", "line 1: this is not valid YAML: mapping values are not allowed here"),
        ("a:\n\tb: 1\n", r"line 2: this is not valid YAML.*Indent with spaces, not with tabs\."),
        ("a: 1\nb: *.tsv\n", f"line 2: this is not valid YAML.*{QUOTES}"),
        ("a: 1\n\nb: [ab]*.tsv\nc: 2\n", f"line 3: this is not valid YAML.*{QUOTES}"),
        ("{a,b}.csv", f"line 1: this is not valid YAML.*{QUOTES}"),
        ("a: @x", f"line 1: this is not valid YAML.*{QUOTES}"),
        ('a: 1\nb: "\\ud800"\n', "line 2: half of a surrogate pair"),
        ("a: 1\nb: \x00\n", r"line 2: YAML does not allow the character U\+0000\."),
        ('a: "\\UFFFFFFFF"\n', "line 1: this is not valid YAML"),
        ("%YAML 1." + "1" * 5000 + "\n---\na: 1\n", "line 1: this is not valid YAML"),
    ],
)
def test_what_is_not_yaml_of_ours_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}") as raised:
        read(text)
    assert "\n" not in str(raised.value)


def test_a_billion_laughs_are_refused_at_once() -> None:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    with pytest.raises(ConfigError, match="anchors and aliases"):
        read("\n".join(lines))


@pytest.mark.parametrize("opening", ["[", "{", "- ", "[a: ", "{a: ", "? "])
def test_deep_nesting_is_refused_before_it_costs_stack_or_time(opening: str) -> None:
    start = time.perf_counter()
    with pytest.raises(ConfigError):
        read(opening * (500_000 // len(opening)))
    assert time.perf_counter() - start < 2


def test_deep_nesting_by_indentation_is_refused() -> None:
    text = "".join("  " * depth + f"k{depth}:\n" for depth in range(500))
    with pytest.raises(ConfigError, match="line 22: this is nested too deeply"):
        read(text)


def test_what_a_message_shows_is_one_short_line_without_control_characters() -> None:
    assert one_short_line("a\n  b\tc") == "a b c"
    assert one_short_line("\x1b[31mred\ud800") == "�[31mred�"
    assert one_short_line("x" * 60) == "x" * 60
    assert one_short_line("x" * 61) == "x" * 59 + "…"


def _read_by_both(text: str) -> tuple[object, object]:
    """The located values, or the error, with libyaml and without."""

    def result(loader: object) -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(located_yaml, "_FAST_LOADER", loader)
            try:
                value, places = read_yaml(text, lambda line: f"line {line}")
            except ConfigError as error:
                return str(error)
        return repr(value), list(places.items())

    return result(yaml.CSafeLoader), result(yaml.SafeLoader)


with_libyaml = pytest.mark.skipif(not hasattr(yaml, "CSafeLoader"), reason="PyYAML was built without libyaml")


@with_libyaml
@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: str(file.relative_to(ROOT)))
def test_libyaml_reads_every_config_as_pyyaml_does(file: Path) -> None:
    one, other = _read_by_both(file.read_text(encoding="utf-8"))
    assert one == other


@with_libyaml
@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "a:",
            "a: ~",
            "a: ''",
            'a: ""',
            "a: '3'",
            'a: "3"',
            "a: 010",
            "a: 1e3",
            "a: b  # c",
            "a: 'b''c'",
        ),
        *("a: |\n  b\n  c", "a: >-\n  b\n  c\n", "a:\n  - b\n  - {c: d}\n", "a: [1, 'b', [], {}]"),
        *('a: "\\u263a\\x41\\/\\\n  b"', "é😀: 中😀 b\nc: d", "a: b\r\nc:\r\n  d: e\r\n", "a: b\x85c: d"),
        *("a: b\u2028c: d", "%YAML 1.1\n---\na: b\n...", "a: b\n  c\n\n  d", "[a, b]", "a", "a: -\nb: ?"),
        *("? a\n: b", "a: b\t# c", "a: b\t", "\ufeffa: 😀", "a: \ufeff\n", "a: b\n\ufeffc: d", "a: \ud800"),
        *(
            "a: \x01",
            "\ta: b",
            "a: [b",
            'a: "\\q"',
            'a: "\\UFFFFFFFF"',
            "a: &b c",
            "a: *b",
            "a: !b c",
            "a: @b",
        ),
        *("a: b\n---\nc: d", "a: b: c", "a: 'b", "[" * 30, "a: b\na: c", "a: {b? \xa0", "!:! a"),
    ],
)
def test_libyaml_reads_odd_text_as_pyyaml_does(text: str) -> None:
    one, other = _read_by_both(text)
    assert one == other


@with_libyaml
@settings(deadline=None, max_examples=30)
@given(path=st.text(min_size=1), src=st.text(min_size=1), number=st.integers(1, 10**9))
def test_libyaml_reads_what_is_written_as_pyyaml_does(path: str, src: str, number: int) -> None:
    data = {"path": path, "src": src, "tgt": "x", "num_train_pairs": number}
    try:
        config = Config.model_validate({"data": data, "training": {"max_steps": 1}})
    except ValueError:  # Not a config in the first place.
        return
    one, other = _read_by_both(config_to_yaml(config))
    assert one == other
