"""`mt report` from a trained run to a page in a browser."""

import json
import logging
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path

import pytest

from mt.__main__ import main
from mt.config.load import load_config
from mt.data.corpus import load_split
from mt.inference.loaded_model import load_model
from mt.inference.model_translator import ModelTranslator
from mt.reports.samples import rank_samples
from mt.run_directory import RunDirectory


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Calls ``mt report ARGUMENTS``."""
    logger = logging.getLogger("mt")
    before = logger.level, logger.propagate, logger.handlers

    def run(*arguments: str | Path) -> int:
        device = [] if "--device" in arguments else ["--device", "cpu"]
        monkeypatch.setattr(sys, "argv", ["mt", "report", *device, *map(str, arguments)])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    yield run
    level, logger.propagate, logger.handlers = before
    logger.setLevel(level)


def test_the_sentences_shown_are_of_the_validation_split_and_as_the_model_translates_them(
    trained: RunDirectory, report: Callable[..., int], tmp_path: Path
) -> None:
    out = tmp_path / "report.html"
    assert report("--run", trained.path, "--out", out) == 0
    text = out.read_text(encoding="utf-8")
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


def test_what_equals_its_reference_is_not_among_the_worst(trained: RunDirectory) -> None:
    loaded = load_model(trained, "best")
    ranked = rank_samples(trained, loaded, ModelTranslator(loaded), num_sentences=12)
    assert ranked.best[0].translation == ranked.best[0].reference
    assert all(sample.translation != sample.reference for sample in ranked.worst)


@pytest.mark.parametrize(
    ("option", "name", "fact"),
    [("--checkpoint", "step_0000007", "Sound checkpoints: step_"), ("--device", "gpu", "Choose auto or cpu")],
)
def test_a_checkpoint_or_device_that_is_not_there_is_refused(
    trained: RunDirectory,
    report: Callable[..., int],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    option: str,
    name: str,
    fact: str,
) -> None:
    out = tmp_path / "report.html"
    assert report("--run", trained.path, "--out", out, option, name) == 2
    error = capfd.readouterr().err
    assert f"{name!r}" in error
    assert fact in error
    assert not out.exists()


@pytest.mark.parametrize(
    ("gone", "reason"),
    [("corpus", "/gone"), ("checkpoints", "has no checkpoint"), ("split", "validation split .* has changed")],
)
def test_what_cannot_be_translated_is_left_out_with_a_warning(
    gone: str,
    reason: str,
    trained: RunDirectory,
    report: Callable[..., int],
    capfd: pytest.CaptureFixture[str],
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
    assert report("--run", trained.path) == 0
    page, warnings = capfd.readouterr()
    assert re.search(f"Translations and attention are left out: .*{reason}", page)
    assert re.search(f"^warning: .* left out: .*{reason}", warnings, re.MULTILINE)
    assert "<svg" in page
    assert page.endswith("</html>\n")
