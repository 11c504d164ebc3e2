"""The service: its routes, status codes, limits and log, and the server that runs it."""

import asyncio
import hmac
import logging
import os
import signal
import socket
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from jinja2 import Environment, FileSystemLoader
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

import mt
from mt.display import one_line, visible
from mt.errors import ConfigError, DataError, MtError
from mt.inference.segments import split_lines
from mt.serving.api import ErrorResponse, TranslateAnswer, TranslateRequest
from mt.serving.batching import BatchedTranslator
from mt.serving.log import LOG_FIELDS, log_requests
from mt.sides import Sides
from mt.system import RELOAD_SIGNAL

LOG = logging.getLogger(__name__)

_STDERR = 2
_TEMPLATES = Environment(loader=FileSystemLoader(Path(__file__).parents[1]), autoescape=True)
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]


@dataclass(frozen=True)
class Service:
    """Answers requests with the runs that it serves."""

    runs: Sequence[BatchedTranslator]
    max_characters: int = 5_000
    max_seconds: float = 30.0
    """How long a request waits for its translations at most."""
    hosts: Sequence[str] = ("*",)
    token: str | None = None
    """The bearer token that a request to translate needs."""
    logs_texts: bool = False
    origins: Sequence[str] = ()
    """The sites whose pages may use the service."""

    def app(self) -> FastAPI:
        """The ASGI application."""
        app = FastAPI(
            title="mt serve",
            version=mt.__version__,
            docs_url=None,
            redoc_url=None,
            # A redirection would lead from a proxy's HTTPS to HTTP.
            redirect_slashes=False,
            exception_handlers=dict.fromkeys(
                (HTTPException, RequestValidationError, DataError, Exception), handle_error
            ),
        )
        # Without any text of users: translations arrive as JSON and are put in as text nodes, not as markup.
        page = _TEMPLATES.get_template("serving/page.html.j2").render()
        app.get("/", include_in_schema=False)(lambda: HTMLResponse(page))
        app.get("/health")(self.health)
        # What watches a service may ask for the head alone.
        app.head("/health", include_in_schema=False)(self.health)
        app.get("/metrics", include_in_schema=False)(
            lambda: Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
        )
        app.post(
            "/translate",
            dependencies=[Depends(self._check_sender)],
            responses={"4XX": {"model": ErrorResponse}, "5XX": {"model": ErrorResponse}},
            response_model_exclude_unset=True,
            # Room for the longest text if each of its characters is two JSON escapes of six bytes.
            max_body_size=max(1_000_000, 12 * self.max_characters + 1_000),
        )(self.translate)
        # Otherwise a page of another site could point its own host name to this machine and read answers.
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=self.hosts, www_redirect=False)
        if self.origins:
            headers = ["Authorization", "Content-Type"]
            app.add_middleware(CORSMiddleware, allow_origins=self.origins, allow_headers=headers)
        log_requests(app)
        return app

    async def health(self) -> dict[str, object]:
        """Whether the service answers, its runs, and the engine of each and why it was chosen."""
        return {"status": "ok", "version": mt.__version__, "runs": [run.health() for run in self.runs]}

    async def _check_sender(self, credentials: Credentials) -> None:
        given = "" if credentials is None else credentials.credentials
        if self.token is not None and not hmac.compare_digest(given.encode(), self.token.encode()):
            sentence = "this service needs its token: send it as Authorization: Bearer TOKEN."
            raise HTTPException(401, sentence, {"WWW-Authenticate": "Bearer"})

    async def translate(self, body: TranslateRequest, request: Request) -> TranslateAnswer:
        """Translate one or several texts."""
        (run, direction) = self._choose(body)
        texts = self._texts(body)
        body = body.model_copy(update=direction._asdict())
        request.scope[LOG_FIELDS] |= {"run": run.name, "texts": len(texts)}
        tasks = asyncio.create_task(run.translate(texts, body)), asyncio.create_task(_left(request))
        answer, leaving = tasks
        try:
            await asyncio.wait(tasks, timeout=self.max_seconds, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                if leaving.done():
                    raise HTTPException(499, "the client did not wait for the answer.")
                sentence = f"it took longer than {self.max_seconds:,g} seconds: send fewer texts at once."
                raise HTTPException(503, sentence, {"Retry-After": "1"})
            results = answer.result()
        except asyncio.QueueFull as error:
            raise HTTPException(429, "too many texts are waiting.", {"Retry-After": "1"}) from error
        finally:
            for task in tasks:
                task.cancel()
        best = [result.translations[0] for result in results]
        request.scope[LOG_FIELDS] |= {
            "unknown": sum(len(translation.unknown) for translation in best),
            "copied": sum(len(translation.copied) for translation in best),
        }
        if self.logs_texts:
            for result in results:
                LOG.info("  %s -> %s", visible(result.source), visible(result.translations[0].text))
        return TranslateAnswer(run=run.name, src=direction.src, tgt=direction.tgt, results=results)

    def _choose(self, body: TranslateRequest) -> tuple[BatchedTranslator, Sides[str]]:
        """The run, and the first of its directions that matches; all that match have the same target."""
        matching = []
        for run in self.runs:
            for direction in run.translator.directions:
                names = (body.run, run.name), (body.src, direction.src), (body.tgt, direction.tgt)
                if all(requested in (None, name) for requested, name in names):
                    matching.append((run, direction))
        num_runs = len({run.name for run, _ in matching})
        if num_runs == 1 == len({direction.tgt for _, direction in matching}):
            return matching[0]
        problem = "several directions match: choose one by tgt"
        if num_runs != 1:
            problem = "several runs match: choose one" if num_runs else "there is no such run"
        known = ", ".join(f"{run.name} ({run.translator.facts.known})" for run in self.runs)
        raise DataError(f"{problem}. The runs are {known}.")

    def _texts(self, body: TranslateRequest) -> list[str]:
        """The texts with single spaces for white space, and for line breaks to be joined; pages stay."""
        texts = []
        for text in [body.text] if body.text is not None else body.texts or []:
            if len(text) > self.max_characters:
                raise DataError(
                    f"a text has {len(text):,} characters, but may have {self.max_characters:,}: split it."
                )
            if body.format != "text":
                texts.append(text)
                continue
            lines = [text] if body.join_lines else split_lines(text)
            texts.append("\n".join(" ".join(line.split()) for line in lines))
        return texts


async def _left(request: Request) -> None:
    """Return when the client of a request, whose body has been read, has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def handle_error(request: Request, error: Exception) -> JSONResponse:
    """Answer with the reason in a sentence, which is also in the log."""
    status = 422
    headers = None
    match error:
        case HTTPException():
            status = error.status_code
            sentence = error.detail
            headers = error.headers
            if status == 400:  # FastAPI could not read it.
                sentence = (
                    "body: it breaks off, is not JSON in UTF-8, or has too long a number or deep nesting."
                )
            if status == 413:
                sentence = "the body is too large: send fewer texts at once."
        case RequestValidationError():
            problem = error.errors()[0]
            location = ".".join(map(str, problem["loc"]))
            what = problem["msg"].removeprefix("Value error, ")
            if "json" not in request.headers.get("content-type", ""):
                what = "send JSON, with the header Content-Type: application/json"
            elif problem["type"] == "extra_forbidden":
                location = one_line(location, 100)
                what = f"there is no such key. The keys are {', '.join(TranslateRequest.model_fields)}"
            sentence = one_line(f"{location}: {what}.", 250)
        case DataError():
            sentence = str(error)
        case _:
            status = 500
            sentence = "internal error: see the log of the service."
            # Where it happened, but not the message, which may quote a text, unless it is about a run.
            message = visible(str(error)) if isinstance(error, MtError) else type(error).__name__
            LOG.error("internal error, %s:\n%s", message, "".join(traceback.format_tb(error.__traceback__)))
    request.scope[LOG_FIELDS]["reason"] = sentence
    return JSONResponse(ErrorResponse(error=sentence).model_dump(), status, headers)


def listen(host: str, port: int) -> socket.socket:
    """Listen at an address, port 0 being a free one; clients that connect before `serve` wait."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(
            f"port {port} of {host} cannot be served: {str(error.strerror).partition(' (while')[0]}. "
            "Choose another port with --port N (0 for a free one), or another --host."
        ) from error
    # Connections inherit it. Without it, a body would wait 40 ms for the client to acknowledge the headers.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def serve(service: Service, listening: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT arrives; what is not answered a second later is cancelled.

    On SIGHUP, the runs are loaded again, unless a terminal has sent it because it was closed.
    """
    config = uvicorn.Config(
        service.app(),
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        headers=[("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")],
        server_header=False,
        proxy_headers=False,
        limit_concurrency=500,
        timeout_graceful_shutdown=1,
    )
    # When it has stopped, uvicorn sends itself the signal again.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if not os.isatty(_STDERR):
        # In a thread of its own, while requests are answered with what was loaded before.
        reloading = ThreadPoolExecutor(1)
        signal.signal(RELOAD_SIGNAL, lambda *_: [reloading.submit(run.reload) for run in service.runs])
    host, port = listening.getsockname()[:2]
    LOG.info("serving at http://%s:%d; Ctrl-C stops", f"[{host}]" if ":" in host else host, port)
    uvicorn.Server(config).run(sockets=[listening])
