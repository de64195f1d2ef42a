"""Routes of a queue's HTTP interface. They check what comes, call the queue, and turn errors into documents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable
from importlib.resources import files
from typing import Annotated, Literal

from anyio import BrokenResourceError
from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import ecoshare
from ecoshare.errors import EcoshareError, InvalidJobFile, UnfitEnvironment
from ecoshare.lane.files import outputs
from ecoshare.queue.job_output import output
from ecoshare.queue.live_queue import LiveQueue
from ecoshare.queue.queue_documents import (
    MOST_BODY_BYTES,
    Acknowledged,
    Cancellation,
    Change,
    Ending,
    JobsChanged,
    JobStatus,
    Problem,
    QueueStatus,
    Retry,
    Submission,
)
from ecoshare.queue.queue_metrics import QueueMetrics
from ecoshare.queue.statuses import StatusFeed, job_status, queue_status


class BodyLimit:
    """Middleware that refuses a larger body as soon as more has come, and one that does not come."""

    def __init__(self, app: ASGIApp, most_bytes: int, within_s: float) -> None:
        """Limit the requests of an application.

        Args:
            app: The application.
            most_bytes: Most bytes of a body.
            within_s: Time (s) within which the body has come.
        """
        self._app, self._most_bytes, self._within_s = app, most_bytes, within_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI defines it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        came_bytes, has_more = 0, True
        until_s = asyncio.get_running_loop().time() + self._within_s

        async def counted() -> Message:
            nonlocal came_bytes, has_more
            if not has_more:
                return await receive()  # which waits until the client is gone
            try:
                async with asyncio.timeout_at(until_s):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, "the request has not come to its end", {"connection": "close"}) from None
            came_bytes += len(message.get("body", b""))
            has_more = message.get("more_body", False)
            if came_bytes > self._most_bytes:
                raise HTTPException(413, f"a request has at most {self._most_bytes} bytes")
            return message

        await self._app(scope, counted, send)


class GoneClients:
    """Middleware that lets streams end without an error when their clients go.

    FastAPI sends the events of a stream through a channel of anyio. The channel fails if the client goes while an event
    is in it.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Serve the clients of an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI defines it."""
        try:
            await self._app(scope, receive, send)
        except* BrokenResourceError:
            pass


def event_router(feed: StatusFeed) -> APIRouter:
    """Router with `GET /api/v1/events`."""
    router = APIRouter()

    @router.get("/api/v1/events", response_class=EventSourceResponse, dependencies=[Depends(feed.place)])
    async def follow(
        last_event_id: Annotated[str | None, Header(max_length=100)] = None,
    ) -> AsyncIterable[ServerSentEvent]:
        """Server-sent events, until the queue goes down.

        `status` has the queue as `GET /api/v1/jobs` gives it: at first, and after changes, at most once a second.
        `job` has a job or sweep as `GET /api/v1/jobs/{name}` gives it, when its state has changed. A client that
        connects again with the id of its last event as `Last-Event-ID` gets up to 1000 changes that it has missed.
        """
        async for event in feed.events(last_event_id):
            yield event

    return router


_KINDS = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def _pages() -> dict[str, tuple[bytes, str]]:
    """Content and media type of each file by the path of its URL."""
    found = {}
    for file in (files("ecoshare.queue") / "page").iterdir():
        path = "/" if file.name == "index.html" else f"/page/{file.name}"
        if (kind := _KINDS.get(file.name.rpartition(".")[2])) is not None:
            found[path] = (file.read_bytes(), kind)
    return found


PAGES = _pages()


def page_router() -> APIRouter:
    """Router with the files of the page."""
    router = APIRouter()
    for path, (content, kind) in PAGES.items():
        router.add_route(path, _answer(content, kind), include_in_schema=False)
    return router


def _answer(content: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_request: Request) -> Response:
        return Response(content, headers={"content-type": kind})

    return answer


MOST_WAIT_S = 30.0
"""Longest time (s) that a request waits for the end of a job."""

_BODY_WITHIN_S = 60.0
_ENDED = 20
"""Number of ended jobs that a list has, if the client names no number."""


def application(queue: LiveQueue, feed: StatusFeed) -> FastAPI:
    """ASGI application that serves a queue and its feed."""
    app = FastAPI(
        title="ecoshare queue",
        version=ecoshare.__version__,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={400: {"model": Problem}, 422: {"model": Problem}, 503: {"model": Problem}},
    )
    app.add_middleware(GoneClients)
    app.add_middleware(BodyLimit, most_bytes=MOST_BODY_BYTES, within_s=_BODY_WITHIN_S)
    app.add_exception_handler(EcoshareError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _no_such)

    metrics = QueueMetrics(queue)

    @app.get("/metrics", response_class=Response)
    async def read_metrics(request: Request) -> Response:
        """Metrics of the queue for Prometheus, as text or in the format OpenMetrics, as the client accepts."""
        text, media_type = await metrics.text(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": media_type})

    @app.get("/api/v1/jobs")
    async def list_jobs(ended: Annotated[int, Query(ge=0, le=10_000)] = _ENDED) -> QueueStatus:
        """The queue, with all jobs that have not ended, and those that ended last."""
        return await queue_status(queue, ended)

    @app.post("/api/v1/jobs", status_code=201)
    async def submit(submission: Submission) -> Acknowledged:
        """Submit the jobs of a job file. They are on the disk when the answer comes."""
        return await queue.submit(submission)

    @app.get("/api/v1/jobs/{name}")
    async def show(name: str, wait_s: Annotated[float, Query(ge=0, le=MOST_WAIT_S)] = 0.0) -> JobStatus:
        """One job or sweep. With `wait_s`, the answer comes at its end, or after this time (s).

        If the queue goes down and the job waits for another session, the answer is a `Problem` of the kind `down`.
        """
        if wait_s:
            await queue.wait(name, wait_s)
        return await job_status(queue, name)

    @app.patch("/api/v1/jobs/{name}")
    async def change(name: str, change: Change) -> JobStatus:
        """Hold or release a job, or give it another priority."""
        if change.held is not None:
            await (queue.hold(name) if change.held else queue.release(name))
        if change.priority is not None:
            await queue.prioritise(name, change.priority)
        return await job_status(queue, name)

    @app.get("/api/v1/jobs/{name}/output")
    async def read_output(
        name: str,
        stream: Literal["stdout", "stderr"] = "stdout",
        follow: bool = False,
        lines: Annotated[int | None, Query(ge=0)] = None,
    ) -> StreamingResponse:
        """Output of the last attempt of a job or trial, as it was written; with `follow`, until its end."""
        path, is_over = await queue.output_of(name)
        chosen = outputs(path)[stream == "stderr"]
        return StreamingResponse(output(chosen, lines, is_over if follow else None), media_type="text/plain")

    @app.post("/api/v1/cancel")
    async def cancel(cancellation: Cancellation) -> JobsChanged:
        """Cancel jobs and sweeps."""
        if cancellation.all:
            return await queue.cancel_all(cancellation.at_once)
        return await queue.cancel(cancellation.jobs, cancellation.at_once)

    @app.post("/api/v1/retry")
    async def retry(retry: Retry) -> JobsChanged:
        """Run jobs again under their names, with those that were cancelled because of them."""
        return await queue.retry(retry.jobs)

    @app.post("/api/v1/end", status_code=202)
    async def end(ending: Ending) -> None:
        """Bring the queue to its end."""
        queue.end(ending.how)

    app.include_router(event_router(feed))
    app.include_router(page_router())
    return app


def _refused(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, EcoshareError), "the handler is for these"
    code = 422 if isinstance(error, InvalidJobFile) else 503 if isinstance(error, UnfitEnvironment) else 400
    return JSONResponse(Problem.of(error).model_dump(), code)


def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError), "the handler is for these"
    first = error.errors()[0]
    where = ".".join(str(each) for each in first["loc"])
    return JSONResponse(Problem(kind="usage", message=f"{where}: {first['msg']}").model_dump(), 422)


def _no_such(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException), "the handler is for these"
    return JSONResponse(Problem(kind="usage", message=str(error.detail)).model_dump(), error.status_code)
