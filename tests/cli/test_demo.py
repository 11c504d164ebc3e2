"""The demonstration model, with which the wheel translates where there is no run yet."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from mt.cli import options
from mt.serving import app as service
from tests.fixture_types import Call, Refuse

ROOT = Path(__file__).parents[2]
DEMO = options.DEMO
SENTENCE, TRANSLATION = "the dog sees a house.", "der Hund sieht ein Haus.\n"


@pytest.fixture
def demo(converted: Path) -> None:
    """A model in the place of the demonstration model, which is a folder in ``tmp_path`` in these tests."""
    pytest.importorskip("ctranslate2")
    (exported,) = converted.glob("engine/*/float32")
    options.DEMO.symlink_to(exported)


@pytest.mark.usefixtures("demo")
def test_without_a_run_it_translates_and_says_so(
    call: Call, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Also where there is a GPU, for which libraries may be missing.
    monkeypatch.setattr("ctranslate2.get_cuda_device_count", lambda: 1)
    Path("runs/begun").mkdir(parents=True)
    Path("runs/begun/config.yaml").touch()
    said = (
        "no trained run in runs/: translating with the demonstration model, English to German, which "
        "knows the sentences of builtin:primer\n"
    )
    assert call("translate", SENTENCE) == (0, TRANSLATION, said)
    # A run that is named must be there, and what needs a run still does.
    assert "There is no run in runs/none" in refuse("translate", "--run", "runs/none", SENTENCE)
    assert "No run in runs has a checkpoint yet" in refuse("evaluate")


@pytest.mark.usefixtures("demo", "trained")
def test_with_a_run_the_run_translates(call: Call) -> None:
    assert call("translate", SENTENCE) == (0, TRANSLATION, "run: runs/tiny\n")


def test_it_is_served(call: Call, refuse: Refuse, demo: None, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = []

    def serve(served: service.Service, listening: object) -> None:
        client = TestClient(served.app(), base_url="http://127.0.0.1")
        answers.append(client.post("/translate", json={"text": SENTENCE}).json())

    monkeypatch.setattr(service, "serve", serve)
    assert call("serve", "--demo", "--port", "0").code == 0
    assert answers[0]["run"] == "demo"
    assert answers[0]["results"][0]["translations"][0]["text"] == TRANSLATION.strip()
    assert "--demo and --run are mutually exclusive" in refuse("serve", "--demo", "--run", "runs/tiny")


def test_a_clone_has_none_and_serves_none(refuse: Refuse) -> None:
    assert "No run in runs has a checkpoint yet" in refuse("translate", SENTENCE)
    assert "scripts/demo makes one" in refuse("serve", "--demo")


def test_the_wheel_takes_it_although_git_ignores_it() -> None:
    folder = DEMO.relative_to(ROOT).as_posix()
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert wheel["targets"]["wheel"]["artifacts"] == [f"/{folder}/"]
    assert f"{folder}/" in (ROOT / ".gitignore").read_text(encoding="utf-8").split()
