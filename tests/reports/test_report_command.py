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
from mt.evaluation.evaluate import run_evaluation
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory

SCRIPT = "<script>alert(1)</script>"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    logger = logging.getLogger("mt")
    before = logger.level, logger.propagate, logger.handlers
    yield
    level, logger.propagate, logger.handlers = before
    logger.setLevel(level)


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Calls ``mt report ARGUMENTS``."""

    def run(*arguments: str | Path) -> int:
        monkeypatch.setattr(sys, "argv", ["mt", "report", "--device", "cpu", *map(str, arguments)])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return run


def test_the_sentences_shown_are_of_the_validation_split_and_as_the_model_translates_them(
    trained: RunDirectory, report: Callable[..., int], tmp_path: Path
) -> None:
    out = tmp_path / "report.html"
    assert report("--run", trained.path, "--out", out) == 0
    text = out.read_text(encoding="utf-8")
    samples = re.findall(
        r'<dl class="sample"><dt>source</dt><dd>(.*?)</dd><dt>translation</dt><dd>(.*?)</dd>', text
    )
    assert samples
    validation = load_split(load_config(trained.config_file).data, "validation")
    translator = ModelTranslator.from_run(trained, device="cpu")
    for source, translation in samples:
        assert unescape(source) in validation["src"]
        [expected] = translator.translate([unescape(source)])
        assert unescape(re.sub("</?mark>", "", translation)) == expected
    assert 'class="mt-attention"' in text
    assert "Left out" not in text


@pytest.mark.parametrize("equal", [True, False])
def test_a_sentence_alone_is_one_of_the_worst_unless_it_equals_its_reference(
    equal: bool,
    trained: RunDirectory,
    report: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reference = load_split(load_config(trained.config_file).data, "validation")["tgt"][0]
    found = reference if equal else f"{reference} x"
    monkeypatch.setattr(ModelTranslator, "translate", lambda self, texts, **options: [found])
    for out in (tmp_path / "report.html", tmp_path / "card.md"):
        options = ("--format", "md") if out.suffix == ".md" else ()
        assert report("--run", trained.path, "--out", out, "--sentences", "1", *options) == 0
        text = out.read_text(encoding="utf-8")
        assert ("All translations equal their references." in text) == equal
        assert ("Only one sentence was ranked." in text) == (not equal)


def test_translations_of_an_evaluation_are_shown_instead_of_new_ones(
    trained: RunDirectory, report: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run_evaluation(trained, split="validation", analyse=False, device="cpu")
    monkeypatch.setattr(ModelTranslator, "translate", None)
    out = tmp_path / "card.md"
    assert report("--run", trained.path, "--format", "md", "--out", out, "--sentences", "1") == 0
    assert f"From {found.num_sentences} of the {found.num_sentences} sentences" in out.read_text()


def test_a_translation_that_is_too_long_to_be_drawn_is_shown_all_the_same(
    trained: RunDirectory, report: Callable[..., int], tmp_path: Path
) -> None:
    found = run_evaluation(trained, split="validation", analyse=False, device="cpu")
    lines = found.hypotheses_file.read_text().split("\n")
    # The worst of all, and so the first to be drawn.
    lines[0] = "a " * 40
    found.hypotheses_file.write_text("\n".join(lines))
    out = tmp_path / "report.html"
    assert report("--run", trained.path, "--out", out) == 0
    text = out.read_text(encoding="utf-8")
    assert "a a a a a a" in re.sub("</?mark>", "", text)
    assert 'class="mt-attention"' in text
    assert "attention are left out" not in text


@pytest.mark.parametrize("sentences", ["0", "3"])
def test_no_more_sentences_are_translated_than_asked_for(
    trained: RunDirectory,
    report: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sentences: str,
) -> None:
    translated: list[str] = []
    translate = ModelTranslator.translate

    def count(self: ModelTranslator, texts: list[str], **options: object) -> list[str]:
        translated.extend(texts)
        return translate(self, texts, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ModelTranslator, "translate", count)
    out = tmp_path / "report.html"
    arguments = ("--run", trained.path, "--out", out, "--attention", "0", "--sentences", sentences)
    assert report(*arguments) == 0
    assert len(translated) == int(sentences)
    assert ("<h2>Translations</h2>" in out.read_text()) == (sentences != "0")


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


def test_a_run_without_checkpoints_is_reported_with_a_warning(
    trained: RunDirectory, report: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(trained.checkpoints_dir)
    out = tmp_path / "report.html"
    assert report("--run", trained.path, "--out", out) == 0
    assert "has no checkpoint" in out.read_text()
    assert re.search(r"^warning: .* left out: .* has no checkpoint", capfd.readouterr().err, re.MULTILINE)


def test_a_run_whose_corpus_is_gone_is_reported_without_translations(
    trained: RunDirectory, report: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = trained.config_file.read_text()
    trained.config_file.write_text(
        re.sub(r"^  path: .*corpus.*$", "  path: /gone", config, flags=re.MULTILINE)
    )
    out = tmp_path / "report.html"
    assert report("--run", trained.path, "--out", out) == 0
    text = out.read_text()
    assert "Translations and attention are left out: " in text
    assert "/gone" in text
    assert re.search(r"^warning: .* left out: .*/gone", capfd.readouterr().err, re.MULTILINE)
    assert "<svg" in text


def test_the_page_goes_to_standard_output_where_no_file_is_named(
    trained: RunDirectory, report: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert report("--run", trained.path, "--sentences", "0") == 0
    out = capfd.readouterr().out
    assert out.startswith("<!doctype html>")
    assert out.endswith("</html>\n")


def test_a_folder_that_is_not_there_is_named_before_anything_is_computed(
    trained: RunDirectory, report: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert report("--run", trained.path, "--out", tmp_path / "no" / "report.html") == 2
    assert "there is no folder" in capfd.readouterr().err


@pytest.mark.parametrize("own", ["config.yaml", "checkpoints/latest"])
def test_the_files_of_the_run_are_not_replaced(
    trained: RunDirectory, report: Callable[..., int], own: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = (trained.path / own).read_bytes()
    assert report("--run", trained.path, "--sentences", "0", "--out", trained.path / own) == 2
    assert "would be replaced" in capfd.readouterr().err
    assert (trained.path / own).read_bytes() == before
    for _ in range(2):
        assert report("--run", trained.path, "--sentences", "0", "--out", trained.path / "report.html") == 0


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_in_a_browser_is_quiet_fits_and_asks_for_nothing(
    trained: RunDirectory, report: Callable[..., int], tmp_path: Path, width: int
) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    corpus = json.loads(trained.corpus_file.read_text())
    corpus |= {"path": SCRIPT, "dropped_in_training": {f"<img src=http://evil onerror=alert(2)> {SCRIPT}": 5}}
    trained.corpus_file.write_text(json.dumps(corpus))
    run_evaluation(trained, analyse=False, device="cpu")
    out = tmp_path / "report.html"
    assert report("--run", trained.path, "--out", out) == 0
    said: list[str] = []
    asked: list[str] = []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch_persistent_context(
            tmp_path / "profile",
            executable_path=CHROMIUM,
            headless=True,
            args=FLAGS,
            viewport={"width": width, "height": 800},
        )
        page = browser.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.expose_function("alert", lambda text: said.append(str(text)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(out.as_uri())
        assert page.locator("h1").inner_text().startswith("tiny")
        assert page.get_by_text(SCRIPT).count() >= 2
        # Nothing is wider than the window, and the charts are drawn.
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        charts = page.locator("figure.chart > svg")
        assert charts.count() == 4
        for number in range(4):
            assert charts.nth(number).bounding_box()["width"] > min(400, 0.8 * width)
        page.locator("summary", has_text="All options").click()
        assert page.locator("pre", has_text="d_model").is_visible()
        browser.close()
    assert said == []
    assert asked == [out.as_uri()]
