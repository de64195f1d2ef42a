"""Routes of a queue's HTTP interface. They check what comes, call the queue, and turn errors into documents."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException

import ecoshare
from ecoshare.errors import EcoshareError, InvalidJobFile, UnfitEnvironment
from ecoshare.lane.files import outputs
from ecoshare.queue.body_limit import BodyLimit
from ecoshare.queue.event_routes import event_router
from ecoshare.queue.gone_clients import GoneClients
from ecoshare.queue.job_output import output
from ecoshare.queue.live_queue import LiveQueue
from ecoshare.queue.page_routes import page_router
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
from ecoshare.queue.status_feed import StatusFeed
from ecoshare.queue.statuses import job_status, queue_status

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
