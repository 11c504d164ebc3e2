"""`mt serve` as a shell would call it: what it refuses before it serves. What it serves: tests/serving."""

import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from mt.run_directory import RunDirectory


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


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_a_missing_package_is_named_with_its_extra(
    package: str, call: Call, trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("mt.serving", f"{package}."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    refused(call("serve", "--run", trained.path), f"the package {package}", "[serve]")
