from collections.abc import Callable
from pathlib import Path

import pytest

from mt.config.load import load_config

Call = Callable[..., tuple[int, str, str]]


def test_a_config_is_written_and_can_be_loaded(call: Call, tiny_corpus: Path) -> None:
    code, out, err = call("init", "--data", tiny_corpus, "--src", "en", "--tgt", "de")
    assert (code, err) == (0, "")
    assert out == "Wrote en-de.yaml. Train with it:  mt train --config en-de.yaml\n"
    config = load_config(Path("en-de.yaml"))
    assert (config.data.path, config.data.src, config.data.tgt) == (str(tiny_corpus), "en", "de")
    assert [path.name for path in Path().iterdir()] == ["en-de.yaml"]
    assert call("init", "--data", tiny_corpus, "--src", "de", "--tgt", "en", "-o", "other.yaml")[0] == 0
    assert load_config(Path("other.yaml")).data.src == "de"


def test_what_is_missing_is_named(call: Call) -> None:
    for arguments in ((), ("--data", "x"), ("--data", "x", "--src", "en"), ("--data", "", "--src", "a")):
        code, out, err = call("init", *arguments)
        assert (code, out) == (2, "")
        assert err.startswith("mt: give --data, --src and --tgt, such as: mt init --data")


@pytest.mark.parametrize("option", ["--data", "--src", "--tgt", "--name"])
def test_what_is_not_utf_8_is_a_sentence(option: str, call: Call) -> None:
    given = {"--data": "builtin:primer", "--src": "en", "--tgt": "de"} | {option: "\udcff"}
    code, out, err = call("init", *[word for pair in given.items() for word in pair])
    assert (code, out) == (2, "")
    assert err.startswith(f"mt: {option} ")
    assert "is not UTF-8" in err
    assert err.count("\n") == 1
