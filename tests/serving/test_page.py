"""The page as text, and the service in a process of its own."""

import json
import re
import signal
import socket
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from fastapi.testclient import TestClient

from mt.serving.app import Service


def test_the_page_loads_nothing_and_inserts_no_markup() -> None:
    answer = TestClient(Service([]).app()).get("/")
    assert answer.status_code == 200
    links = {link for link in re.findall(r"""(?:https?:|//)[^\s"'<>)]*""", answer.text) if "." in link}
    assert links == {"http://www.w3.org/2000/svg"}  # A name, not an address.
    assert not re.search(r"""\s(?:src|href|style|on\w+)=""", answer.text)
    assert "innerHTML" not in answer.text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_the_next_step_of_a_search(
    number: signal.Signals, start_endless: Callable[..., Any]
) -> None:
    with start_endless("serve", "--port", "0", "--device", "cpu", "--timeout", "600") as process:
        try:
            while "serving at" not in (line := process.stderr.readline()):
                assert line, "it ended"
            port = int(line.split(";")[0].rpartition(":")[2])
            # Not HTTP, a body that never ends, and one that takes minutes.
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"No colon\r\n\r\n")
                assert client.makefile("rb").read().startswith(b"HTTP/1.1 400")
            # A chunk whose size is no number.
            with socket.create_connection(("127.0.0.1", port)) as client:
                chunks = 'Transfer-Encoding: chunked\r\n\r\n5\r\n{"tex\r\nzz\r\n'
                client.sendall(f"POST /translate HTTP/1.1\r\nHost: localhost\r\n{chunks}".encode())
                assert client.recv(1000).startswith(b"HTTP/1.1 400")
            head = "POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            body = json.dumps({"texts": ["milk " * 200] * 8})
            with ExitStack() as stack:
                for sent in ("{", body):
                    client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                    client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{sent}".encode())
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
                    assert json.load(answer)["status"] == "ok"
                assert (answer.headers["Cache-Control"], answer.headers["Server"]) == ("no-store", None)
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                while "searching in" not in process.stderr.readline():
                    pass
                process.send_signal(number)
                assert process.wait(60) == 0
        finally:
            process.kill()
