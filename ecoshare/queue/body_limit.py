"""Limit on the size of a request's body."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """Middleware that refuses a larger body: by its announced length, else as soon as more has come."""

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        """Limit the requests of an application.

        Args:
            app: The application.
            most_bytes: Most bytes of a body.
        """
        self._app, self._most_bytes = app, most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI defines it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = Headers(scope=scope).get("content-length", "0")
        came_bytes = int(told) if told.isdecimal() else 0

        async def counted() -> Message:
            nonlocal came_bytes
            if came_bytes > self._most_bytes:
                raise HTTPException(413, f"a request has at most {self._most_bytes} bytes")
            message = await receive()
            came_bytes = max(came_bytes, 0) + (len(message.get("body", b"")) if not told.isdecimal() else 0)
            return message

        await self._app(scope, counted, send)
