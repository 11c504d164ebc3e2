"""Broken configs drawn from the schema: each loads, or is answered with sentences that name key and line."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mt.config.config import Config
from mt.config.explain import SECTIONS
from mt.config.load import load_config
from mt.config.write import config_to_yaml
from mt.errors import ConfigError

VALID = Config.model_validate(
    {"data": {"path": "builtin:primer", "src": "en", "tgt": "de"}, "training": {"max_steps": 1000}}
)
LINES = config_to_yaml(VALID, comments=False).splitlines()
OPTIONS = [f"{section}.{key}" for section, fields in SECTIONS.items() for key in fields]

NUMBERS = "0 -1 1 2 7 999999 1_0 0.5 -0.0 1e-4 1e5 1e999 1e-999 .nan .inf nan 010 0x1F 1:30 2024-01-01"
WORDS = "null ~ true no yes text cosine noam bleu '3' '' \"1\" 'it''s' é中😀 {} [] [1,2] {a:1} {a:[b]}"
WELL_FORMED = [*NUMBERS.split(), *WORDS.split(), "", "9" * 18, "9" * 40, "1" * 5000, "word " * 100]
HOSTILE = "' \" [ { *a | >- % @ ` ? << !!python/name:os.system & &a ]} \x00 \x1b[31m \ufeff \x85 \u2028"
RAW = [
    *HOSTILE.split(" "),
    *("a: b", "- 1", "&a b", "!!int 3", '"\\e[31m"', '"\\uD800"', '"\\UFFFFFFFF"'),
    *("[" * 300, "{a: " * 40, "\t1"),
]

keys = st.one_of(
    st.from_regex(r"[a-z_]{1,20}", fullmatch=True),
    st.sampled_from([option.partition(".")[2] for option in OPTIONS]).flatmap(
        lambda key: st.integers(0, len(key) - 1).map(lambda at: key[:at] + key[at + 1 :])
    ),
    st.sampled_from(["no", "1", "é", '"a b"', "model.d_ff", "~", "model", "k" * 100]),
)
# The check of d_model lists what would fit, which takes long for absurd widths: those are for its own test.
values = st.one_of(
    st.sampled_from(WELL_FORMED),
    st.integers(-(10**6), 10**6).map(str),
    st.floats(allow_nan=False).map(repr),
    st.from_regex(r"[a-z]{1,12}( [a-z]{1,5})?", fullmatch=True),
)
raw_values = st.one_of(st.sampled_from(RAW), st.text(max_size=12))

# Longer words are cut short in a message.
SHOWN = 40


@dataclass
class Broken:
    """A config with one mistake in it, of which it is known where it stands."""

    lines: list[str] = field(default_factory=lambda: list(LINES), repr=False)
    key: str = ""
    line: int = 0


def line_of(option: str) -> int:
    """The index of the line where an option of the valid config stands."""
    section, key = option.split(".")
    begin = LINES.index(f"{section}:")
    return next(n for n in range(begin, len(LINES)) if LINES[n].startswith(f"  {key}:"))


@st.composite
def wrong_values(draw: st.DrawFn) -> Broken:
    option, value = draw(st.sampled_from(OPTIONS)), draw(values)
    broken = Broken(key=option, line=line_of(option) + 1)
    broken.lines[broken.line - 1] = f"  {option.partition('.')[2]}: {value}"
    return broken


@st.composite
def unknown_keys(draw: st.DrawFn) -> Broken:
    at, key = draw(st.sampled_from([line_of(option) for option in OPTIONS])), draw(keys)
    broken = Broken(key=key.strip('"'), line=at + 1)
    broken.lines.insert(at, f"  {key}: {draw(values)}")
    return broken


@st.composite
def wrong_sections(draw: st.DrawFn) -> Broken:
    section = draw(st.sampled_from(list(SECTIONS)))
    begin = LINES.index(f"{section}:")
    end = next((n for n in range(begin, len(LINES)) if not LINES[n]), len(LINES))
    broken = Broken(key=section, line=begin + 1)
    broken.lines[begin:end] = [f"{section}: {draw(values)}"]
    return broken


@st.composite
def garbage(draw: st.DrawFn) -> bytes:
    """Several mistakes of a hurried hand, or a hostile one, and sometimes bytes that are not text."""
    lines = list(LINES)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        indent, key = re.match(r"(\s*)([^:]*)", lines[at]).groups()  # type: ignore[union-attr]
        match draw(st.integers(0, 6)):
            case 0 if key != "d_model":
                lines[at] = f"{indent}{key}: {draw(raw_values)}"
            case 1:
                lines[at] = f"{indent}{draw(raw_values)}: {draw(values)}"
            case 2:
                lines[at : at + draw(st.integers(1, 3))] = [""]
            case 3:
                lines.insert(draw(st.integers(0, len(lines))), lines[at])
            case 4:
                lines[at] = (
                    draw(st.sampled_from(["", " ", "   ", "\t", "- ", "# ", "---\n"])) + lines[at].lstrip()
                )
            case 5:
                other = draw(st.integers(0, len(lines) - 1))
                lines[at], lines[other] = lines[other], lines[at]
            case _:
                lines.insert(at, draw(raw_values))
    content = "\n".join(lines).encode("utf-8", errors="surrogatepass")
    at = draw(st.integers(0, len(content)))
    junk = draw(st.one_of(st.just(b""), st.binary(max_size=6)))
    return content[:at] + junk + content[at + draw(st.integers(0, 3)) :]


def refusal(content: bytes, path: Path) -> list[str]:
    """The sentences that answer a config; none where it loads. Any other exception goes through."""
    path.write_bytes(content)
    try:
        assert isinstance(load_config(path), Config)
    except ConfigError as error:
        sentences = str(error).split("\n")
        # YAML's line breaks: not those of str.splitlines(), which also splits at \x0b, \x0c and \x1c.
        lines = re.split("\r\n|[\r\n\x85\u2028\u2029]", content.decode("utf-8-sig", errors="replace"))
        for sentence in sentences:
            assert sentence.isprintable()
            assert sentence.startswith(str(path)) or re.fullmatch(r"\.\.\. and \d+ more\.", sentence)
            check_line(sentence.removeprefix(str(path)), lines)
        return sentences
    return []


def check_line(sentence: str, lines: list[str]) -> None:
    """The line that a sentence names is there, and the key that it names is on it."""
    number = re.match(r", line (\d+): ", sentence)
    assert number or not re.match(r"[^:]* line ", sentence)
    named = re.search(r": (?:unknown key '([\w.]+)'|(\w+\.\w+) must be|'(\w+)' must be a section)", sentence)
    if named:
        assert number
        key = next(group for group in named.groups() if group).rpartition(".")[2]
        assert key in lines[int(number[1]) - 1]


def check_place(broken: Broken, path: Path) -> bool:
    """Whether it loads; where it does not, a sentence names the line, and on it the key that is wrong."""
    sentences = refusal("\n".join(broken.lines).encode(), path)
    for sentence in sentences:
        place, _, what = sentence.removeprefix(str(path)).partition(": ")
        number = re.fullmatch(r", line (\d+)", place)
        if number is None:
            # What is missing stands on no line.
            assert "is missing" in what or "nothing ends this run" in what or "needs data.path" in what, (
                sentence
            )
            continue
        # A check of two options blames the later of them, and names both.
        named = re.match(r"\s*\"?([^:\"]*)", broken.lines[int(number[1]) - 1])
        assert named is not None
        assert named[1].rstrip()[:SHOWN] in what, sentence
    if sentences:
        key = broken.key.rpartition(".")[2][:SHOWN]
        assert any(key in sentence.removeprefix(str(path)) for sentence in sentences), sentences
        if len(sentences) == 1 and "must be a multiple" not in sentences[0] and "needs" not in sentences[0]:
            assert f"line {broken.line}:" in sentences[0] or "nothing ends" in sentences[0], sentences
    return not sentences


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("configs") / "my.yaml"


def examples(count: int) -> Callable[..., Callable[..., None]]:
    """The same ``count`` examples each time, and no time limit for any."""
    return settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def fuzz(path: Path, count: int) -> None:
    """``count`` broken files: half with one mistake at a known place, half with garbage."""
    loaded = {"placed": 0, "garbage": 0}

    @examples(count // 2)
    @given(broken=st.one_of(wrong_values(), unknown_keys(), wrong_sections()))
    def placed(broken: Broken) -> None:
        loaded["placed"] += check_place(broken, path)

    @examples(count // 2)
    @given(content=garbage())
    def garbled(content: bytes) -> None:
        loaded["garbage"] += not refusal(content, path)

    placed()
    garbled()
    # By chance some are right; were all of them, or none, the drawing would be wrong.
    assert 0 < loaded["placed"] < count / 2 * 0.6
    assert loaded["garbage"] < count / 2 * 0.6


def test_broken_configs(path: Path) -> None:
    fuzz(path, 200)


@pytest.mark.slow
def test_many_broken_configs(path: Path) -> None:
    fuzz(path, 2000)
