import os
import threading
from collections.abc import Callable
from pathlib import Path

from mt.config.load import load_config

Call = Callable[..., tuple[int, str, str]]


def test_a_config_is_written_and_can_be_loaded(call: Call, tiny_corpus: Path) -> None:
    code, out, err = call("init", "--data", tiny_corpus, "--src", "en", "--tgt", "de")
    assert (code, out) == (0, "")
    assert err == "Wrote en-de.yaml. Train with it:  mt train --config en-de.yaml\n"
    config = load_config(Path("en-de.yaml"))
    assert (config.data.path, config.data.src, config.data.tgt) == (str(tiny_corpus), "en", "de")
    assert [path.name for path in Path().iterdir()] == ["en-de.yaml"]
    assert call("init", "--data", tiny_corpus, "--src", "de", "--tgt", "en", "-o", "other.yaml")[0] == 0
    assert load_config(Path("other.yaml")).data.src == "de"


def test_a_config_can_be_written_into_what_is_no_file(call: Call, tiny_corpus: Path) -> None:
    pipe = Path("pipe")
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    assert call("init", "--data", tiny_corpus, "--src", "en", "--tgt", "de", "-o", pipe)[0] == 0
    reader.join()
    assert "src: en" in read[0]
    assert pipe.is_fifo()
