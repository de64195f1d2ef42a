"""The screen of an app of `ecoshare top` as text, and ways to drive it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from textual.pilot import Pilot

from ecoshare.top.top_app import TopApp

SIZES = ((80, 24), (120, 40))
_WITHIN_S = 60.0

Pilots = Pilot[None]


def lines(app: TopApp) -> list[str]:
    """Lines on the screen, each without the spaces at its end."""
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


def text(app: TopApp) -> str:
    """The screen as one text."""
    return "\n".join(lines(app))


def drive(app: TopApp, size: tuple[int, int], use: Callable[[Pilots], Coroutine[Any, Any, None]]) -> None:
    """Run an app without a terminal, and use it."""

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await use(pilot)

    asyncio.run(run())


async def until(pilot: Pilots, holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + _WITHIN_S
    while not holds():
        assert time.monotonic() < end_s, text(_app(pilot))
        await pilot.pause(0.05)


async def shows(pilot: Pilots, *words: str) -> None:
    """Wait until the screen has all of these words."""
    await until(pilot, lambda: all(word in text(_app(pilot)) for word in words))


async def select(pilot: Pilots, name: str) -> None:
    """Select a job with the arrow keys."""
    app = _app(pilot)

    def place() -> int:
        assert app.view is not None
        return next((row for row, job in enumerate(app.view.jobs) if job.name == name), -1)

    await until(pilot, lambda: place() >= 0)
    for _ in range(1000):
        here = next(row for row, job in enumerate(app.view.jobs if app.view else ()) if job.name == app.selected_name)
        if here == place():
            return
        await pilot.press("down" if here < place() else "up")
    raise AssertionError(name)


def _app(pilot: Pilots) -> TopApp:
    assert isinstance(pilot.app, TopApp)
    return pilot.app
