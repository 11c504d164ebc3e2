"""The page and the card: the same facts, escaped, and nothing that loads or runs."""

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

from mt.evaluation.analysis import ScoredSentence
from mt.inference.loaded_model import load_model
from mt.inference.model_translator import ModelTranslator
from mt.reports.facts import RunFacts
from mt.reports.report import figures, render
from mt.reports.runs import runs_table
from mt.reports.samples import RankedSamples, rank_samples
from mt.reports.show import describe
from mt.run_directory import RunDirectory
from tests.fixture_types import GoldenRun

SCRIPT = "<script>alert(1)</script>"
HOSTILE = f"{SCRIPT}\x1b]0;owned\x07 **bold** [x](http://evil) | ~~a~~ $x$ \u202e `</style>` ``` --- &amp;"
VOID = {"meta", "link", "br", "wbr"}


class Outline(HTMLParser):
    """The elements of a page, its text, and whether every element is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.parts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.parts.append((self.open[-1] if self.open else "", data))

    @property
    def text(self) -> str:
        return "".join(data for tag, data in self.parts if tag not in ("style", "script"))

    def of(self, element: str) -> list[dict[str, str | None]]:
        """The attributes of each of these elements."""
        return [attributes for tag, attributes in self.tags if tag == element]

    def inside(self, element: str) -> list[str]:
        return [data for tag, data in self.parts if tag == element]


def samples_of(sentence: str) -> RankedSamples:
    best = [ScoredSentence(1, sentence, f"one {sentence}", f"other {sentence}", 99.0)]
    worst = [ScoredSentence(2, sentence, "", sentence, 1.0)]
    return RankedSamples(f"{sentence}, validation", "step_1", 2, 2, best, worst)


def page_of(run: RunDirectory, sentence: str = "Hello.", **more: Any) -> str:
    return render(RunFacts(run), "html", samples_of(sentence), **more)


def card_of(run: RunDirectory, sentence: str = "Hello.", **more: Any) -> str:
    return render(RunFacts(run), "md", samples_of(sentence), **more)


def rendered(markdown: str) -> str:
    """HTML of Markdown with the extensions that the Hub has, markup in it allowed."""
    return str(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown))


@pytest.fixture
def hostile_run(golden_run: GoldenRun) -> RunDirectory:
    """A run whose records hold markup and escape sequences wherever text is allowed."""
    run = golden_run(name="a<b>'&\x1b]")
    config = run.config_file.read_text()
    assert "path: corpus" in config
    quoted = json.dumps(HOSTILE.replace("\u202e", ""))
    run.config_file.write_text(config.replace("path: corpus", f"path: {quoted}"))
    corpus = json.loads(run.corpus_file.read_text())
    corpus["dropped_in_training"] = {HOSTILE: 2}
    source = corpus["sources"][0] | {"path": HOSTILE, "src": HOSTILE, "revision": HOSTILE}
    corpus["sources"] = [source, source]
    corpus["splits"]["train"] |= {"fingerprint": HOSTILE}
    corpus["vocabulary_sizes"] = {HOSTILE: 7}
    run.corpus_file.write_text(json.dumps(corpus))
    events = [{"event": "start"}, {"event": "warning", "text": HOSTILE}, {"event": "end", "reason": HOSTILE}]
    lines = [json.dumps({"time": "2026-01-01T00:00:00+00:00", **event}) for event in events]
    run.sessions_file.write_text("\n".join(lines))
    texts = dict.fromkeys(("mt_version", "setting", "data", "checkpoint", "search"), HOSTILE)
    score = {"name": HOSTILE, "value": 1, "signature": HOSTILE, "interval": [0, 2]}
    numbers = {"time": "2026-01-01T00:00:00Z", "step": 1, "num_sentences": 2, "exact": 0}
    evaluation = {**texts, **numbers, "scores": {"bleu": score, HOSTILE: score}}
    run.evaluations_file.write_text(json.dumps(evaluation))
    return run


def test_hostile_text_is_text_in_the_terminal(hostile_run: RunDirectory) -> None:
    facts = RunFacts(hostile_run)
    table, story = runs_table({hostile_run.name: facts}, {}, width=math.inf), describe(facts)
    for text in (table, story):
        assert not [character for character in text if not character.isprintable() and character != "\n"]
    assert r"a<b>'&\x1b]" in table
    assert story.count(r"\x1b]0;owned\x07") >= 8


def test_hostile_text_is_text_in_the_page(hostile_run: RunDirectory) -> None:
    text = page_of(hostile_run, HOSTILE, left_out=[HOSTILE])
    outline = Outline(text)
    assert "script" not in [tag for tag, _ in outline.tags]
    assert not [character for character in text if not character.isprintable() and character not in "\n"]
    assert outline.text.count(SCRIPT) > 15


def test_hostile_text_is_text_in_the_card(hostile_run: RunDirectory) -> None:
    text = card_of(hostile_run, HOSTILE, left_out=[HOSTILE])
    assert not [character for character in text if not character.isprintable() and character not in "\n"]
    _, front, body = re.split(r"^---$", text, maxsplit=2, flags=re.MULTILINE)
    assert yaml.safe_load(front)["license"] == "unknown"
    outline = Outline(rendered(body))
    allowed = "h1 h2 h3 p ul li table thead tbody tr th td code pre"
    assert {tag for tag, _ in outline.tags} == set(allowed.split())
    assert outline.text.count(f"{SCRIPT}\\x1b]0;owned\\x07 **bold** [x](http://evil) | ~~a~~") > 20
    # A row with more bars than its head would lose what is behind them.
    for table in re.findall(r"<table>.*?</table>", rendered(body), re.DOTALL):
        assert len({row.count("<td") + row.count("<th>") for row in table.split("<tr>")[1:]}) == 1, table
    # Formulas are part of the Hub's Markdown alone.
    left_out = body.partition("## Left out of this card")[2]
    assert "$" not in left_out
    assert "&#36;x&#36;" in left_out


def test_the_page_loads_nothing_and_runs_no_script_but_the_one_that_is_named(golden_run: GoldenRun) -> None:
    script = "<p><script>drawn()</script></p>"
    outline = Outline(page_of(golden_run(), attention=script, script_hash="'sha256-abc='"))
    metas = {attributes.get("http-equiv"): attributes.get("content") for attributes in outline.of("meta")}
    policy = str(metas["Content-Security-Policy"])
    assert policy.startswith("default-src 'none'")
    assert "script-src 'sha256-abc='" in policy
    assert "script-src" not in page_of(golden_run(name="b"))
    sections = {f"#{attributes['id']}" for attributes in outline.of("section")}
    assert sections == {attributes["href"] for attributes in outline.of("a")}
    for tag, attributes in outline.tags:
        for name in ("src", "href", "srcset", "data", "action"):
            value = attributes.get(name) or "#"
            assert value.startswith(("#", "data:,")), (tag, value)
        assert not [name for name in attributes if name.startswith("on")]
    assert not re.search(r"url\(|@import|https?:", "".join(outline.inside("style")))


def record(run: RunDirectory, *evaluations: tuple[str, str, float]) -> None:
    """Write evaluations of different sentences into a run: data, checkpoint and BLEU."""
    lines = []
    for number, (data, checkpoint, value) in enumerate(evaluations):
        score = {"name": "BLEU", "value": value, "signature": "a:1|b:2", "interval": [value - 1, value + 1]}
        evaluation = {
            "time": "2026-01-01T00:00:00Z", "mt_version": "1", "setting": f"set{number}.{checkpoint}.greedy",
            "data": data, "checkpoint": checkpoint, "step": 600, "search": "beam of 5", "num_sentences": 77,
            "exact": 0, "scores": {"bleu": score},
        }  # fmt: skip
        lines.append(json.dumps(evaluation) + "\n")
    run.evaluations_file.write_text("".join(lines))


def test_page_and_card_tell_the_facts_of_the_files(golden_run: GoldenRun) -> None:
    run = golden_run()
    record(run, ("corpus, test", "step_0000600", 31.25))
    validation: dict[str, Any] = {"event": "validation", "signatures": {"BLEU": "of-bleu"}}
    events = [{"event": "start"}, validation]
    lines = [json.dumps({"time": "2026-01-01T00:00:00+00:00", **event}) for event in events]
    run.sessions_file.write_text("\n".join(lines))
    corpus = json.loads(run.corpus_file.read_text())
    *_, last = (json.loads(line) for line in run.metrics_file.read_text().splitlines())
    text = Outline(page_of(run, "Anna sees milk.")).text
    for label, key in (("validation", "loss"), ("BLEU", "bleu"), ("chrF2", "chrf")):
        assert f"{label} at step 600: {last[key]:.4g}" in text
    assert figures(RunFacts(run)) == {
        "BLEU on test": "31.2", "training pairs": "60", "parameters": "1.88k", "steps": "600",
        "target tokens": "82.8k", "of training": "3 s",
    }  # fmt: skip
    markdown = card_of(run, "Anna sees milk.")
    for expected in (
        "31.25", "30.25 to 32.25", "beam of 5", "Anna sees milk.", "of-bleu",
        "mt train --config golden.yaml --run runs/golden", "mt evaluate --run runs/golden --split test",
        corpus["splits"]["train"]["fingerprint"], str(RunFacts(run).environment["torch"]),
    ):  # fmt: skip
        assert expected in text, expected
        assert expected.replace("_", r"\_") in markdown or expected in markdown, expected
    assert "a:1|b:2" in text
    assert r"a:1\|b:2" in markdown
    front = yaml.safe_load(markdown.split("---\n")[1])
    assert front["language"] == ["en", "de"]
    assert {"type": "bleu", "name": "BLEU, beam of 5", "value": 31.25} in (
        front["model-index"][0]["results"][0]["metrics"]
    )


def test_where_the_corpus_is_on_the_disk_is_not_told(golden_run: GoldenRun) -> None:
    run = golden_run()
    for file in (run.config_file, run.corpus_file):
        file.write_text(re.sub('(path: |")corpus', r"\1/home/me_a/corpus", file.read_text()))
    with run.config_file.open("a") as config:
        config.write("init_from:\n  run: /home/me_a/old\n")
    record(run, ("/home/me_a/corpus, test", "step_0000600", 31.25), ("~/data/of/b.tsv", "step_0000600", 3.5))
    for page in (page_of(run), card_of(run)):
        assert not re.search(r"/home|/data|me\\?_a", page)
        assert ("corpus, test" in page, "b.tsv" in page) == (True, True)


def test_the_headline_is_of_the_test_split_of_the_run_before_other_data(golden_run: GoldenRun) -> None:
    run = golden_run()
    best = "step_0000600"
    other, validation = ("elsewhere/corpus, test", best, 7.5), ("corpus, validation", best, 29.5)
    lines = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
    in_training = max(line["bleu"] for line in lines if "bleu" in line)
    # Another checkpoint, and training data, say nothing about the model.
    strangers = ("corpus, test", "step_0000500", 28.5), ("corpus, train", best, 99.75)
    # The files behind a name may change in between.
    twice = ("corpus, test", best, 30.5), ("corpus, test", best, 31.5)
    for evaluations, headline in (
        ((*twice, validation, other), {"BLEU on test": "31.5"}),
        ((validation, other), {"BLEU on validation": "29.5"}),
        ((other, *strangers), {"BLEU on validation": f"{in_training:.1f}"}),
    ):
        record(run, *evaluations)
        shown = figures(RunFacts(run))
        assert {name: value for name, value in shown.items() if "BLEU" in name} == headline
        markdown = card_of(run)
        (index,) = yaml.safe_load(markdown.split("---\n")[1])["model-index"]
        hub = {metric["value"] for result in index["results"] for metric in result["metrics"]}
        assert not hub & {28.5, 99.75, 30.5}
        # All are in the table.
        assert all(f"| {value:.2f} |" in markdown for _, _, value in evaluations)


def test_what_equals_its_reference_is_not_among_the_worst(trained: RunDirectory, tiny_corpus: Path) -> None:
    loaded = load_model(trained, "best")
    ranked = rank_samples(trained, loaded, ModelTranslator(loaded), num_sentences=12)
    assert ranked.best[0].translation == ranked.best[0].reference
    assert all(sample.translation != sample.reference for sample in ranked.worst)
    order = [(-sample.chrfpp, -len(sample.reference)) for sample in ranked.best]
    assert order == sorted(order)
    # If all are wrong, each is among the best or the worst.
    facts, milk = SimpleNamespace(directions=[]), SimpleNamespace(text="Milch", is_cut=False)
    wrong: Any = SimpleNamespace(facts=facts, n_best=lambda sources, **_: [[milk]] * len(sources))
    for number, shown in ((12, (5, 5)), (3, (1, 2))):
        few = rank_samples(trained, loaded, wrong, num_sentences=number)
        assert (len(few.best), len(few.worst), few.num_sentences, few.num_in_split) == (*shown, number, 12)
    sources = (tiny_corpus / "validation.en").read_text(encoding="utf-8").splitlines()
    assert all(sources[sample.number - 1] == sample.source for sample in (*ranked.best, *ranked.worst))
