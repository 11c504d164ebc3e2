"""Commands that are called wrongly, and what they answer; recipes; Ctrl-C."""

import itertools
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import typer.main

import mt
from mt.cli.app import app
from mt.cli.usage import FLAGS
from mt.config.load import load_config

Call = Callable[..., tuple[int, str, str]]
COMMANDS = list(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
ROOT = Path(mt.__file__).parent.parent


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("translate --model runs/x Hello", "Did you mean --run?"),
        ("translate --checkpoint-dir runs/x Hello", "Did you mean --run?"),
        ("evaluate --model_path=runs/x", "Did you mean --run?"),
        ("translate --input a.txt", "Did you mean --file?"),
        ("translate --beam-size 5 Hello", "Did you mean --beam?"),
        ("translate --max_len 5 Hello", "Did you mean --max-length?"),
        ("init --dataset x --src en --tgt de", "Did you mean --data?"),
        ("init --data x --source-lang en", "Did you mean --src?"),
        ("train --overwrite -c a.yaml", "Did you mean --restart?"),
        ("train -c a.yaml --lr 3", "--set schedule.learning_rate=..."),
        ("train -c a.yaml --batch_size=3", "--set training.batch_tokens=..."),
        ("train -c a.yaml --num-layers 3", "model.num_encoder_layers=... --set model.num_decoder_layers=..."),
        ("train -c a.yaml --dropout 0.1", "--set model.dropout=..."),
        ("train my.yaml", "mt train --config my.yaml"),
        ("check my.yml", "mt check --config my.yml"),
        ("evaluate --split dev", "Did you mean --split validation?"),
        ("evaluate --split=val", "Did you mean --split validation?"),
        ("compare --split valid a b", "Did you mean --split validation?"),
        ("show --run runs/x", "mt show RUN"),
        ("runs --run runs/x", "mt runs RUN"),
    ],
)
def test_what_was_meant_is_reported_in_one_line(command: str, meant: str, call: Call) -> None:
    code, out, err = call(*command.split())
    assert (code, out) == (2, "")
    assert err.startswith("mt: ")
    assert err.count("\n") == 1
    assert meant in err


def test_a_run_without_its_option(call: Call) -> None:
    Path("my run").mkdir()
    Path("my run", "config.yaml").touch()
    code, out, err = call("evaluate", "my run")
    assert (code, out) == (2, "")
    assert err == "mt: evaluate takes its run with --run: mt evaluate --run 'my run'\n"


def test_help_is_wrapped_to_the_terminal(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for command in COMMANDS:
        text = call(command, "--help")[1].partition("╭")[0]
        assert "[[" not in text
        lines = [line.strip() for line in text.splitlines()]
        for line, following in itertools.pairwise(lines):
            # Usages and exit codes have lines of their own.
            if line and following and not re.match(r"Usage: |\d+ ", following):
                assert len(f"{line} {following.split()[0]}") > 76, line
    assert "[default: (test)]" in call("compare", "--help")[1]


@pytest.mark.parametrize(
    "command", ["translate --zzz", "evaluate --split nowhere", "train --config", "train", "train --set"]
)
def test_where_nobody_knows_the_usage_is_shown(command: str, call: Call) -> None:
    code, out, err = call(*command.split())
    assert (code, out) == (2, "")
    assert "Error" in err
    assert "Did you mean" not in err


def test_only_options_that_exist_are_suggested(call: Call) -> None:
    helps = "".join(call(command, "--help")[1] for command in COMMANDS)
    for option in FLAGS:
        assert option in helps


def test_the_version_has_two_names(call: Call) -> None:
    assert call("-V") == call("--version") == (0, f"mt {mt.__version__}\n", "")


def test_recipes_are_listed_and_printed(call: Call) -> None:
    code, out, _ = call("init", "--recipe")
    assert code == 0
    recipes = sorted((ROOT / "configs").glob("*.yaml"))
    assert sorted(line.split()[0] for line in out.splitlines()) == sorted(file.stem for file in recipes)
    assert all(len(line.split()) > 3 for line in out.splitlines())
    for recipe in recipes:
        for name in (recipe.name, recipe.stem):
            assert call("init", "--recipe", name) == (0, recipe.read_text(encoding="utf-8"), "")
    code, out, err = call("init", "--recipe", "nope")
    assert (code, out) == (2, "")
    assert "there is no recipe 'nope'. The recipes are " in err
    assert call("init", "--recipe", "quickstart", "--src", "en")[0] == 2
    code, out, _ = call("init", "--recipe", "--help")
    assert code == 0
    assert "--recipe" in out


def test_who_has_no_configs_is_sent_to_a_recipe(call: Call) -> None:
    for command in (("translate", "Hello"), ("translate", "--run", "nowhere", "Hello")):
        code, _, err = call(*command)
        assert code == 2
        assert "configs/" not in err
        assert "mt init --recipe quickstart > quickstart.yaml; mt train --config quickstart.yaml" in err
    for file in ("configs/quickstart.yaml", "quickstart.yaml"):
        code, _, err = call("train", "--config", file)
        assert code == 2
        assert "there is a recipe named quickstart" in err
        assert "mt init --recipe NAME > NAME.yaml" in err
    Path("quickstart.yaml").write_text(call("init", "--recipe", "quickstart")[1])
    assert load_config(Path("quickstart.yaml")).data.path == "builtin:primer"


def test_the_recipes_are_in_the_wheel(tmp_path: Path) -> None:
    # What the build backend does, by hand: the package, and what is to be put into it.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    installed = tmp_path / "installed"
    shutil.copytree(ROOT / "mt", installed / "mt", ignore=shutil.ignore_patterns("__pycache__"))
    for source, place in wheel["force-include"].items():
        shutil.copytree(ROOT / source, installed / place)
    listed = subprocess.run(
        [sys.executable, "-m", "mt", "init", "--recipe"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    recipes = {file.stem for file in (ROOT / "configs").glob("*.yaml")}
    assert {line.split()[0] for line in listed.splitlines()} == recipes


@pytest.mark.usefixtures("trained")
def test_ctrl_c_ends_the_line_of_a_terminal() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "mt", "translate", "--run", "runs/tiny"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = os.read(ours, 1000)
        assert b"Type a sentence" in shown
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130
    # If the signal interrupts Python while it flushes the invitation, the invitation is flushed once more.
    assert (shown + os.read(ours, 1000)).endswith(b"ends.\r\n\r\n")
    os.close(ours)
