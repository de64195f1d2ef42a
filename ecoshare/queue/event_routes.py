"""Route of the events of a queue."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Annotated

from fastapi import APIRouter, Depends, Header
from fastapi.sse import EventSourceResponse, ServerSentEvent

from ecoshare.queue.status_feed import StatusFeed


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
