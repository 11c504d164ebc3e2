"""Broken configs: each loads, or the error is sentences that name a line."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mt.config.config import Config
from mt.config.load import load_config
from mt.config.write import config_to_yaml
from mt.display import visible
from mt.errors import ConfigError

VALID = Config.model_validate(
    {"data": {"path": "builtin:primer", "src": "en", "tgt": "de"}, "training": {"max_steps": 1000}}
)
LINES = config_to_yaml(VALID, comments=False).splitlines()

WELL_FORMED = (
    "0 -1 7 999999 1_0 0.5 1e-4 1e999 .nan 010 1:30 null ~ true no text bleu '3' '' é中😀 [1,2] {a:1}"
)
HOSTILE = (
    "' \" [ { *a | >- % @ ` ? << !!python/name:os.system & &a ]} \x00 \x1b[31m \ufeff \x85 \u2028 a:#b -#1 "
    '!!int#3 "\\e[31m" "\\uD800" "\\UFFFFFFFF" [[[[[[[[[[ \t1'
)
# The check of d_model lists the heads that would fit, which takes long for absurd widths.
values = st.one_of(
    st.sampled_from(WELL_FORMED.split()),
    st.integers(-(10**6), 10**6).map(str),
    st.floats(allow_nan=False).map(repr),
    st.from_regex(r"[a-z]{1,12}( [a-z]{1,5})?", fullmatch=True),
)
raw_values = st.one_of(
    st.sampled_from([word.replace("#", " ") for word in HOSTILE.split(" ")]), st.text(max_size=12)
)


@st.composite
def garbage(draw: st.DrawFn) -> bytes:
    """Several mistakes of a hurried hand, or a hostile one, and sometimes bytes that are not text."""
    lines = list(LINES)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        match draw(st.integers(0, 4)):
            case 0 if "d_model" not in lines[at]:
                lines[at] = f"{lines[at].partition(':')[0]}: {draw(raw_values)}"
            case 1:
                lines[at] = f"{draw(raw_values)}: {draw(values)}"
            case 2:
                lines.insert(draw(st.integers(0, len(lines))), lines[at])
            case 3:
                lines[at] = draw(st.sampled_from(["", " ", "\t", "- ", "# ", "---\n"])) + lines[at].lstrip()
            case _:
                lines.insert(at, draw(raw_values))
    content = "\n".join(lines).encode("utf-8", errors="surrogatepass")
    at = draw(st.integers(0, len(content)))
    return content[:at] + draw(st.one_of(st.just(b""), st.binary(max_size=6))) + content[at:]


@pytest.mark.parametrize("count", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_broken_configs(tmp_path: Path, count: int) -> None:
    path = tmp_path / "my.yaml"
    num_loaded = 0

    @settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(content=garbage())
    def check(content: bytes) -> None:
        nonlocal num_loaded
        path.write_bytes(content)
        try:
            load_config(path)
        except ConfigError as error:
            # YAML's line breaks: not those of str.splitlines(), which also splits at \x0b, \x0c and \x1c.
            lines = re.split("\r\n|[\r\n\x85\u2028\u2029]", content.decode("utf-8-sig", errors="replace"))
            for sentence in str(error).split("\n"):
                assert visible(sentence) == sentence
                match = re.fullmatch(rf"{re.escape(str(path))}(?:, line (\d+))?: (.*)", sentence)
                assert match, sentence
                assert not match[1] or 1 <= int(match[1]) <= len(lines)
        else:
            num_loaded += 1

    check()
    # By chance some are right; if all or none were, the drawing would be wrong.
    assert 0 < num_loaded < count * 0.6
