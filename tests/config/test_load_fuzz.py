"""Broken configs at random: each loads, or is answered with sentences that name file and right line."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mt.config.config import Config
from mt.config.load import load_config
from mt.config.write import config_to_yaml
from mt.errors import ConfigError

VALID = Config.model_validate(
    {"data": {"path": "builtin:primer", "src": "en", "tgt": "de"}, "training": {"max_steps": 1000}}
)
WORDS = (
    "null ~ true no yes 0 -1 1 7 999999 1_0 0.5 -0.0 1e-4 1e5 1e999 1e-999 .nan .inf nan 010 0x1F 1:30 "
    "2024-01-01 text '3' '' ' \" [ [] {} { *a | >- % @ ` ? << !!python/name:os.system "
    "é中😀 \x00 \x1b[31m \ufeff"
)
VALUES = [
    *WORDS.split(" "),
    *("", "a: b", "a #b", "[1, 2]", "{a: 1}", "- 1", "&a b", "!!int 3", "\x85", "\u2028"),
    *('"\\e[31m"', '"\\uD800"', '"\\UFFFFFFFF"', "9" * 18, "9" * 40, "1" * 5000, "[" * 300, "{a: " * 40),
]
KEY_WORDS = "d_modl num_heads seed path no 1 ? é ' [a] model.d_ff << {} ~ model data"
KEYS = [*KEY_WORDS.split(" "), "", "\t", '"a b"', '"\\n"', "k" * 100, "k" * 2000]


def mutate_lines(lines: list[str], chance: random.Random) -> None:
    """One mistake that a hurried hand makes, or a hostile one."""
    index = chance.randrange(len(lines))
    indent, key, value = re.fullmatch(r"(\s*)([^:]*):?(.*)", lines[index], re.DOTALL).groups()  # type: ignore[union-attr]
    kind = chance.randrange(9)
    if (
        kind <= 2 and "d_model" not in key
    ):  # Its own check lists the divisors, so absurd widths are for its test.
        lines[index] = f"{indent}{key}: {chance.choice(VALUES)}"
    elif kind == 3:
        lines[index] = f"{indent}{chance.choice(KEYS)}:{value}"
    elif kind == 4:
        del lines[index : index + chance.randrange(1, 4)]
        lines.append("")
    elif kind == 5:
        lines.insert(chance.randrange(len(lines) + 1), lines[index])
    elif kind == 6:
        lines[index] = chance.choice(["", " ", "   ", "\t", "- ", "# ", "---\n"]) + lines[index].lstrip()
    elif kind == 7:
        lines.insert(index, f"{indent}{chance.choice(KEYS)}: {chance.choice(VALUES)}")
    else:
        other = chance.randrange(len(lines))
        lines[index], lines[other] = lines[other], lines[index]


def mutate_bytes(content: bytes, chance: random.Random) -> bytes:
    """Garbage where a text was."""
    at = chance.randrange(len(content) + 1)
    junk = bytes(
        chance.choice(b"\x00\t\n\r\x1b\x80\xc3\xff '\"#&*:?[]{}!|>%@`-,~a")
        for _ in range(chance.randrange(6))
    )
    return content[:at] + junk + content[at + chance.randrange(6) :]


def broken_config(chance: random.Random) -> bytes:
    lines = config_to_yaml(VALID, comments=False).splitlines()
    for _ in range(chance.randrange(1, 4)):
        mutate_lines(lines, chance)
    content = "\n".join(lines).encode("utf-8")
    if chance.random() < 0.3:
        content = mutate_bytes(content, chance)
    return content[: chance.randrange(len(content) + 1)] if chance.random() < 0.05 else content


def check(content: bytes, path: Path) -> bool:
    """Whether ``content`` loads; where it does not, its message is as good as promised."""
    path.write_bytes(content)
    try:
        assert isinstance(load_config(path), Config)
    except ConfigError as error:
        text = content.decode("utf-8-sig", errors="replace")
        # YAML's line breaks: not those of str.splitlines(), which also splits at \x0b, \x0c and \x1c.
        lines = re.split("\r\n|[\r\n\x85\u2028\u2029]", text)
        for sentence in str(error).split("\n"):
            assert sentence.isprintable()
            assert sentence.startswith(str(path)) or re.fullmatch(r"\.\.\. and \d+ more\.", sentence)
            number = re.match(r"configs/my\.yaml, line (\d+): ", sentence)
            assert number or " line " not in sentence.partition(": ")[0]
            named = re.search(
                r": (?:unknown key '([\w.]+)'|(\w+\.\w+) must be|'(\w+)' must be a section)", sentence
            )
            if named:
                key = next(group for group in named.groups() if group).rpartition(".")[2]
                assert number
                assert key in lines[int(number[1]) - 1]
        return False
    return True


def run_fuzz(path: Path, seed: int, cases: int) -> None:
    chance = random.Random(seed)
    loaded = 0
    for case in range(cases):
        content = broken_config(chance)
        try:
            loaded += check(content, path)
        except Exception as error:
            raise AssertionError(f"case {case} of seed {seed}: {error!r}\n{content!r}") from error
    assert 0 < loaded < cases / 2


def test_broken_configs(write_config: Callable[[str], Path]) -> None:
    run_fuzz(write_config(""), seed=1, cases=300)


@pytest.mark.slow
def test_many_broken_configs(write_config: Callable[[str], Path]) -> None:
    run_fuzz(write_config(""), seed=2, cases=2000)
