"""`mt serve` as a shell would call it: what it refuses, and what it serves. How it serves: tests/serving."""

import json
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from mt.run_directory import RunDirectory
from mt.serving import app as service
from tests.fixture_types import Call, Ended

Ask = Callable[[TestClient], object]


def refused(ended: Ended, *parts: str) -> None:
    assert ended.code == 2
    *_, last = ended.err.splitlines()
    assert last.startswith("mt: ")
    for part in parts:
        assert part in last


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> Callable[[Ask], None]:
    """Lets ``ask`` use what is served, in this process, instead of serving until a signal."""

    def use(ask: Ask) -> None:
        def serve(served: service.Service, listening: socket.socket) -> None:
            ask(TestClient(served.app(), base_url="http://127.0.0.1"))

        monkeypatch.setattr(service, "serve", serve)

    use(lambda client: None)
    return use


def test_what_cannot_be_served_is_refused(call: Call, trained: RunDirectory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused(call("serve", "--run", trained.path, "--port", port), f"port {port}", "--port N")
    refused(call("serve", "--run", trained.path, "--host", "no.such.host.invalid"), "no.such.host.invalid")
    other_run = shutil.copytree(trained.path, Path("other") / trained.path.name)
    refused(call("serve", "--run", trained.path, "--run", other_run), trained.path.name, "Rename")
    refused(call("serve", "--run", "nowhere", "--port", "0"), "nowhere")


@pytest.mark.parametrize("content", ["", "\n", "two words", "dönergeheim"])
def test_a_token_that_no_header_can_hold_is_refused(content: str, call: Call, trained: RunDirectory) -> None:
    Path("token").write_text(content, encoding="utf-8")
    refused(call("serve", "--run", trained.path, "--token-file", "token"), "token file token", "ASCII")
    refused(call("serve", "--run", trained.path, "--token-file", "none"), "none: No such file")


def test_the_log_and_who_may_use_the_service_are_as_they_are_asked_for(
    succeed: Call, trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    services: list[service.Service] = []
    monkeypatch.setattr(service, "serve", lambda served, listening: services.append(served))
    serve = ("serve", "--run", trained.path, "--port", "0", "--verbose")
    assert re.search(r"^\S+ loading .*tiny\n\S+ tiny: engine: torch, ", succeed(*serve).err)
    more = ("--log-format", "json", "--log-texts", "--allow-origin", "https://a.example")
    lines = [json.loads(line) for line in succeed(*serve, *more).err.splitlines()]
    assert (lines[0]["level"], lines[0]["message"]) == ("info", f"loading {trained.path}")
    assert [each.logs_texts for each in services] == [False, True]
    assert [list(each.origins) for each in services] == [[], ["https://a.example"]]


def test_an_exported_folder_is_served_as_the_run_beside_it(
    call: Call, trained: RunDirectory, served: Callable[[Ask], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2")
    exported = trained.path.parent / "exported"
    assert call("export", "--run", trained.path, "--to", "ctranslate2", exported).code == 0
    said: dict[str, Any] = {}

    def ask(client: TestClient) -> None:
        asked = {"texts": ["Anna buys milk.", "the dog sees two red apples!"], "beam": 4, "n_best": 2}
        for name in ("tiny", "exported"):
            said[name] = client.post("/translate", json={**asked, "run": name}).json()["results"]
        said["runs"] = client.get("/health").json()["runs"]
        aligned = {"text": "Anna buys milk.", "run": "exported", "alignment": True}
        said["aligned"] = client.post("/translate", json=aligned).json()["results"][0]["translations"][0]

    served(ask)
    # A run that is named by dots has the name of its folder.
    monkeypatch.chdir(trained.checkpoints_dir)
    options = "--port", "0", "--device", "cpu", "--precision", "float32"
    ended = call("serve", "--run", "..", "--run", exported, *options)
    assert ended.code == 0, ended.err
    assert [[each["text"] for each in result["translations"]] for result in said["exported"]] == [
        [each["text"] for each in result["translations"]] for result in said["tiny"]
    ]
    facts = ("run", "src", "tgt", "engine")
    assert [[run[name] for name in facts] for run in said["runs"]] == [
        ["tiny", "en", "de", "torch"], ["exported", "en", "de", "ctranslate2"],
    ]  # fmt: skip
    assert said["aligned"]["text"] == "Anna kauft Milch."
    assert [target for _, target in said["aligned"]["alignment"]] == [0, 1, 2]
    command = ("serve", "--run", exported, "--port", "0", "--checkpoint", "latest")
    refused(call(*command), "--checkpoint", "which are for runs")


def test_who_may_ask(call: Call, trained: RunDirectory, served: Callable[[Ask], None]) -> None:
    # With a line end, as `openssl rand -hex 32` writes it.
    Path("token").write_text("s3cret\n")
    statuses: list[int] = []

    def ask(client: TestClient) -> None:
        for host in ("localhost:8000", "nas.local"):
            statuses.append(client.get("/health", headers={"Host": host}).status_code)
        for token in ("wrong", "s3cret"):
            headers = {"Authorization": f"Bearer {token}"}
            statuses.append(client.post("/translate", json={"text": "a"}, headers=headers).status_code)

    served(ask)
    command = ("serve", "--run", trained.path, "--port", "0")
    assert call(*command).code == 0
    assert call(*command, "--token-file", "token").code == 0
    ended = call(*command, "--host", "0.0.0.0")
    assert "--token-file" in ended.err
    for mode, is_open in ((0o600, False), (0o640, True), (0o604, True)):
        Path("token").chmod(mode)
        warning = "others can read the token file token: chmod 600 token"
        assert (warning in call(*command, "--token-file", "token").err) is is_open
    assert statuses[:12] == [200, 400, 200, 200, 200, 200, 401, 200, 200, 200, 200, 200]


@pytest.mark.parametrize("package", ["fastapi", "uvicorn"])
def test_a_missing_package_is_named_with_its_extra(
    package: str, call: Call, trained: RunDirectory, remove_package: Callable[..., None]
) -> None:
    remove_package(package, "mt.serving")
    refused(call("serve", "--run", trained.path), f"the package {package}", "[serve]")
