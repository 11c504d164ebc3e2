"""`mt report` from a trained run to a page in a browser."""

import json
import re
import shutil
from html import unescape
from pathlib import Path

import pytest

from mt.config.load import load_config
from mt.data.corpus import load_split
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from tests.fixture_types import Call


def test_the_sentences_shown_are_of_the_validation_split_and_as_the_model_translates_them(
    trained: RunDirectory, call: Call
) -> None:
    assert call("report", "--device", "cpu", "--out", "report.html")[0] == 0
    text = Path("report.html").read_text(encoding="utf-8")
    samples = re.findall(
        r'<dl class="sample"><dt>source</dt><dd>(.*?)</dd>\s*<dt>translation</dt><dd>(.*?)</dd>', text
    )
    assert samples
    validation = load_split(load_config(trained.config_file).data, "validation")
    translator = ModelTranslator.from_run(trained, device="cpu")
    for source, translation in samples:
        assert unescape(source) in validation["src"]
        [expected] = translator.translate([unescape(source)])
        assert unescape(translation) == expected
    assert 'class="mt-attention"' in text
    assert "Left out" not in text


@pytest.mark.parametrize(
    ("gone", "reason"),
    [("corpus", "/?gone"), ("checkpoints", "has no checkpoint"), ("split", "validation .* has changed")],
)
def test_what_cannot_be_translated_is_left_out_with_a_warning(
    gone: str, reason: str, trained: RunDirectory, call: Call
) -> None:
    if gone == "checkpoints":
        shutil.rmtree(trained.checkpoints_dir)
    elif gone == "split":
        corpus = json.loads(trained.corpus_file.read_text())
        corpus["splits"]["validation"]["fingerprint"] = "0123456789abcdef"
        trained.corpus_file.write_text(json.dumps(corpus))
    else:
        config = re.sub(r"^  path: .*corpus.*$", "  path: /gone", trained.config_file.read_text(), flags=re.M)
        trained.config_file.write_text(config)
    code, page, warnings = call("report", "--device", "cpu", "--run", trained.path)
    assert code == 0
    assert re.search(f"Translations and attention are left out: .*{reason}", page)
    assert re.search(f"^warning: .* left out: .*{reason}", warnings, re.MULTILINE)
    assert "<svg" in page
    assert page.endswith("</html>\n")
