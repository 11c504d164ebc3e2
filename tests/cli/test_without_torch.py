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

from mt.run_directory import RunDirectory

ROOT = Path(__file__).parents[2]
SOURCE, TARGET = "the dog sees a house.", "der Hund sieht ein Haus."


DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def instruction(name: str) -> str:
    """The arguments of an instruction of the Dockerfile, which has it once."""
    [arguments] = re.findall(rf"^{name} ((?:.*\\\n)*.*)$", DOCKERFILE, re.MULTILINE)
    return str(arguments)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with what the Dockerfile installs."""
    folder = tmp_path_factory.mktemp("environment")
    shutil.copy(ROOT / "constraints.txt", folder)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    environment = os.environ | {"PATH": f"{folder}/venv/bin:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", instruction("RUN")], cwd=folder, env=environment, check=True)
    return folder / "venv" / "bin" / "python"


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
    scored = subprocess.check_output(
        [*mt, "score", "--run", str(run)], env=environment, input=f"{SOURCE}\t{TARGET}\n", text=True
    )
    assert float(scored.split("\t")[0]) > -1
    _, *command = json.loads(instruction("ENTRYPOINT"))
    service = subprocess.Popen(
        [python, *command, "--port", "0"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    assert service.stderr is not None
    try:
        said = next(line for line in service.stderr if "serving at" in line)
        port = re.findall(r"http://[\d.]+:(\d+)", json.loads(said)["message"])[0]
        address = f"http://127.0.0.1:{port}"
        _, option, healthy = json.loads(instruction("HEALTHCHECK").partition(" CMD ")[2])
        subprocess.run([python, option, healthy.replace("8000", port)], check=True)
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


def test_a_command_that_needs_torch_says_so(trained: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('No torch', name='torch')")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    command = [sys.executable, "-m", "mt", "evaluate", "--run", str(trained.path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "this needs torch, which is not installed here" in done.stderr) == (2, True)


@pytest.mark.slow
def test_the_image_is_built_where_docker_is(tmp_path: Path) -> None:
    if (
        not shutil.which("docker")
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        pytest.skip("there is no docker here, or its daemon does not run")
    subprocess.run(["docker", "build", "-t", "mt-serve-test", ROOT], check=True)
    help_text = subprocess.run(
        ["docker", "run", "--rm", "mt-serve-test", "--help"], capture_output=True, check=True
    )
    assert b"--allow-origin" in help_text.stdout
