"""`mt serve` as a shell would call it: what it refuses before it serves. What it serves: tests/serving."""

import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from mt.run_directory import RunDirectory
from mt.serving import server
from mt.serving.batching import BatchedTranslator


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Call = Callable[..., Ended]


def refused(ended: Ended, *parts: str) -> None:
    assert ended.code == 2
    *_, last = ended.err.splitlines()
    assert last.startswith("mt: ")
    for part in parts:
        assert part in last


@pytest.fixture(autouse=True)
def _no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not refused ends at once; a service would wait for requests until a signal."""
    monkeypatch.setattr(server, "serve", lambda *arguments, **options: None)


def test_an_address_that_is_taken_is_named_with_a_way_out(call: Call, trained: RunDirectory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused(call("serve", "--run", trained.path, "--port", str(port)), f"port {port}", "--port N")


def test_two_runs_of_one_name_are_refused(call: Call, trained: RunDirectory) -> None:
    other = shutil.copytree(trained.path, Path("other") / trained.path.name)
    refused(call("serve", "--run", trained.path, "--run", other), f"two runs are called {trained.path.name}")


@pytest.mark.parametrize("content", ["", "\n", "two words", "dönergeheim"])
def test_a_token_that_no_header_can_hold_is_refused(content: str, call: Call, trained: RunDirectory) -> None:
    Path("token").write_text(content, encoding="utf-8")
    refused(call("serve", "--run", trained.path, "--token-file", "token"), "token file token", "ASCII")
    refused(call("serve", "--run", trained.path, "--token-file", "none"), "none cannot be read")


def test_a_missing_run_and_a_missing_layer_are_refused(call: Call, trained: RunDirectory) -> None:
    refused(call("serve", "--run", "nowhere", "--port", "0"), "nowhere")
    refused(call("serve", "--run", trained.path, "--port", "0", "--layer", "9"), "no decoder layer 9")


@pytest.mark.parametrize("seconds", ["86401", f"1{'0' * 400}"])
def test_a_limit_of_more_than_a_day_is_refused(seconds: str, call: Call, trained: RunDirectory) -> None:
    ended = call("serve", "--run", trained.path, "--port", "0", "--timeout", seconds)
    assert (ended.code, "--timeout" in ended.err, "86400" in ended.err) == (2, True, True)


def test_a_layer_to_align_by_needs_float32(
    call: Call, trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Which is what it is served in then, although the device is faster in bf16.
    monkeypatch.setattr("mt.device.multiplies_bf16_fast", lambda device: True)
    command = ("serve", "--run", trained.path, "--port", "0", "--layer", "1")
    assert call(*command).code == 0
    refused(call(*command, "--precision", "int8"), "--layer", "float32")


Ask = Callable[[TestClient], object]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Callable[[Ask], None]:
    """Lets ``ask`` use what is served, in this process, instead of serving until a signal."""

    def use(ask: Ask) -> None:
        def serve(app: Starlette, bound: socket.socket, *, max_seconds: float) -> None:
            ask(TestClient(app, base_url="http://127.0.0.1"))

        monkeypatch.setattr(server, "serve", serve)

    return use


def test_a_run_named_by_dots_is_served_by_the_name_of_its_folder(
    call: Call, trained: RunDirectory, served: Callable[[Ask], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    def ask(client: TestClient) -> None:
        [run] = client.get("/health").json()["runs"]
        names.extend((run["run"], run["checkpoint"]))

    served(ask)
    monkeypatch.chdir(trained.checkpoints_dir)
    ended = call("serve", "--run", "..", "--port", "0", "--device", "cpu")
    best = (trained.checkpoints_dir / "best").read_text().strip()
    assert (ended.code, names) == (0, [trained.path.name, best])


def test_an_exported_folder_is_served_as_the_run_beside_it(
    call: Call, trained: RunDirectory, served: Callable[[Ask], None]
) -> None:
    pytest.importorskip("ctranslate2")
    assert call("export", "--run", trained.path, "--to", "ctranslate2", "exported").code == 0
    said: dict[str, Any] = {}

    def ask(client: TestClient) -> None:
        asked = {"texts": ["Anna buys milk.", "the dog sees two red apples!"], "beam": 4, "n_best": 2}
        for name in ("tiny", "exported"):
            said[name] = client.post("/translate", json={**asked, "run": name}).json()["results"]
        said["runs"] = client.get("/health").json()["runs"]
        aligned = {"text": "Anna buys milk.", "run": "exported", "alignment": True}
        said["aligned"] = client.post("/translate", json=aligned).json()["results"][0]["translations"][0]

    served(ask)
    ended = call("serve", "--run", trained.path, "--run", "exported", "--port", "0", "--device", "cpu")
    assert ended.code == 0, ended.err
    assert [[each["text"] for each in result["translations"]] for result in said["exported"]] == [
        [each["text"] for each in result["translations"]] for result in said["tiny"]
    ]
    facts = ("run", "src", "tgt", "engine", "alignment")
    assert [[run[name] for name in facts] for run in said["runs"]] == [
        ["tiny", "en", "de", "torch", True], ["exported", "en", "de", "ctranslate2", True],
    ]  # fmt: skip
    assert said["aligned"]["text"] == "Anna kauft Milch."
    assert [target for _, target in said["aligned"]["alignment"]] == [0, 1, 2]
    for option in (("--checkpoint", "latest"), ("--layer", "1")):
        refused(call("serve", "--run", "exported", "--port", "0", *option), f"{option[0]} is for runs")


def test_on_loopback_other_names_need_the_token(
    call: Call, trained: RunDirectory, served: Callable[[Ask], None]
) -> None:
    Path("token").write_text("s3cret")
    statuses: list[int] = []

    def ask(client: TestClient) -> None:
        for host in ("localhost:8000", "evil.example"):
            statuses.append(client.get("/health", headers={"Host": host}).status_code)

    served(ask)
    assert call("serve", "--run", trained.path, "--port", "0").code == 0
    assert statuses == [200, 421]
    assert call("serve", "--run", trained.path, "--port", "0", "--token-file", "token").code == 0
    assert statuses == [200, 421, 200, 200]


def test_where_other_machines_reach_it_any_name_does(
    call: Call, trained: RunDirectory, served: Callable[[Ask], None]
) -> None:
    statuses: list[int] = []
    served(lambda client: statuses.append(client.get("/health", headers={"Host": "nas.local"}).status_code))
    ended = call("serve", "--run", trained.path, "--port", "0", "--host", "0.0.0.0")
    assert (ended.code, statuses) == (0, [200])
    assert "--token-file" in ended.err


def test_with_a_token_only_clients_that_send_it_get_translations(
    call: Call, trained: RunDirectory, served: Callable[[Ask], None]
) -> None:
    # With a line end, as `openssl rand -hex 32` writes it.
    Path("token").write_text("s3cret\n")
    statuses: list[int] = []

    def ask(client: TestClient) -> None:
        for authorization in ("", "Bearer wrong", "Bearer s3cret"):
            headers = {"Authorization": authorization}
            statuses.append(client.post("/translate", json={"text": "milk"}, headers=headers).status_code)

    served(ask)
    ended = call("serve", "--run", trained.path, "--port", "0", "--token-file", "token")
    assert (ended.code, statuses) == (0, [401, 401, 200])


def test_the_limits_and_the_log_are_those_that_the_command_was_given(
    call: Call, trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "the dog sees milk."
    found: list[tuple[float, list[int]]] = []

    def serve(app: Starlette, bound: socket.socket, *, max_seconds: float) -> None:
        client = TestClient(app, base_url="http://127.0.0.1")
        bodies: list[dict[str, object]] = [{"text": text}, {"text": f"{text}!"}, {"texts": [text, text]}]
        statuses = [client.post("/translate", json=body).status_code for body in bodies]
        found.append((max_seconds, statuses))

    monkeypatch.setattr(server, "serve", serve)
    # As if three texts were waiting: there is room for one more, but not for two.
    monkeypatch.setattr(BatchedTranslator, "_num_waiting", lambda self: 3)
    options = ("--max-text", str(len(text)), "--max-queue", "4", "--timeout", "7")
    for more in ((), ("--log-texts",)):
        ended = call("serve", "--run", trained.path, "--port", "0", "--layer", "1", *options, *more)
        assert ended.code == 0, ended.err
        # Texts may be private.
        assert (f"{text} -> " in ended.err) == bool(more)
    assert found == [(7, [200, 422, 429])] * 2


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_a_missing_package_is_named_with_its_extra(
    package: str, call: Call, trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("mt.serving", f"{package}."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    refused(call("serve", "--run", trained.path), f"the package {package}", "[serve]")
