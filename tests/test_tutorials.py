"""What docs/tutorials.md names is there: options, commands, files and tests."""

import re
from pathlib import Path

import typer.main

from mt.cli.app import app
from mt.config.explain import SECTIONS
from mt.config.load import load_config

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/tutorials.md").read_text(encoding="utf-8")
# Words that are set as code outside of the config.
CODE = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))


def test_what_the_page_for_tutorials_names_is_there() -> None:
    tests = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    named = [word for word in CODE if word.startswith("test_")]
    assert len(named) > 25
    for name in named:
        assert f"def {name}(" in tests, name
    for path in (word for word in CODE if re.match(r"(configs|mt)/", word)):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"\]\(([\w-]+\.md)\)", PAGE):
        assert (ROOT / "docs" / path).exists(), path


def test_its_options_are_options_of_the_config() -> None:
    named = [
        match.groups()
        for word in CODE
        if (match := re.match(rf"({'|'.join(SECTIONS)})\.([a-z_]+)(?::.*)?$", word))
        and word != "tokenizer.json"
    ]
    assert len(named) > 30
    for section, key in named:
        assert key in SECTIONS[section], f"{section}.{key}"


def test_its_commands_take_the_options_that_it_names() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    command, found = "", 0
    for word in CODE:
        command = word.split()[1] if word.startswith("mt ") else command
        for option in re.findall(r"--[a-z-]+", word):
            if word.startswith(("mt ", "--")):
                assert option in {name for each in commands[command].params for name in each.opts}, word
                found += 1
    assert found >= 7


def test_the_config_of_the_first_tutorial_can_be_loaded(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "tutorial.yaml").write_text(block, encoding="utf-8")
    config = load_config(tmp_path / "tutorial.yaml")
    assert (config.model.d_model, config.training.clip_norm) == (512, None)
