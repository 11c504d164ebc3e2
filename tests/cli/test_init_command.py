from collections.abc import Callable
from pathlib import Path

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
