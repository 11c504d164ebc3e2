"""The service as an ASGI application: routes, status codes and logging."""

import asyncio
import hmac
import logging
import re
import time
import traceback
from collections.abc import Collection, Sequence

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

import mt
from mt.display import counted, visible
from mt.errors import DataError, MtError
from mt.serving.batching import Answer, QueueFullError, StoppingError
from mt.serving.openapi import description
from mt.serving.page import CONTENT_SECURITY_POLICY, PAGE
from mt.serving.request import Limits, ServedRun, TranslateRequest, read_request

LOG = logging.getLogger(__name__)

# For responses to browsers: no content sniffing, caching, framing or referrers.
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_SECONDS_UNTIL_RETRY = 1
_INTERNAL = "internal error: see the log of the service."


class Service:
    """Answers requests with the runs that it serves."""

    def __init__(
        self,
        runs: Sequence[ServedRun],
        limits: Limits,
        *,
        hosts: Collection[str] | None = None,
        token: str | None = None,
        logs_texts: bool = False,
    ) -> None:
        """Create a service.

        Args:
            runs: The runs, each with a unique name.
            limits: The limits of a request.
            hosts: The host names that it answers to, in lower case and without a port; None for any.
            token: The bearer token that a request to translate needs; None for no such check.
            logs_texts: Whether texts and translations appear in the log.
        """
        self._runs = runs
        self._limits = limits
        self._hosts = hosts
        self._token = token
        self._logs_texts = logs_texts

    def app(self) -> Starlette:
        """The ASGI application."""
        app = Starlette(
            routes=[
                Route("/", self._page, methods=["GET"]),
                Route("/health", self._health, methods=["GET"]),
                Route("/openapi.json", self._openapi, methods=["GET"]),
                Route("/translate", self._translate, methods=["POST"]),
            ],
            middleware=[] if self._hosts is None else [Middleware(_OnlyTheseHosts, hosts=self._hosts)],
            exception_handlers={
                HTTPException: _refused,
                MtError: _unprocessable,
                ClientDisconnect: _left,
                Exception: _broken,
            },
        )
        # An address with a slash too many is unknown. A redirection would lead from a proxy's HTTPS to HTTP.
        app.router.redirect_slashes = False
        return app

    async def _page(self, request: Request) -> Response:
        return HTMLResponse(PAGE, headers=_HEADERS)

    async def _openapi(self, request: Request) -> Response:
        return JSONResponse(description(self._limits, self._runs), headers=_HEADERS)

    async def _health(self, request: Request) -> Response:
        runs = [
            {
                "run": run.name,
                "src": run.src,
                "tgt": run.tgt,
                "checkpoint": run.checkpoint,
                "engine": run.translator.engine.name,
                "precision": run.translator.engine.precision,
                "device": run.translator.engine.device,
                "why": run.translator.engine.why,
                "alignment": run.translator.can_align,
                "waiting": run.translator.num_waiting,
            }
            for run in self._runs
        ]
        return JSONResponse({"status": "ok", "version": mt.__version__, "runs": runs}, headers=_HEADERS)

    async def _translate(self, request: Request) -> Response:
        started = time.monotonic()
        self._refuse_strangers(request)
        body = await self._read_body(request)
        asked = read_request(body, self._runs, self._limits)
        answers = await self._answers(asked, request)
        self._log(asked, answers, time.monotonic() - started)
        content = {
            "run": asked.run.name,
            "src": asked.run.src,
            "tgt": asked.run.tgt,
            "results": [_result(text, each) for text, each in zip(asked.texts, answers, strict=True)],
        }
        return JSONResponse(content, headers=_HEADERS)

    def _refuse_strangers(self, request: Request) -> None:
        if self._token is None:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        # In constant time, whatever is wrong with it.
        is_right = hmac.compare_digest(given.strip().encode(), self._token.encode())
        if scheme.lower() != "bearer" or not is_right:
            raise HTTPException(
                401,
                "this service needs its token: send it as Authorization: Bearer TOKEN.",
                {"WWW-Authenticate": "Bearer"},
            )

    async def _read_body(self, request: Request) -> bytes:
        # A form on another site could make a browser send other types without a preflight request.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, "send JSON, with the header Content-Type: application/json.")
        most = self._limits.max_body_bytes
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.max_seconds):
                async for part in request.stream():
                    body += part
                    if len(body) > most:
                        raise HTTPException(413, f"the body is larger than {most:,} bytes.")
        except TimeoutError as error:
            raise HTTPException(408, "the body did not arrive in time.", {"Connection": "close"}) from error
        return bytes(body)

    async def _answers(self, asked: TranslateRequest, request: Request) -> list[Answer]:
        """Wait for the answers. Anything that has not been answered when this ends is cancelled."""
        try:
            future = asked.run.translator.submit(asked.texts, asked.settings, aligned=asked.aligned)
        except QueueFullError as error:
            raise HTTPException(
                429,
                f"too many texts are waiting: try again in {counted(error.retry_after_seconds, 'second')}.",
                {"Retry-After": str(error.retry_after_seconds)},
            ) from error
        except StoppingError as error:
            raise _unavailable("the service is stopping.") from error
        answers = asyncio.wrap_future(future)
        # The whole body has been read, so the next message is that the client has disconnected.
        gone = asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait(
                (answers, gone), timeout=self._limits.max_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if answers.done():
                return answers.result()
            if gone.done():
                raise ClientDisconnect
            seconds = f"{self._limits.max_seconds:,g}"
            raise _unavailable(
                f"the answer took longer than {seconds} seconds: try again, or send fewer texts at once."
            )
        finally:
            answers.cancel()
            gone.cancel()

    def _log(self, asked: TranslateRequest, answers: Sequence[Answer], seconds: float) -> None:
        LOG.info("%s: %s in %.0f ms", asked.run.name, counted(len(answers), "text"), 1000 * seconds)
        if self._logs_texts:
            for text, answer in zip(asked.texts, answers, strict=True):
                LOG.info("  %s -> %s", visible(text), visible(answer.translations[0].text))


class _OnlyTheseHosts:
    """Answers only requests that name one of these hosts.

    Otherwise a page of another site could point its own host name to this machine, and then read the
    service's answers, because the browser treats both as the same site (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host", "").lower()
        if re.sub(r":\d*$", "", host) in self._hosts:
            await self._app(scope, receive, send)
        else:
            LOG.info("refused with 421")
            names = ", ".join(sorted(self._hosts))
            await _error(421, f"the Host of the request must be one of {names}.")(scope, receive, send)


def _result(text: str, answer: Answer) -> dict[str, object]:
    translations: list[dict[str, object]] = [
        {"text": each.text, "score": each.score, "log_prob": each.log_prob} for each in answer.translations
    ]
    if answer.alignments is not None:
        for translation, alignment in zip(translations, answer.alignments, strict=True):
            translation["alignment"] = alignment
    return {"source": text, "translations": translations}


def _unavailable(sentence: str) -> HTTPException:
    return HTTPException(503, sentence, {"Retry-After": str(_SECONDS_UNTIL_RETRY)})


def _error(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": sentence}, status, headers=_HEADERS | (headers or {}))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    LOG.info("refused with %d", error.status_code)
    sentences = {404: "there is no such page: see /openapi.json.", 405: "not with this method."}
    sentence = sentences.get(error.status_code, error.detail)
    return _error(error.status_code, sentence, dict(error.headers or {}))


async def _unprocessable(request: Request, error: Exception) -> Response:
    assert isinstance(error, MtError)
    if not isinstance(error, DataError):
        # It is not about the request, but about a run or a device.
        LOG.error("internal error: %s", visible(str(error)))
        return _error(500, _INTERNAL)
    LOG.info("refused with 422")
    return _error(422, error.message)


async def _left(request: Request, error: Exception) -> Response:
    LOG.info("a client left before its answer")
    # Nobody reads this response.
    return Response()


async def _broken(request: Request, error: Exception) -> Response:
    # Log where it happened, but not the message, which may quote a text.
    where = "".join(traceback.format_tb(error.__traceback__))
    LOG.error("internal error, %s:\n%s", type(error).__name__, where)
    return _error(500, _INTERNAL)
