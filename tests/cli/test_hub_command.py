"""`mt export --to hub` and `--run hub:org/name`, against a Hub on loopback."""

import base64
import hashlib
import importlib.util
import json
import re
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from huggingface_hub import constants

from mt.__main__ import main
from mt.errors import MtError
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory
from tests.fixture_types import Call, Refuse

pytest.importorskip("ctranslate2")
# Of huggingface_hub, by its own HTTP library.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

TOKEN = "hf_0123456789abcdefghijklmnopqrstuvwx"
COMMIT = "c0ffee" * 6 + "1234"
SENTENCES = ["the dog sees a house.", "Anna buys milk.", "my aunt paints a red car today."]
HUB_RUN = ("--run", "hub:org/tiny")
EXPORT = ("--to", "hub", "org/tiny", "--yes")


class Hub(ThreadingHTTPServer):
    """Speaks what `huggingface_hub` asks for, of one repository, and misbehaves on demand.

    Attributes:
        is_private: None if the repository was not made yet.
        status: With which all requests are answered, unless it is 200.
        served: What is sent in place of files.
        bytes_left: After so many bytes of files, connections break.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        self.files: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        self.commits: list[list[dict[str, Any]]] = []
        self.is_private: bool | None = None
        self.status = 200
        self.served: dict[str, bytes] = {}
        self.bytes_left = sys.maxsize


def _is_large(name: str) -> bool:
    return name.endswith((".safetensors", ".bin"))


def _sibling(name: str, content: bytes) -> dict[str, Any]:
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    lfs = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest(), "pointerSize": 130}
    about = {"rfilename": name, "size": len(content), "blobId": blob}
    return about | {"lfs": lfs} if _is_large(name) else about


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        hub, path = self.server, unquote(urlsplit(self.path).path)
        if path.startswith("/blobs/"):
            # Another host, which must not get the token.
            assert "Authorization" not in self.headers
            self._send(hub.blobs[path.removeprefix("/blobs/")], is_file=True)
        elif hub.status != 200 or hub.is_private is None or "org/tiny" not in path:
            self._send({"error": f"no right for {TOKEN}"}, 404 if hub.status == 200 else hub.status)
        elif path.startswith("/api/models/org/tiny"):
            siblings = [_sibling(name, content) for name, content in hub.files.items()]
            self._send({"id": "org/tiny", "sha": COMMIT, "private": hub.is_private, "siblings": siblings})
        else:
            name = path.removeprefix(f"/org/tiny/resolve/{COMMIT}/")
            content = hub.served.get(name, hub.files[name])
            etag = hashlib.sha1(content).hexdigest()
            if _is_large(name):
                hub.blobs[etag] = content
                location = f"http://localhost:{hub.server_port}/blobs/{etag}"
                self._send(b"", 302, {"Location": location, "ETag": f'"{etag}"'})
            else:
                self._send(content, 200, {"ETag": f'"{etag}"'}, is_file=True)

    def do_PUT(self) -> None:
        content = self._body()
        self.server.blobs[hashlib.sha256(content).hexdigest()] = content
        self._send(b"")

    def do_POST(self) -> None:
        hub, path, body = self.server, urlsplit(self.path).path, self._body()
        assert self.headers["Authorization"] == f"Bearer {TOKEN}"
        if hub.status != 200:
            # Some servers repeat what they refuse.
            self._send({"error": f"no right for {TOKEN}"}, hub.status)
        elif path == "/api/repos/create":
            exists = hub.is_private is not None
            hub.is_private = hub.is_private if exists else json.loads(body).get("visibility") == "private"
            self._send({"url": f"{hub.endpoint}/org/tiny"}, 409 if exists else 200)
        elif path == "/api/validate-yaml":
            self._send({"errors": [], "warnings": []})
        elif path.endswith("/preupload/main"):
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = ["lfs" if _is_large(name) else "regular" for name in names]
            pairs = zip(names, modes, strict=True)
            self._send(
                {"files": [{"path": n, "uploadMode": mode, "shouldIgnore": False} for n, mode in pairs]}
            )
        elif path.endswith("/info/lfs/objects/batch"):
            objects = json.loads(body)["objects"]
            for each in objects:
                each["actions"] = {"upload": {"href": f"{hub.endpoint}/upload/{each['oid']}"}}
            self._send({"transfer": "basic", "objects": objects})
        else:
            assert path.endswith("/commit/main")
            hub.commits.append([json.loads(line) for line in body.splitlines()])
            for operation in hub.commits[-1]:
                match operation["key"], operation["value"]:
                    case "file", {"path": name, "content": content}:
                        hub.files[name] = base64.b64decode(content)
                    case "lfsFile", {"path": name, "oid": oid}:
                        hub.files[name] = hub.blobs[oid]
                    case "deletedFile", {"path": name}:
                        del hub.files[name]
            self._send({"commitUrl": f"{hub.endpoint}/org/tiny/commit/{COMMIT}", "commitOid": COMMIT})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        blocks = []
        while length := int(self.rfile.readline(), 16):
            blocks.append(self.rfile.read(length))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(blocks)

    def _send(
        self, answer: object, status: int = 200, headers: dict[str, str] | None = None, is_file: bool = False
    ) -> None:
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if is_file:
            self.close_connection = len(body) > self.server.bytes_left
            body = body[: self.server.bytes_left]
            self.server.bytes_left -= len(body)
        self.wfile.write(body)


@contextmanager
def _running(patch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub without a repository, which `huggingface_hub` takes for the real one."""
    with Hub() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        patch.setenv("HF_ENDPOINT", server.endpoint)
        patch.setenv("HF_TOKEN", TOKEN)
        patch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        yield server
        server.shutdown()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A Hub, and a cache that has nothing of it."""
    monkeypatch.setenv("MT_CACHE", str(tmp_path / "cache"))
    with _running(monkeypatch) as server:
        yield server


@pytest.fixture(scope="module")
def exported(converted: Path, tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Hub:
    """A Hub that has stopped, after a run was exported to it, many of whose files name paths."""
    run = RunDirectory(Path(shutil.copytree(converted, tmp_path_factory.mktemp("secret") / "tiny")))
    config = run.config_file.read_text().replace("  run: null", f"  run: {tiny_corpus}/base")
    run.config_file.write_text(config)
    with run.sessions_file.open("a") as file:
        for event in ({"event": "start"}, {"event": "end", "reason": f"Failed: {tiny_corpus}/full"}):
            file.write(json.dumps({"time": "2026-01-01T00:00:00+00:00", **event}) + "\n")
    with pytest.MonkeyPatch.context() as patch, _running(patch) as server:
        for words, last in (
            ("evaluate --data", tiny_corpus),
            ("export --private --license mit --yes --to hub", "org/tiny"),
        ):
            patch.setattr(sys, "argv", ["mt", *words.split(), str(last), "--run", str(run.path)])
            with suppress(SystemExit):
                main()
    return server


@pytest.fixture
def published(hub: Hub, exported: Hub) -> Hub:
    """The Hub with that run."""
    hub.files, hub.is_private = dict(exported.files), False
    return hub


def _cached() -> list[str]:
    """The files of runs from the Hub, and what is left of them."""
    return sorted(
        str(path.relative_to("cache/hub")) for path in Path("cache/hub").rglob("*") if path.is_file()
    )


def test_what_is_exported_translates_the_same_elsewhere_and_offline(
    published: Hub, converted: Path, succeed: Call, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = succeed("translate", "--run", converted, *SENTENCES).out
    assert succeed("translate", *HUB_RUN, *SENTENCES).out == expected
    published.status = 500
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert succeed("translate", *HUB_RUN, *SENTENCES).out == expected
    assert Translator.from_run("hub:org/tiny").translate(SENTENCES) == expected.splitlines()
    assert "best latest" in succeed("show", "hub:org/tiny").out
    Path("pairs.jsonl").write_text('{"en": "Anna buys milk.", "de": "Anna kauft Milch."}\n')
    assert succeed("evaluate", *HUB_RUN, "--data", "pairs.jsonl").out.startswith("BLEU")
    both = succeed("compare", converted, "hub:org/tiny", "--data", "pairs.jsonl").out
    assert "not significant by BLEU" in both
    assert "did not answer" in refuse("translate", "--run", "hub:org/tiny#v1", "a")


def test_one_private_commit_without_text_and_paths(exported: Hub, converted: Path, tiny_corpus: Path) -> None:
    files, step = exported.files, "checkpoints/step_0000100"
    assert (exported.is_private, len(exported.commits)) == (True, 1)
    assert {name for name in files if not name.startswith("engine/")} == {
        "README.md", "config.yaml", "corpus.json", "src_tokenizer.json", "tgt_tokenizer.json",
        "checkpoints/best", "checkpoints/latest", f"{step}/checkpoint.json", f"{step}/model.safetensors",
    }  # fmt: skip
    sentences = [line for file in tiny_corpus.glob("*.en") for line in file.read_bytes().splitlines()]
    for name, content in files.items():
        for secret in (str(tiny_corpus.parent), TOKEN):
            assert secret.encode() not in content, name
        assert not [sentence for sentence in sentences if sentence in content], name
    assert yaml.safe_load(files["config.yaml"])["data"]["path"] == tiny_corpus.name
    fingerprint = json.loads((converted / "corpus.json").read_text())["splits"]["train"]["fingerprint"]
    _, front, card = files["README.md"].decode().split("---\n", 2)
    assert fingerprint in card
    assert fingerprint in files["corpus.json"].decode()
    about = yaml.safe_load(front)
    assert (about["language"], about["license"]) == (["en", "de"], "mit")
    assert about["model-index"][0]["results"][0]["metrics"][0]["type"] == "bleu"


def test_without_torch_the_engine_is_enough(
    published: Hub, succeed: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))
    done = succeed("translate", *HUB_RUN, "--engine", "ctranslate2", *SENTENCES)
    assert done.out.startswith("der Hund sieht ein Haus.\n")
    assert not [name for name in _cached() if name.endswith(".safetensors")]


@pytest.mark.usefixtures("published")
def test_training_begins_from_it(tiny_corpus: Path, succeed: Call) -> None:
    succeed("init", "--init-from", "hub:org/tiny", "--data", tiny_corpus, "--src", "en", "-o", "a.yaml")
    assert yaml.safe_load(Path("a.yaml").read_text())["init_from"]["run"] == "hub:org/tiny"
    err = succeed("train", "--config", "a.yaml", "--run", "new", "--set", "training.max_steps=1").err
    assert "hub/weights/org/main/tiny/checkpoints/step_0000100: " in err


def test_only_files_of_runs_are_downloaded(published: Hub, succeed: Call) -> None:
    for name in ("model.pkl", "checkpoints/step_0000100/state.pt", "checkpoints/model.safetensors"):
        published.files[name] = b"(cos\nsystem\n."
    succeed("show", "hub:org/tiny")
    expected = r"(config|corpus|..._tokenizer)\.json|config\.yaml|checkpoints/(best|latest|step\S+)"
    names = [name.removeprefix("weights/org/main/tiny/") for name in _cached()]
    assert len([name for name in names if re.fullmatch(expected, name)]) == len(names) == 8


def _replace(hub: Hub, *names: str) -> None:
    hub.files = dict.fromkeys(names, b"x")


def _spoil(contents: dict[str, bytes], hub: Hub, end: str) -> None:
    [name] = [name for name in hub.files if name.endswith(end)]
    contents[name] = hub.files[name][:-1] + b"\0"


REFUSED: dict[str, Callable[[Hub], None]] = {
    "config.yaml is not what the Hub lists": lambda hub: _spoil(hub.served, hub, "config.yaml"),
    "was changed after it was exported": lambda hub: _spoil(hub.files, hub, "model.safetensors"),
    "outside itself, 'a/../../b'": lambda hub: _replace(hub, "config.yaml", "a/../../b"),
    "outside itself, '/b'": lambda hub: _replace(hub, "config.yaml", "/b"),
    "but config.json, pytorch_model.bin": lambda hub: _replace(hub, "config.json", "pytorch_model.bin"),
    "try mt import org/tiny --run": lambda hub: _replace(hub, "config.json", "source.spm"),
    "no weights that mt can read": lambda hub: _replace(hub, "config.yaml", "model.pkl"),
    "no such repository or revision": lambda hub: setattr(hub, "is_private", None),
    "does not accept the token": lambda hub: setattr(hub, "status", 401),
    "gives no right to do that": lambda hub: setattr(hub, "status", 403),
    "answers with status 500": lambda hub: setattr(hub, "status", 500),
} | {f"not to the end{tenth}": lambda hub, tenth=tenth: _cut(hub, tenth) for tenth in range(10)}


def _cut(hub: Hub, tenth: int) -> None:
    names = [name for name in hub.files if not name.startswith(("engine", "README"))]
    hub.bytes_left = sum(len(hub.files[name]) for name in names) * tenth // 10


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_no_sound_run_leaves_nothing_behind(
    reason: str, published: Hub, exported: Hub, refuse: Refuse, succeed: Call
) -> None:
    REFUSED[reason](published)
    sentence = refuse("show", "hub:org/tiny")
    assert reason.rstrip("0123456789") in sentence
    assert TOKEN not in sentence
    assert _cached() == []
    published.files, published.served, published.status = dict(exported.files), {}, 200
    published.is_private, published.bytes_left = False, sys.maxsize
    succeed("show", "hub:org/tiny")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["org/tiny"], "add --yes"),
        (["org/tiny", "--yes", "--precision", "int8"], "--to hub and --precision are mutually exclusive"),
        (["tiny", "--yes"], "write org/name"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    options: list[str], reason: str, hub: Hub, converted: Path, refuse: Refuse
) -> None:
    assert reason in refuse("export", "--run", converted, "--to", "hub", *options)
    assert hub.is_private is None


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_without_rights_is_not_shown(
    status: int, hub: Hub, converted: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.status = status
    code, _, err = call("export", "--run", converted, *EXPORT)
    assert code == 2
    assert err.splitlines()[-1].startswith("mt: nothing was published as hub:org/tiny: the ")
    monkeypatch.setenv("MT_DEBUG", "1")
    with pytest.raises(MtError) as raised:
        call("export", "--run", converted, *EXPORT)
    assert TOKEN not in err + "".join(traceback.format_exception(raised.value))
    assert (hub.files, hub.commits) == ({}, [])


def test_a_second_export_replaces_the_first(published: Hub, converted: Path, call: Call) -> None:
    published.files |= {"checkpoints/step_0000007/model.safetensors": b"old", "notes.txt": b"mine"}
    before = dict(published.files)
    assert "exists and is public" in call("export", "--run", converted, "--private", *EXPORT).err
    assert published.files == before
    assert call("export", "--run", converted, *EXPORT).code == 0
    assert "checkpoints/step_0000007/model.safetensors" not in published.files
    assert published.files["notes.txt"] == b"mine"
