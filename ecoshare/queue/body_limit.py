"""Limit on the size of a request's body."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """Middleware that refuses a larger body as soon as more has come."""

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
        came_bytes = 0

        async def counted() -> Message:
            nonlocal came_bytes
            message = await receive()
            came_bytes += len(message.get("body", b""))
            if came_bytes > self._most_bytes:
                raise HTTPException(413, f"a request has at most {self._most_bytes} bytes")
            return message

        await self._app(scope, counted, send)
