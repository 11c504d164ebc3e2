"""A Hugging Face Hub on loopback, which the real loading code is pointed at through ``HF_ENDPOINT``."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

MAIN_COMMIT = "a" * 40


@dataclass
class Repository:
    """One corpus of the Hub: for each branch, tag or commit the commit, and for each commit its files."""

    commits: dict[str, dict[str, bytes]]
    references: dict[str, str] = field(default_factory=lambda: {"main": MAIN_COMMIT})
    is_gated: bool = False

    def commit_of(self, revision: str) -> str | None:
        commit = self.references.get(revision, revision)
        return commit if commit in self.commits else None


class Hub(ThreadingHTTPServer):
    """Answers the routes that `datasets` uses, and misbehaves on demand."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.num_busy_answers = 0
        self.cut_bodies_of: dict[str, int] = {}
        self.requests: list[str] = []
        self.is_silent = False
        self.may_answer = threading.Event()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, hub_id: str, **files: str) -> None:
        """Add a corpus whose only commit holds these files; ``__`` in a name stands for a dot."""
        self.repositories[hub_id] = Repository(
            {MAIN_COMMIT: {name.replace("__", "."): text.encode() for name, text in files.items()}}
        )


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.server, unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        hub.requests.append(f"{self.command} {path}")
        if hub.is_silent:
            hub.may_answer.wait()
            self.close_connection = True
            return
        if hub.num_busy_answers > 0:
            hub.num_busy_answers -= 1
            self._send(503, b"busy")
            return
        parts = path.strip("/").split("/")
        is_api = parts[0] == "api"
        parts = parts[1:] if is_api else parts
        repository = hub.repositories.get("/".join(parts[1:3]))
        if parts[0] != "datasets" or repository is None:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            return
        verb, rest = (parts[3], "/".join(parts[4:])) if len(parts) > 3 else ("revision", "main")
        revision, file = _split_revision(repository, rest)
        commit = repository.commit_of(revision)
        if commit is None:
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif repository.is_gated and not is_api:
            self._send(403, b"{}", {"X-Error-Code": "GatedRepo"})
        elif verb == "resolve":
            self._send_file(repository, commit, file)
        elif verb == "tree":
            self._send_json(_tree(repository.commits[commit], file, "recursive=" in self.path.lower()))
        elif verb == "paths-info":
            self._send_json(_paths_info(repository.commits[commit], body))
        else:
            siblings = [{"rfilename": name} for name in repository.commits[commit]]
            self._send_json({"id": "/".join(parts[1:3]), "sha": commit, "siblings": siblings})

    def _send_file(self, repository: Repository, commit: str, file: str) -> None:
        content = repository.commits[commit].get(file)
        headers = {"X-Repo-Commit": commit}
        if content is None:
            self._send(404, b"", headers | {"X-Error-Code": "EntryNotFound"})
            return
        headers["ETag"] = f'"{hashlib.sha1(content).hexdigest()}"'
        headers["Accept-Ranges"] = "bytes"
        span = self.headers.get("Range")
        if span is None:
            self._send(200, content, headers, cut_name=file)
            return
        first, last = span.removeprefix("bytes=").split("-")
        begin, end = int(first), min(int(last or len(content)), len(content) - 1)
        headers["Content-Range"] = f"bytes {begin}-{end}/{len(content)}"
        self._send(206, content[begin : end + 1], headers)

    def _send_json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, cut_name: str | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.server.cut_bodies_of.get(cut_name or "", 0) > 0:
            self.server.cut_bodies_of[cut_name or ""] -= 1
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        self.wfile.write(body)


def _split_revision(repository: Repository, rest: str) -> tuple[str, str]:
    """``refs/convert/parquet/a/b`` -> that branch and ``a/b``: a branch may hold slashes too."""
    for name in repository.references:
        if rest == name or rest.startswith(name + "/"):
            return name, rest[len(name) + 1 :]
    revision, _, file = rest.partition("/")
    return revision, file


def _entry(files: dict[str, bytes], name: str) -> dict[str, object]:
    if name in files:
        oid = hashlib.sha1(files[name]).hexdigest()
        return {"type": "file", "path": name, "size": len(files[name]), "oid": oid}
    return {"type": "directory", "path": name, "size": 0, "oid": hashlib.sha1(name.encode()).hexdigest()}


def _tree(files: dict[str, bytes], folder: str, recursive: bool) -> list[dict[str, object]]:
    prefix = folder + "/" if folder else ""
    inside = [name for name in files if name.startswith(prefix)]
    folders = {prefix + name[len(prefix) :].split("/")[0] for name in inside if "/" in name[len(prefix) :]}
    shown = inside if recursive else [name for name in inside if "/" not in name[len(prefix) :]]
    return [_entry(files, name) for name in [*sorted(folders), *sorted(shown)]]


def _paths_info(files: dict[str, bytes], body: bytes) -> list[dict[str, object]]:
    paths = [unquote(pair.split("=")[1]) for pair in body.decode().split("&") if pair.startswith("paths=")]
    if body.startswith(b"{"):
        paths = json.loads(body)["paths"]
    known = {name for name in files} | {"/".join(name.split("/")[:-1]) for name in files if "/" in name}
    return [_entry(files, path) for path in paths if path in known]


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.may_answer.set()
    server.shutdown()
    thread.join()
    server.server_close()


LOAD_CORPORA = """
import json, logging, sys, time, warnings
warnings.simplefilter("error", UserWarning)
from mt.config.data import DataConfig
from mt.data.corpus import load_corpus
from mt.errors import MtError
logging.basicConfig(level=logging.WARNING, format="log: %(message)s")
for fields in json.loads(sys.argv[1]):
    start = time.monotonic()
    try:
        corpus = load_corpus(DataConfig(**fields))
        outcome = {"description": corpus.description, "train": corpus.train[:], "test": corpus.test[:]}
    except MtError as error:
        outcome = {"error": str(error)}
    print(json.dumps(outcome | {"seconds": time.monotonic() - start}), flush=True)
"""

LoadFromHub = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def load_from_hub(tmp_path: Path, hub: Hub) -> LoadFromHub:
    """Load corpora one after the other in a fresh process, for ``HF_ENDPOINT`` is read when the Hub is imported.

    The outcomes are dictionaries: ``description``, ``train`` and ``test``, or ``error``; and ``seconds``. The last
    has the whole of stderr under ``stderr``.
    """

    def load(*configs: dict[str, object], endpoint: str = hub.endpoint) -> list[dict[str, Any]]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        environment |= {
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(tmp_path / "hf_home"),
            "HF_UPDATE_DOWNLOAD_COUNTS": "0",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        fields = [{"src": "en", "tgt": "de", "hub_timeout_seconds": 2.0, **config} for config in configs]
        done = subprocess.run(
            [sys.executable, "-c", LOAD_CORPORA, json.dumps(fields)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        outcomes: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
        outcomes[-1]["stderr"] = done.stderr
        return outcomes

    return load
