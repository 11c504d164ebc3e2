"""Translating and serving need one section of constraints.txt, without torch."""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE, TARGET = "the dog sees a house.", "der Hund sieht ein Haus."


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with exactly that section."""
    folder = tmp_path_factory.mktemp("environment")
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    section = re.search(r"^# \[translate\]\n(.*?)(?=^# \[|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    (folder / "translate.txt").write_text(section[1], encoding="utf-8")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "-qq"]
    install = ["install", "--no-compile", "--no-deps", "--require-hashes", "-r", f"{folder}/translate.txt"]
    subprocess.run([*pip, *install], check=True)
    return python


@pytest.mark.slow
def test_a_copied_run_is_translated_with_and_served_without_torch(
    python: Path, converted: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(converted, tmp_path / "runs" / "copied")
    environment = {key: value for key, value in os.environ.items() if key != "MT_ENGINE"}
    environment["PYTHONPATH"] = str(ROOT)
    mt = [str(python), "-W", "error", "-m", "mt"]
    assert subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 1
    (tmp_path / "test.en").write_text(f"{SOURCE}\n" * 50, encoding="utf-8")
    for command in (["--beam", "4", SOURCE], ["--file", "test.en"]):
        done = subprocess.run(
            [*mt, "translate", "--run", str(run), *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert {*done.stdout.splitlines()} == {TARGET}
    service = subprocess.Popen(
        [*mt, "serve", "--port", "0"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    assert service.stderr is not None
    try:
        said = next(line for line in service.stderr if "serving at" in line)
        address = re.findall(r"http://[\d.:]+", said)[0]
        request = urllib.request.Request(
            f"{address}/translate",
            json.dumps({"text": SOURCE, "alignment": True}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as response:
            [result] = json.load(response)["results"]
        assert result["translations"][0]["text"] == TARGET
        assert [1, 1] in result["translations"][0]["alignment"]
    finally:
        service.terminate()
        service.communicate()
    # Whatever needs torch says so.
    shutil.rmtree(Path(run) / "engine")
    command = [*mt, "translate", "--run", str(run), SOURCE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "where torch is installed" in done.stderr
