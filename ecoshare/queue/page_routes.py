"""Files of the page. They hold nothing of the queue: the page asks the interface for that, with the token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import APIRouter, Request, Response

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
