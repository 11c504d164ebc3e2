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

REPORT = ("report", "--device", "cpu")


def test_the_sentences_shown_are_of_the_validation_split_and_as_the_model_translates_them(
    trained: RunDirectory, succeed: Call
) -> None:
    assert succeed(*REPORT, "--out", "report.html").out == ""
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
    assert "From 12 of the 12 sentences of" in text
    assert "Left out" not in text
    data = re.search(
        r'class="mt-attention".*?<script type="application/json">(.*?)</script>', text, re.DOTALL
    )
    assert data
    maps = [(each["source"], each["target"]) for each in json.loads(data[1])["sentences"]]
    # Of three of them; the worst comes first.
    assert maps[0] == samples[0]
    assert len({*maps} & {*samples}) == 3


def test_a_card_of_few_sentences_or_none(trained: RunDirectory, succeed: Call) -> None:
    for number in (4, 0):
        _, card, warnings = succeed(*REPORT, "--format", "md", "--sentences", str(number))
        assert card.startswith("---\n")
        assert ("From 4 of the 12 sentences of" in card) == (number == 4)
        assert ("left out" not in card, warnings) == (True, "run: runs/tiny\n")
        assert "<script" not in card


@pytest.mark.parametrize(
    ("gone", "reason"),
    [("corpus", "/?gone"), ("checkpoints", "has no checkpoint"), ("split", "validation .* has changed")],
)
def test_what_cannot_be_translated_is_left_out_with_a_warning(
    gone: str, reason: str, trained: RunDirectory, succeed: Call
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
    _, page, warnings = succeed(*REPORT, "--run", trained.path)
    assert re.search(f"Translations and attention are left out: .*{reason}", page)
    assert re.search(f"^warning: .* left out: .*{reason}", warnings, re.MULTILINE)
    assert "<svg" in page
    assert page.endswith("</html>\n")
