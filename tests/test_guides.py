"""What the guides name is there: functions, tests, options, messages, and the names of other toolkits."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import typer.main

from mt.cli.app import app
from mt.config.explain import SECTIONS
from mt.config.load import load_config
from mt.config.synonyms import meaning_of, place_of
from mt.errors import ConfigError

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


@pytest.mark.parametrize(("page", "fewest"), [("transformer", 5), ("tutorials", 26)])
def test_tests_named_in_a_guide_are_there(page: str, fewest: int) -> None:
    tests = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    named = [span for span in CODE_SPANS[page] if span.startswith("test_")]
    assert len(named) >= fewest
    for name in named:
        assert f"def {name}(" in tests, name


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


def _rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading of the page on other toolkits, without its head."""
    _, _, below = PAGES["coming-from"].partition(f"\n## {heading}\n")
    table = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert table
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table[0].splitlines()[2:]]


def test_every_option_of_another_toolkit_is_explained_as_the_page_says() -> None:
    own = {key for fields in SECTIONS.values() for key in fields}
    understood = 0
    for here, *elsewhere in _rows("Options"):
        option = OPTION.match(here.strip("`"))
        assert option, here
        for span in re.findall(r"`([^`]+)`", " ".join(elsewhere)):
            name = re.split(r"[: ]", span)[0].lstrip("-").replace("-", "_")
            if name in own:
                continue
            understood += 1
            assert option[0] in (meaning_of(name) or "").split(" and "), f"{name} is not {option[0]}"
    assert understood > 60


def _search_table() -> str:
    (table,) = re.findall(r"^How to search.*\n\n((?:\|.*\n)+)", PAGES["coming-from"], re.MULTILINE)
    return str(table)


def test_the_search_options_of_the_page_are_those_of_mt_translate() -> None:
    command = typer.main.get_command(app).commands["translate"]  # type: ignore[attr-defined]
    known = {name for each in command.params for name in each.opts}
    named = re.findall(r"^\| `(--[a-z-]+).*?\|", _search_table(), re.MULTILINE)
    assert len(named) > 5
    assert set(named) <= known


def test_what_the_page_does_not_decide_in_the_config_is_answered_with_its_place() -> None:
    rows = [row for row in _search_table().splitlines()[2:] if "--ensemble" not in row]
    rows += [f"| {' | '.join(row)} |" for row in _rows("Commands") if row[0] == "continue"]
    elsewhere = "\n".join(row.split("|", 2)[2] for row in rows)
    # The first name in each cell, such as length_penalty of `length_penalty: wu`.
    names = [name.replace("-", "_") for name in re.findall(r"(?:^|\|) `-*([\w-]+)", elsewhere, re.MULTILINE)]
    assert len(names) > 20
    assert [name for name in names if place_of(name) is None] == []


def test_a_name_from_elsewhere_is_answered_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (shown,) = re.findall(r"^configs/my\.yaml, line 12: .*$", PAGES["coming-from"], re.MULTILINE)
    Path("configs").mkdir()
    head = "data: {path: builtin:primer, src: en, tgt: de}\n"
    Path("configs/my.yaml").write_text(head + "\n" * 9 + "training:\n  accum_count: 2\n")
    with pytest.raises(ConfigError) as error:
        load_config(Path("configs/my.yaml"))
    assert shown in str(error.value).splitlines()


def test_bare_flags_in_the_page_on_tutorials_are_those_of_the_command_before_them() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    command, found = "", 0
    for span in CODE_SPANS["tutorials"]:
        command = span.split()[1] if span.startswith("mt ") else command
        if span.startswith("--"):
            assert span in {name for each in commands[command].params for name in each.opts}, span
            found += 1
    assert found >= 3


# What a config lacks that a guide shows a part of.
HEAD = "data: {path: builtin:primer, src: en, tgt: de}\ntraining: {max_steps: 1}\n"


@pytest.mark.parametrize(
    ("page", "head", "says"),
    [
        ("coming-from", "", {"model.d_model": 512, "model.norm_first": False, "training.clip_norm": None}),
        ("tutorials", "", {"model.d_model": 512, "training.clip_norm": None}),
        ("tutorial", HEAD, {"cleaning.remove_leaks": True}),
    ],
)
def test_the_config_of_a_guide_can_be_loaded(
    tmp_path: Path, page: str, head: str, says: dict[str, object]
) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGES[page], re.DOTALL)
    (tmp_path / "my.yaml").write_text(head + block, encoding="utf-8")
    config = load_config(tmp_path / "my.yaml")
    for option, value in says.items():
        section, _, key = option.partition(".")
        assert getattr(getattr(config, section), key) == value
