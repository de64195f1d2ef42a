"""First look at each request: whether it may come in, and what browsers may do with the answer."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import re
from collections.abc import Collection

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ecoshare.queue.queue_documents import Problem

_NAMES = {"queue", "localhost"}
"""Names that a request may be for, beside loopback addresses; `queue` is that of the clients on the socket."""

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::[0-9]*)?")
"""A Host header (RFC 9110): an address of IPv6 stands in brackets, and nothing but a port follows."""

_CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_BODY_BYTES, _BODY_WITHIN_S = 1 << 16, 1.0
"""Most bytes of the body of a refused request that are taken, and the longest time (s) for that."""

_HEADERS = {
    b"content-security-policy": _CONTENT_POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
}


class RequestGuard:
    """Middleware that refuses requests of other sites, and those without the token."""

    def __init__(self, app: ASGIApp, token: str | None, public: Collection[str] = ()) -> None:
        """Guard an application.

        Args:
            app: The application.
            token: Token that requests must have; None for a socket that the kernel guards.
            public: Paths that need no token.
        """
        self._app, self._public = app, frozenset(public)
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI defines it."""
        if scope["type"] != "http":
            return  # nothing else is served

        async def safe_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in _HEADERS]
                message = {**message, "headers": [*kept, *_HEADERS.items()]}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await _take_body(scope, receive)
        await (self._app if refusal is None else refusal)(scope, receive, safe_send)

    def _refusal(self, scope: Scope) -> Response | None:
        """Answer to a request that may not come in; None for one that may."""
        hosts, origins = _values(scope, b"host"), _values(scope, b"origin")
        # DNS rebinding: the name of another site stands for 127.0.0.1, and its pages send that name.
        if len(hosts) != 1 or not _is_ours(hosts[0].decode("latin-1")):
            return _refused(421, "the request is for another host: the queue is `localhost` or 127.0.0.1")
        if any(origin != b"http://" + hosts[0] for origin in origins):
            return _refused(403, "the request comes from another site")
        if self._token is None or (scope["path"] in self._public and scope["method"] in ("GET", "HEAD")):
            return None
        given = _values(scope, b"authorization")
        kind, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        if kind.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token):
            return None
        return _refused(401, "the token is wrong or missing: `ecoshare page` prints it", {"www-authenticate": "Bearer"})


async def _take_body(scope: Scope, receive: Receive) -> None:
    """Take a short body of a request that is refused.

    The connection ends with the answer. If a part of the body were unread by then, the kernel would reset the
    connection, and the client might never see the answer.
    """
    if _values(scope, b"expect"):
        return  # the client waits for a word before it sends the body
    left_bytes = _BODY_BYTES
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_BODY_WITHIN_S):
            while left_bytes > 0:
                message = await receive()
                left_bytes -= len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for each, value in scope["headers"] if each == name]


def _is_ours(host: str) -> bool:
    """Whether a Host header names this machine itself. The port may be another: `ssh -L` forwards from any."""
    if (parts := _HOST.fullmatch(host)) is None:
        return False
    if parts["name"].lower() in _NAMES:
        return True
    try:
        return ipaddress.ip_address(parts["name"].strip("[]")).is_loopback
    except ValueError:
        return False


def _refused(code: int, words: str, headers: dict[str, str] | None = None) -> Response:
    # The connection ends, so that no long body of such a request is waited for.
    return JSONResponse(
        Problem(kind="usage", message=words).model_dump(), code, headers={"connection": "close", **(headers or {})}
    )
