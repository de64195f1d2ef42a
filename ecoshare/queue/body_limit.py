"""Limits of a request's body: its size, and the time until it has come."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


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
