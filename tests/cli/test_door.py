"""Help, lists and mistakes wait for no library that trains; they do not even need one."""

import os
import subprocess
import sys
from pathlib import Path

from mt.cli.app import COMMANDS

LINES = [
    "--help",
    "runs",
    "config",
    "schema",
    "init --recipe list",
    *(f"{command} {option}" for command in COMMANDS.split() for option in ("--help", "--zzz")),
    *(f"{command} --run nowhere" for command in ["evaluate", "average", "report"]),
    "attention --run nowhere a b",
    "export out --to ctranslate2 --run nowhere",
    "show nowhere",
    "runs nowhere",
    "compare a b",
    "config nope",
    *(f"{command} --config nowhere.yaml" for command in ["train", "check"]),
    *(f"{command} --config wrong.yaml" for command in ["train", "check"]),
    "attention --file nowhere.txt",
]
SCRIPT = """
import sys
from contextlib import suppress
from mt.__main__ import main

BANNED = {*sys.argv[1:]}
for line in sys.stdin.read().splitlines():
    sys.argv = ["mt", *line.split()]
    with suppress(SystemExit):
        main()
    found = BANNED & sys.modules.keys()
    assert not found, (line, found)
"""
TRAINING = ["torch", "datasets", "huggingface_hub", "pyarrow"]


def call(lines: list[str], banned: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *banned],
        input="\n".join(lines),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={key: value for key, value in os.environ.items() if key != "MT_ENGINE"},
    )


def test_what_needs_no_library_imports_none(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("data: {path: nowhere, src: en, tgt: de, lr: 3}\n")
    done = call(LINES, [*TRAINING, "numpy", "tokenizers"], tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("There is no run in nowhere") == 7
    assert done.stderr.count("unknown key 'data.lr'") == 2


def test_a_wrong_path_or_column_needs_no_library_that_trains(converted: Path, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("english,german\na dog,ein Hund\n")
    (tmp_path / "rows.json").write_text('[{"english": "a dog", "german": "ein Hund"}]')
    (tmp_path / "lines.txt").write_text("a dog\n")
    config = "data: {src: en, tgt: de}\ntraining: {max_steps: 1}\n"
    (tmp_path / "run.yaml").write_text(config)
    paths = ["nowhere", "table.csv", "rows.json", "lines.txt"]
    lines = [
        *(f"init --src en --tgt de --data {path}" for path in paths),
        *(f"{name} -c run.yaml --set data.path={path}" for name in ("train", "check") for path in paths),
        f"init --init-from {converted} --data table.csv",
        "train -c run.yaml --set data.path=builtin:primer --set data.mix=table.csv",
        "score --run nowhere",
        "translate --run nowhere Anna",
    ]
    done = call(lines, [*TRAINING, "numpy", "pandas"], tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("there is no file or folder 'nowhere'") == 3
    assert done.stderr.count("There is no run in nowhere") == 2
    assert done.stderr.count("has no column 'en'") == 8
    assert done.stderr.count("lines.txt has no extension") == 3


def test_translating_needs_no_library_that_trains(converted: Path, tmp_path: Path) -> None:
    (tmp_path / "test.en").write_text("the dog sees a house.\n" * 3)
    run = f"translate --run {converted}"
    sentences = ("Anna", "--beam 3 --n-best 2 Anna", "--file test.en", "--file nowhere")
    lines = [*(f"{run} {options}" for options in sentences), "translate --run nowhere a"]
    done = call(lines, [*TRAINING, "numpy", "pydantic"], tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("der Hund sieht ein Haus.") == 3
    done = call([f"runs {converted}", f"show {converted}", "serve --run nowhere"], TRAINING, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
