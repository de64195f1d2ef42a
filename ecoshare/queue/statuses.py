"""States of the jobs of a queue for its clients: from the store, the core and the view of the run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi.sse import ServerSentEvent

from ecoshare.base.clock import loop_s
from ecoshare.core.records import FINAL_STATES, JobState
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.queue.job_store import JobRow
from ecoshare.queue.live_queue import LiveQueue
from ecoshare.queue.queue_documents import JobStatus, QueueStatus


async def queue_status(queue: LiveQueue, most_ended: int) -> QueueStatus:
    """State of a queue with all jobs that have not ended, and those that ended last."""
    run, views = queue.run, queue.driver.views
    rows, more = await asyncio.to_thread(queue.store.listed, most_ended)
    return QueueStatus(
        name=queue.name,
        run=str(run.folder.path),
        process=os.getpid(),
        opened_unix_s=queue.opened_unix_s,
        objective=run.plan.objective,
        policy=run.plan.policy,
        devices=list(views.devices()),
        ending=queue.ending,
        warm=run.node.ready is not None,
        jobs=[_status(queue, queue.noted(row)) for row in rows],
        more=more,
        warnings=list(views.warnings().values()),
    )


async def job_status(queue: LiveQueue, name: str) -> JobStatus:
    """State of one job or sweep.

    Raises:
        UsageError: There is none of this name.
    """
    return _status(queue, await queue.row(name))


def kept_status(row: JobRow, runs: Path) -> JobStatus:
    """State of a job or sweep as the store alone has it.

    Args:
        row: The job.
        runs: Folder of the run folders of its queue.
    """
    waits = JobState.HELD if row.held else JobState.QUEUED
    return JobStatus(
        name=row.name,
        state=row.state or waits.value,
        submitted_unix_s=row.submitted_unix_s,
        started_unix_s=row.started_unix_s,
        ended_unix_s=row.ended_unix_s,
        exit_code=row.exit_code,
        reason=row.reason,
        priority=row.priority or 0,
        attempts=row.attempts,
        run=str(runs / row.run),
    )


def _status(queue: LiveQueue, row: JobRow) -> JobStatus:
    run = queue.run
    kept = kept_status(row, run.folder.path.parent)
    views = queue.driver.views
    view, sweep = views.job(row.name), views.sweep(row.name)
    job, planned = run.core.jobs.get(row.name), run.jobs.get(row.name)
    arriving = view is not None and view.state == "arriving"
    state = "arriving" if arriving and not run.arrivals.gate.is_held(row.name) else queue.state(row).value
    started_s = row.started_unix_s
    if started_s is None and job is not None and job.first_start_s is not None:
        started_s = queue.unix_s(job.first_start_s)
    priority = row.priority if row.priority is not None else planned.spec.priority if planned is not None else 0
    joules = run.energy.job(row.name)
    energy_j, source = joules if joules is not None else (None, "")
    rate = view.rate if view is not None and view.state == "running" else None
    left = max(0, view.total - view.iterations) if view is not None and view.total is not None else None
    known: dict[str, Any] = {
        "state": state,
        "started_unix_s": started_s,
        "reason": row.reason or (view.reason if view is not None else ""),
        "priority": priority,
        "waits_for": list(run.arrivals.gate.waits_for(row.name)),
        "attempts": max(row.attempts, job.attempt if job is not None else 0),
        "energy_j": energy_j,
        "energy_source": source,
        "trials": sweep.trials if sweep is not None else None,
        "ended_trials": dict(sweep.ended) if sweep is not None else {},
    }
    if view is not None:
        known |= {
            "iterations": view.iterations or view.eval_iterations,
            "of_iterations": view.total,
            "by_steps": view.by_steps,
            "iterations_per_s": rate,
            "turn_wait_s": view.turn_wait_s,
            "behind": list(view.behind),
            "slowdown": view.slowdown,
            "expected_end_unix_s": queue.clock.unix_s() + left / rate if left is not None and rate else None,
            "service": view.service,
            "lanes": list(view.lanes),
            "devices": list(view.devices),
        }
    return kept.model_copy(update=known)


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
    """Feed of a queue's state and of the changes of its jobs.

    ::

        queue_status ──a look a second──► newest state, as text ──► each stream that has not sent it
                     └─states that differ─► ring of changes      ──► each stream, from where it is

    A stream has no queue of its own. A slow one goes on with the newest state, and the changes that the ring still has.
    """

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
