"""What the guides name is there: functions, tests, options, messages, and the names of other toolkits."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from mt.config.explain import SECTIONS

ROOT = Path(__file__).parent.parent
GUIDES = ("tutorial", "tutorials", "transformer", "coming-from", "troubleshooting")
PAGES = {name: (ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in GUIDES}
CODE_SPANS = {
    name: re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", page, flags=re.DOTALL))
    for name, page in PAGES.items()
}
# Files such as tokenizer.json and validation.en are not options.
OPTION = re.compile(rf"({'|'.join(SECTIONS)})\.(?!json|en$|de$)([a-z_0-9]+)(?=:|$)")


def test_each_name_in_the_page_on_the_paper_is_in_the_file_that_it_links_to() -> None:
    named = re.findall(r"\[`([\w.]+)`\]\(\.\./(mt/[\w/]+\.py)\)", PAGES["transformer"])
    assert len(named) > 40
    for name, path in named:
        assert name in _definitions(ROOT / path), f"{path} does not define {name}"


@cache
def _definitions(file: Path) -> frozenset[str]:
    """The functions and classes of a file, and the methods as ``Class.method``."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return frozenset(found)


def test_files_named_in_a_guide_are_there() -> None:
    named = [span for spans in CODE_SPANS.values() for span in spans if re.match(r"(configs|mt)/", span)]
    assert len(named) > 5
    for path in named:
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", GUIDES)
def test_options_named_in_a_guide_are_options(page: str) -> None:
    named = [match.groups() for span in CODE_SPANS[page] if (match := OPTION.match(span))]
    assert len(named) >= (31 if page == "tutorials" else 3)
    for section, key in named:
        assert key in SECTIONS[section], f"{section}.{key}"


def test_messages_in_the_page_on_trouble_are_messages_of_the_code() -> None:
    shown = [
        span
        for span in CODE_SPANS["troubleshooting"]
        if " " in span and not span.startswith(("mt ", "python ", "--")) and not OPTION.match(span)
    ]
    assert len(shown) > 12
    texts = [text for file in (ROOT / "mt").rglob("*.py") for text in _texts(file)]
    for message in shown:
        assert any(message in text for text in texts), message


def _texts(file: Path) -> list[str]:
    """The strings of a file; parts that follow each other are joined, as Python does."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
