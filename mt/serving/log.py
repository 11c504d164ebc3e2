"""The log of the service and its metrics for Prometheus: a line and a count for each request."""

import json
import logging
import sys
import time
from datetime import datetime
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mt.display import visible

LOG = logging.getLogger(__name__)

LogFormat = Literal["text", "json"]
_QUIET = {"/health", "/metrics"}
"""Paths that are asked for every few seconds, and are not worth a line if all is well."""
NOTED = "mt.noted"
"""The key of an ASGI scope under which a request has what its line tells besides."""


class Metrics:
    """What Prometheus reads at ``/metrics``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "mt_requests", "Requests to translate, by status.", ["status"], registry=self.registry
        )
        self.seconds = Histogram(
            "mt_request_seconds", "Seconds until a request was answered.", registry=self.registry
        )
        self.batch_texts = Histogram(
            "mt_batch_texts",
            "Texts that were translated together.",
            ["run"],
            buckets=(1, 2, 4, 8, 16, 32, 64, 128),
            registry=self.registry,
        )
        self.waiting = Gauge("mt_waiting_texts", "Texts that wait.", ["run"], registry=self.registry)


class RequestLog:
    """Logs and counts the requests of an application."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the application does, and note how."""
        noted: dict[str, object] = {}
        scope[NOTED] = noted
        status = 500
        started = time.perf_counter()

        async def send_noting(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, send_noting)
        finally:
            seconds = time.perf_counter() - started
            path = scope["path"]
            if path == "/translate":
                self._metrics.requests.labels(status).inc()
                self._metrics.seconds.observe(seconds)
            if path not in _QUIET or status >= 400:
                facts = {
                    "client": (scope["client"] or ["unknown"])[0],
                    "method": scope["method"],
                    "path": path,
                    "status": status,
                    "milliseconds": round(1000 * seconds, 1),
                    **noted,
                }
                LOG.info("%s", " ".join(map(str, facts.values())), extra={"facts": facts})


class LogHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes lines with their time to stderr, as text or as JSON objects."""

    def __init__(self, log_format: LogFormat) -> None:
        super().__init__(sys.stderr)
        self._is_json = log_format == "json"

    def format(self, record: logging.LogRecord) -> str:
        """A line, without control characters."""
        at = datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")
        if self._is_json:
            facts = getattr(record, "facts", {"message": record.getMessage()})
            return json.dumps({"time": at, "level": record.levelname.lower(), **facts})
        level = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        return f"{at} {visible(level + record.getMessage())}"
