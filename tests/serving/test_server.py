"""The service over real sockets: slow and broken clients, and a stop that loses nothing."""

import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any

import pytest

from mt.errors import ConfigError
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam
from mt.serving import server
from mt.serving.app import Service
from mt.serving.batching import BatchedTranslator, SearchSettings
from mt.serving.request import Limits, ServedRun
from tests.forked import Popen, environment

if TYPE_CHECKING:
    from tests.serving.conftest import Gate

SECONDS = 60
Serving = Callable[..., AbstractContextManager[int]]
HEAD = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"


def ask(port: int, method: str, path: str, body: object = None) -> tuple[int, Any]:
    with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS)) as connection:
        send(connection, method, path, body)
        return answer_of(connection)


def send(connection: HTTPConnection, method: str, path: str, body: object = None) -> None:
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, {"Content-Type": "application/json"})


def answer_of(connection: HTTPConnection) -> tuple[int, Any]:
    response = connection.getresponse()
    content = response.read()
    return response.status, json.loads(content)


def read_to_the_end(client: socket.socket) -> tuple[int, Any]:
    """The status and the JSON of a response after which the server closes the connection."""
    with client.makefile("rb") as stream:
        head, _, body = stream.read().partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def is_served(port: int) -> bool:
    try:
        return ask(port, "GET", "/health")[0] == 200
    except (OSError, HTTPException):  # Closed while the request was being sent.
        return False


def connected(port: int, *parts: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
    for part in parts:
        client.sendall(part)
    return client


def test_a_body_that_never_ends_is_given_up(serving: Serving) -> None:
    with serving(max_seconds=0.2) as port, connected(port, HEAD, b'{"text": ') as slow:
        assert read_to_the_end(slow)[0] == 408


@pytest.mark.parametrize(
    "start", [b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GET / HTTP/1.1\r\nNo colon\r\n\r\n"]
)
def test_what_is_not_http_is_400(start: bytes, serving: Serving) -> None:
    with serving() as port, connected(port, start) as client:
        status, said = read_to_the_end(client)
        assert status == 400
        assert set(said) == {"error"}
        assert ask(port, "GET", "/health")[0] == 200


def test_too_many_connections_are_503_until_some_are_closed(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 3)
    with serving() as port:
        connections = [HTTPConnection("127.0.0.1", port, timeout=SECONDS) for _ in range(3)]
        for each in connections:
            send(each, "GET", "/health")
            assert answer_of(each)[0] == 200
        with connected(port) as one_more:
            assert read_to_the_end(one_more)[0] == 503
        for each in connections:
            each.close()
        # The server sees a moment later that they are closed.
        assert any(is_served(port) for _ in range(1_000))


def test_an_address_is_reserved_before_it_is_served_and_early_clients_wait(
    batched: BatchedTranslator,
) -> None:
    app = Service([ServedRun("tiny", "en", "de", "best", batched)], Limits()).app()
    made = server.make_server(app, max_seconds=SECONDS)
    with server.bind("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1 cannot be served"):
            server.bind("127.0.0.1", port)
        with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS)) as early:
            send(early, "GET", "/health")
            thread = threading.Thread(target=made.run, kwargs={"sockets": [bound]})
            thread.start()
            assert answer_of(early)[0] == 200
        made.should_exit = True
        thread.join(SECONDS)


def test_an_address_that_is_taken_or_not_there_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1 cannot be served"):
            server.bind("127.0.0.1", port)
    with pytest.raises(ConfigError, match=r"no\.such\.host\.invalid"):
        server.bind("no.such.host.invalid", 0)


def test_a_client_that_leaves_takes_its_request_along(
    serving: Serving, gate: "Gate", batched: BatchedTranslator, caplog: pytest.LogCaptureFixture
) -> None:
    first = batched.submit(["one"], SearchSettings())
    assert gate.entered.wait(SECONDS)
    with caplog.at_level(logging.INFO, "mt"), serving() as port:
        with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS)) as client:
            send(client, "POST", "/translate", {"texts": ["two"] * 3})
            wait_until(lambda: batched.num_waiting == 3)
        wait_until(lambda: batched.num_waiting == 0)
        # Another leaves in the middle of its body.
        connected(port, HEAD, b'{"text": ').close()
        wait_until(lambda: caplog.text.count("a client left") == 2)
    gate.opened.set()
    assert first.result(SECONDS)
    assert [list(texts) for texts in gate.searched] == [["one"]]
    assert "internal error" not in caplog.text


def test_what_is_sent_on_an_open_connection_while_it_stops_is_answered_as_the_last(
    batched: BatchedTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SECONDS_FOR_LAST_REQUESTS", SECONDS)
    service = Service([ServedRun("tiny", "en", "de", "best", batched)], Limits())
    made = server.make_server(service.app(), max_seconds=SECONDS)
    with server.bind("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        thread = threading.Thread(target=made.run, kwargs={"sockets": [bound]})
        thread.start()
        with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS)) as client:
            send(client, "GET", "/health")
            assert answer_of(client)[0] == 200
            made.should_exit = True
            wait_until(lambda: is_refused(port))
            send(client, "POST", "/translate", {"text": "milk"})
            response = client.getresponse()
            assert (response.status, response.getheader("Connection")) == (200, "close")
            assert json.loads(response.read())["results"]
        # Nobody is connected any more, so that it waits no longer.
        thread.join(SECONDS / 2)
        assert not thread.is_alive()


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return True
    return False


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def wait_for(said: str, process: Popen) -> str:
    """The line of stderr that has ``said``."""
    while said not in (line := str(process.stderr.readline())):
        assert line, "it ended"
    return line


def port_in(line: str) -> int:
    return int(line.split(";")[0].rpartition(":")[2])


def test_a_second_ctrl_c_ends_a_search_at_its_next_step(start_endless: Callable[..., Any]) -> None:
    with start_endless("serve", "--port", "0", "--device", "cpu", "--timeout", "600") as process:
        try:
            port = port_in(wait_for("serving at", process))
            with closing(HTTPConnection("127.0.0.1", port, timeout=600)) as client:
                # Two batches, each of which takes minutes.
                send(client, "POST", "/translate", {"texts": ["milk " * 200] * 8})
                wait_for("searching in at-once_1", process)
                process.send_signal(signal.SIGINT)
                wait_for("stopping", process)
                process.send_signal(signal.SIGINT)
                assert process.wait(SECONDS) == 0
        finally:
            process.kill()


def test_sigterm_under_load_loses_no_accepted_request(trained: RunDirectory, sources: list[str]) -> None:
    command = [
        *(sys.executable, "-m", "mt", "serve", "--run", str(trained.path), "--port", "0", "--device", "cpu"),
        *("--max-queue", "2000", "--timeout", "600"),
    ]
    with Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        port = port_in(wait_for("serving at", process))
        texts = sources[:100]
        clients = [HTTPConnection("127.0.0.1", port, timeout=600) for _ in range(6)]
        for client in clients:
            send(client, "POST", "/translate", {"texts": texts, "beam": 20})
        # These connections come after those, and are answered after those were accepted.
        for _ in range(3):
            status, health = ask(port, "GET", "/health")
            assert status == 200
        assert health["runs"][0]["waiting"] > 0, "nothing is left to lose"
        process.send_signal(signal.SIGTERM)
        answers = [answer_of(client) for client in clients]
        for client in clients:
            client.close()
        assert process.wait(SECONDS) == 0
    assert [status for status, _ in answers] == [200] * len(clients)
    expected = ModelTranslator.from_run(trained, device="cpu").translate(texts, strategy=Beam(20))
    for _, answer in answers:
        assert [each["translations"][0]["text"] for each in answer["results"]] == expected
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
