"""State of a queue as a feed: one look a second for all clients, however many there are.

::

    queue_status ──a look a second──► newest state, as text ──► each stream that has not sent it
                 └─states that differ─► ring of changes      ──► each stream, from where it is

A stream has no queue of its own. A slow one goes on with the newest state, and the changes that the ring still has.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncIterator

from fastapi.sse import ServerSentEvent

from ecoshare.common.clock import loop_s
from ecoshare.core.records import FINAL_STATES
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.queue.live_queue import LiveQueue
from ecoshare.queue.queue_documents import JobStatus
from ecoshare.queue.statuses import job_status, queue_status

MOST_STREAMS = 32
_KEPT_CHANGES = 1000
_ENDED = 50
"""Number of ended jobs that a state has."""

_LOOK_S = 1.0
_MOST_SHARE = 0.05
"""Most of the time that looks take. Those of a queue with very many jobs become rarer."""

_LINGER_S = 60.0
"""Time (s) after the last stream for which looks go on, so that a client which connects again finds each change."""


class StatusFeed:
    """Feed of a queue's state and of the changes of its jobs."""

    def __init__(self, queue: LiveQueue) -> None:
        """Feed of a queue, which is looked at while a stream is open.

        Args:
            queue: The queue. Its run need not have begun.
        """
        self._queue = queue
        self._session = secrets.token_hex(4)
        self._state, self._number = "", 0  # newest state, and how many there were
        self._changes: deque[tuple[int, str]] = deque(maxlen=_KEPT_CHANGES)
        self._last = 0  # number of the last change
        self._known: dict[str, str] | None = None  # state of each job at the last look
        self._streams, self._left_s = 0, 0.0
        self._news = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._is_closed = False

    async def place(self) -> AsyncIterator[None]:
        """A place for one stream, until it is over.

        Raises:
            UnfitEnvironment: There are too many streams.
        """
        if self._streams >= MOST_STREAMS:
            raise UnfitEnvironment(f"{MOST_STREAMS} clients follow the queue already")
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1
            self._left_s = loop_s()

    async def events(self, last_id: str | None) -> AsyncIterator[ServerSentEvent]:
        """Events `status` and `job` until the queue goes down.

        Args:
            last_id: Id of the last change that the client has, so that it gets those which it has missed.
        """
        if self._is_closed:
            return
        if self._looking is None or self._looking.done():
            self._state = ""  # which would be an old one
            self._looking = asyncio.create_task(self._look_on())
        looking, sent, change = self._looking, 0, self._place_after(last_id)
        while not looking.done():
            news = self._news
            if self._state and sent != self._number:
                sent = self._number
                yield ServerSentEvent(event="status", raw_data=self._state)
            for number, text in [each for each in self._changes if each[0] > change] if self._state else ():
                change = number
                yield ServerSentEvent(event="job", id=f"{self._session}-{number}", raw_data=text)
            if news is self._news:
                await news.wait()
        if not looking.cancelled():
            looking.result()

    def _place_after(self, last_id: str | None) -> int:
        """Number of the last change that a client has."""
        session, _, number = (last_id or "").partition("-")
        if session == self._session and number.isdecimal():
            return min(int(number), self._last)
        return 0 if last_id else self._last  # the id of an earlier session: everything since is new

    async def _look_on(self) -> None:
        try:
            while self._streams or loop_s() < self._left_s + _LINGER_S:
                began_s = loop_s()
                await self._look()
                took_s = loop_s() - began_s
                await asyncio.sleep(max(_LOOK_S - took_s, took_s / _MOST_SHARE))
        finally:
            self._tell()

    async def _look(self) -> None:
        status = await queue_status(self._queue, _ENDED)
        found = {job.name: job for job in status.jobs}
        known = self._known if self._known is not None else {name: job.state for name, job in found.items()}
        for name, state in known.items():
            if name not in found and state not in FINAL_STATES:  # more jobs have ended than a state has
                with contextlib.suppress(UsageError):
                    found[name] = await job_status(self._queue, name)
        for job in found.values():
            if known.get(job.name) != job.state:
                self._note(job)
        self._known = {name: job.state for name, job in found.items()}
        text = status.model_dump_json()
        if text != self._state:
            self._state = text
            self._number += 1
            self._tell()

    def _note(self, job: JobStatus) -> None:
        self._last += 1
        self._changes.append((self._last, job.model_dump_json()))

    def _tell(self) -> None:
        """Wake all streams."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def close(self) -> None:
        """End all streams. One that begins later ends at once."""
        self._is_closed = True
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
