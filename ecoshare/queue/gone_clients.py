"""Streams of clients that have gone."""

from __future__ import annotations

from anyio import BrokenResourceError
from starlette.types import ASGIApp, Receive, Scope, Send


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
