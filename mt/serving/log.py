"""The log of the service and its metrics for Prometheus: a line and a count for each request."""

import json
import logging
import sys
import time
from datetime import datetime
from typing import Literal

from fastapi import FastAPI, Request, Response
from prometheus_client import Counter, Gauge, Histogram
from starlette.middleware.base import RequestResponseEndpoint

from mt.display import visible

LOG = logging.getLogger(__name__)

LogFormat = Literal["text", "json"]
_QUIET = {"/health", "/metrics"}
"""Paths that are asked for every few seconds, and are not worth a line if all is well."""
LOG_FIELDS = "mt.log_fields"
"""The key of an ASGI scope under which a request has what its line tells besides."""

# What Prometheus reads at ``/metrics``.
_REQUESTS = Counter("mt_requests", "Requests to translate, by status.", ["status"])
_SECONDS = Histogram("mt_request_seconds", "Seconds until a request was answered.")
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
BATCH_TEXTS = Histogram("mt_batch_texts", "Texts that were translated together.", ["run"], buckets=_SIZES)
WAITING_TEXTS = Gauge("mt_waiting_texts", "Texts that wait.", ["run"])


def log_requests(app: FastAPI) -> None:
    """Log and count the requests of an application."""

    @app.middleware("http")
    async def log(request: Request, answer: RequestResponseEndpoint) -> Response:
        fields = request.scope[LOG_FIELDS] = dict[str, object]()
        status = 500
        started = time.perf_counter()
        try:
            response = await answer(request)
            status = response.status_code
            return response
        finally:
            seconds = time.perf_counter() - started
            path = request.scope["path"]
            if path == "/translate":
                _REQUESTS.labels(status).inc()
                _SECONDS.observe(seconds)
            if path not in _QUIET or status >= 400:
                facts = {
                    "client": (request.scope["client"] or ["unknown"])[0],
                    "method": request.method,
                    "path": path,
                    "status": status,
                    "milliseconds": round(1000 * seconds, 1),
                    **fields,
                }
                line = " ".join(map(str, facts.values()))
                LOG.info("%s", line, extra={"facts": facts})


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
