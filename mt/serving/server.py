"""The HTTP server: sockets, connection limits, and a shutdown that answers accepted requests."""

import asyncio
import ipaddress
import json
import logging
import resource
import signal
import socket
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from mt.errors import ConfigError

LOG = logging.getLogger(__name__)

_MOST_CONNECTIONS, _OPEN_FILES = 500, 1024
"""The connections, and the open files that this process may have: on macOS, the limit is 256 at first."""
_SECONDS_FOR_A_HEAD = 10.0
"""Time from the start of a connection, or of a further request, to the end of its headers."""
_SECONDS_TO_READ = 30.0
"""Time from when the system stops accepting data of an answer until it has accepted all of it."""
_SECONDS_FOR_LAST_REQUESTS = 0.5
"""Requests on open connections are still answered for this time after a signal to stop."""
_SECONDS_TO_STOP_BEYOND = 5


def bind(host: str, port: int) -> socket.socket:
    """Reserve an address without serving yet; clients that connect already wait to be served.

    Args:
        host: A name or an address.
        port: The port; 0 for a free one.
    """
    made = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        # With SO_REUSEADDR, another process may bind the address too until one of them listens.
        made.listen()
    except (OSError, OverflowError, UnicodeError) as error:
        if made is not None:
            made.close()
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"port {port} of {host} cannot be served: {reason}. Choose another port with --port N (0 for a "
            "free one), or another --host."
        ) from error
    return made


def address_of(bound: socket.socket) -> str:
    """The address of a socket for a browser, such as ``http://127.0.0.1:8000``."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def loopback_names(bound: socket.socket, host: str) -> frozenset[str] | None:
    """The names by which browsers on this machine can reach a loopback socket; None if others can reach it.

    Args:
        bound: The result of `bind`.
        host: The host that it was given.
    """
    address: str = bound.getsockname()[0].partition("%")[0]
    if not ipaddress.ip_address(address).is_loopback:
        return None
    given = (f"[{each}]" if ":" in each else each.lower() for each in (address, host))
    return frozenset(("localhost", "127.0.0.1", "[::1]", *given))


def serve(app: Starlette, bound: socket.socket, *, max_seconds: float) -> None:
    """Serve until SIGTERM or SIGINT arrives, then answer the accepted requests and return.

    Call it in the main thread. A second SIGINT ends it at once; the search in progress ends at its next step,
    or with its batch if CTranslate2 searches.

    Args:
        app: The application.
        bound: The result of `bind`.
        max_seconds: How long a request takes at most.
    """
    server = make_server(app, max_seconds=max_seconds)

    def stop(number: int, frame: FrameType | None) -> None:
        server.should_exit = True

    # uvicorn overrides these handlers with its own, and sends each signal to them again when it has stopped.
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server.run(sockets=[bound])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def make_server(app: Starlette, *, max_seconds: float) -> uvicorn.Server:
    """A server that stops when its ``should_exit`` is set; this process may open as many files as it needs.

    Args:
        app: The application.
        max_seconds: How long a request takes at most.
    """
    _allow_open_files()
    return _Server(
        uvicorn.Config(
            app,
            loop="asyncio",
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=int(max_seconds) + _SECONDS_TO_STOP_BEYOND,
        )
    )


def _allow_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        LOG.info("serving at %s; Ctrl-C stops", ", ".join(map(address_of, sockets or [])))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer accepted requests, and those that arrive in the meantime on open connections."""
        LOG.info("stopping after the accepted requests are answered")
        for server in self.servers:
            server.close()
        # A client that is told to close sends nothing more on its connection, so closing it loses nothing.
        goodbye = [*self.server_state.default_headers, (b"connection", b"close")]
        self.server_state.default_headers = goodbye
        for connection in self.server_state.connections:
            if isinstance(connection, _Protocol) and connection.cycle is not None:
                connection.cycle.default_headers = goodbye
        loop = asyncio.get_running_loop()
        end = loop.time() + _SECONDS_FOR_LAST_REQUESTS
        while self.server_state.connections and loop.time() < end and not self.force_exit:
            await asyncio.sleep(0.01)
        await super().shutdown(sockets)


class _Protocol(H11Protocol):
    """HTTP/1.1 with time limits for clients to send headers and to read; every refusal is JSON."""

    _deadline: asyncio.TimerHandle | None = None
    _reading_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Refuse the connection if there are too many; otherwise wait for its headers."""
        # The transport then reports every answer that waits for the client, even after it was closed.
        transport.set_write_buffer_limits(high=0)
        super().connection_made(transport)
        if len(self.connections) > _MOST_CONNECTIONS:
            self._refuse("503 Service Unavailable", "there are too many connections.", "Retry-After: 1\r\n")
            return
        self._expect_a_head()

    def data_received(self, data: bytes) -> None:
        """Stop the clock while a request is answered, and start it for the next one."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self._deadline is None:
            self._expect_a_head()

    def pause_writing(self) -> None:
        """Start the clock for a client that does not read."""
        super().pause_writing()
        self._reading_deadline = self.loop.call_later(_SECONDS_TO_READ, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop that clock: the answer is on its way."""
        self._stop_waiting_for_reading()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop both clocks."""
        self._stop_waiting()
        self._stop_waiting_for_reading()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._refuse("400 Bad Request", "this is not HTTP/1.1.")

    def _expect_a_head(self) -> None:
        self._deadline = self.loop.call_later(_SECONDS_FOR_A_HEAD, self._close_late)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _stop_waiting_for_reading(self) -> None:
        if self._reading_deadline is not None:
            self._reading_deadline.cancel()
            self._reading_deadline = None

    def _close_late(self) -> None:
        self._refuse("408 Request Timeout", "the headers did not arrive in time.")

    def _refuse(self, status: str, sentence: str, header: str = "") -> None:
        if not self.transport.is_closing():
            body = json.dumps({"error": sentence})
            head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            self.transport.write(f"{head}{header}Connection: close\r\n\r\n{body}".encode())
            self.transport.close()
