"""A Hugging Face Hub on loopback, which the real loading code is pointed at through ``HF_ENDPOINT``."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from mt.data.batches.batch import Batch
from mt.special_tokens import EOS_ID, PAD_ID


@dataclass
class Repository:
    """One corpus of the Hub: for each branch, tag or commit the commit, and for each commit its files."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)
    is_gated: bool = False
    refuses_the_token: bool = False

    def commit_of(self, revision: str) -> str | None:
        commit = self.references.get(revision, revision)
        return commit if commit in self.commits else None


class Hub(ThreadingHTTPServer):
    """Answers the routes that `datasets` uses, and misbehaves on demand.

    Attributes:
        repositories: The corpora by their ids.
        num_busy_answers: So many requests are answered with 503 before the next is served.
        num_cut_bodies: So many downloads of files named ``*.jsonl`` end in the middle.
        is_silent: Requests are accepted, and never answered.
    """

    daemon_threads = True

    def __init__(self, home: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.home = home
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, Repository] = {}
        self.num_busy_answers = 0
        self.num_cut_bodies = 0
        self.is_silent = False
        self.may_end = threading.Event()

    def add(self, hub_id: str, files: Mapping[str, str | bytes], revision: str = "main") -> str:
        """Add a commit that holds ``files``, let ``revision`` point at it, and give its name."""
        contents = {name: text.encode() if isinstance(text, str) else text for name, text in files.items()}
        commit = hashlib.sha1(repr(contents).encode()).hexdigest()
        repository = self.repositories.setdefault(hub_id, Repository())
        repository.commits[commit] = contents
        repository.references[revision] = commit
        return commit

    def load(self, *configs: dict[str, object]) -> list[dict[str, Any]]:
        """Load corpora one after the other in a fresh process: ``HF_ENDPOINT`` is read at import.

        The outcomes hold ``description``, ``train`` and ``test``, or ``error``; and ``seconds`` and ``log``.
        """
        fields = [{"src": "en", "tgt": "de", **config} for config in configs]
        done = self.run("-c", LOAD_CORPORA, json.dumps(fields))
        assert done.returncode == 0, done.stderr
        outcomes: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
        return outcomes

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run Python with these arguments, in a process whose Hub is this one."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        environment |= {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(self.home)}
        environment["HF_UPDATE_DOWNLOAD_COUNTS"] = "0"
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )


LOAD_CORPORA = """
import io, json, logging, sys, time
from mt.config.data import DataConfig
from mt.data.corpus import load_corpus
from mt.errors import MtError
for fields in json.loads(sys.argv[1]):
    log = logging.StreamHandler(io.StringIO())
    logging.getLogger("mt").handlers = [log]
    logging.getLogger("mt").propagate = False
    start = time.monotonic()
    try:
        corpus = load_corpus(DataConfig(**fields))
        report = corpus.report.model_dump(mode="json")
        outcome = {"description": report, "train": corpus.train[:], "test": corpus.test[:]}
    except MtError as error:
        outcome = {"error": str(error)}
    print(json.dumps(outcome | {"seconds": time.monotonic() - start, "log": log.stream.getvalue()}))
"""


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
        if hub.is_silent:
            hub.may_end.wait()
            self.close_connection = True
            return
        if hub.num_busy_answers > 0:
            hub.num_busy_answers -= 1
            self._send(503, b"busy")
            return
        parts = path.strip("/").split("/")
        is_api = parts[0] == "api"
        parts = parts[1:] if is_api else parts
        if not is_api and parts[0] != "datasets":
            parts.insert(0, "models")  # The files of models have no prefix.
        repository = hub.repositories.get("/".join(parts[1:3]))
        if parts[0] not in ("datasets", "models") or repository is None:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            return
        verb, rest = (parts[3], "/".join(parts[4:])) if len(parts) > 3 else ("revision", "main")
        revision, _, file = rest.partition("/")
        commit = repository.commit_of(revision)
        if commit is None:
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif repository.refuses_the_token:
            self._send(401, b"{}", {"X-Error-Message": "Invalid credentials in Authorization header"})
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
            self._send(200, content, headers, may_be_cut=file.endswith(".jsonl"))
            return
        first, last = span.removeprefix("bytes=").split("-")
        begin, end = int(first), min(int(last or len(content)), len(content) - 1)
        headers["Content-Range"] = f"bytes {begin}-{end}/{len(content)}"
        self._send(206, content[begin : end + 1], headers)

    def _send_json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, may_be_cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if may_be_cut and self.server.num_cut_bodies > 0:
            self.server.num_cut_bodies -= 1
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        self.wfile.write(body)


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
    known = set(files) | {"/".join(name.split("/")[:-1]) for name in files if "/" in name}
    return [_entry(files, path) for path in paths if path in known]


@pytest.fixture(scope="session")
def new_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Hub]]:
    """Makes a `Hub` that runs until the tests are over, whose users have an empty cache."""
    running: list[tuple[Hub, threading.Thread]] = []

    def make() -> Hub:
        hub = Hub(tmp_path_factory.mktemp("hf_home"))
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        running.append((hub, thread))
        return hub

    yield make
    for hub, thread in running:
        hub.may_end.set()
        hub.shutdown()
        thread.join()
        hub.server_close()


def raw_ids(batch: Batch) -> tuple[list[list[int]], list[list[int]]]:
    """The raw ids of its sources and targets: the arguments of `collate`."""
    src, tgt = (
        [[token for token in row if token not in (PAD_ID, EOS_ID)] for row in side.tolist()]
        for side in (batch.src_ids, batch.labels)
    )
    return src, tgt
