"""Removes the data of jobs of a queue that ended long ago (`ecoshare up --keep 30d`).

::

    events-1.jsonl  events-2.jsonl ▏ events-3.jsonl  events.jsonl
       last written before the limit ▏ stays, with all jobs that ended in it
                                     ▏
    jobs that ended by then: folders, rows of the store, lines of submitted.jsonl ──► then the segments themselves

Jobs go with the segment of the log in which they ended, so that the rest of the log needs none of them. A removal
that is cut off is finished by the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Collection
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshare.base.clock import Clock
from ecoshare.errors import EcoshareError, UnfitEnvironment
from ecoshare.jobs.sweep import sweep_of
from ecoshare.queue.job_store import JobStore
from ecoshare.record import event_log, past_runs, run_documents
from ecoshare.record.run_folder import RunFolder, unwritable

if TYPE_CHECKING:
    from ecoshare.runtime.run import Run

MOST_REMOVED = 500
"""Most jobs of a run in progress that one call removes, so that submissions need not wait for long."""


_REMOVE_S = 86_400.0
"""Time (s) between two removals of old data."""


async def remove_daily(run: Run, store: JobStore, clock: Clock, keep_s: float | None, submitting: asyncio.Lock) -> None:
    """Look at the clock, and remove the data of jobs that ended long ago, now and once a day.

    Args:
        run: The run of the queue.
        store: Jobs of the queue.
        clock: Time of the run.
        keep_s: Time (s) for which the data of a job are kept after its end; None for ever.
        submitting: Held while other submissions must wait.
    """
    while True:
        with contextlib.suppress(EcoshareError):  # it is tried again tomorrow
            now_s = await asyncio.to_thread(store.steady_unix_s, clock.unix_s(), *clock.since_boot())
            removed = MOST_REMOVED
            while keep_s is not None and removed >= MOST_REMOVED:  # submissions come in between
                async with submitting:
                    here = [*run.jobs.values(), *(each.template for each in run.arrivals.sweeps.values())]
                    awaited = {name for job in here for name in (*job.source.after, *job.source.after_any)}
                    removed = 0
                    with contextlib.suppress(ValueError):  # a damaged list of jobs
                        removed = await asyncio.to_thread(remove_old, run.folder, store, now_s - keep_s, awaited)
        await asyncio.sleep(_REMOVE_S)


def remove_old(run: RunFolder, store: JobStore, before_unix_s: float, awaited: Collection[str]) -> int:
    """Remove the data of jobs that ended before a time. Other submissions must wait meanwhile.

    Args:
        run: The run that goes on. Earlier runs of the queue beside it are removed as a whole.
        store: Jobs of the queue.
        before_unix_s: Time (s since 1970) up to which they ended.
        awaited: Names of jobs that stay, since jobs that are left name them.

    Returns:
        The number of jobs and sweeps that were removed. If it is `MOST_REMOVED` or more, others may be left.

    Raises:
        UnfitEnvironment: Files cannot be removed.
    """
    try:
        removed = _old_segments(run, store, before_unix_s, awaited)
        return removed + sum(
            _old_run(RunFolder(path), store, before_unix_s, awaited)
            for path in run.path.parent.iterdir()
            if path.is_dir() and not path.is_symlink() and path.name != run.path.name
        )
    except OSError as error:
        raise unwritable(run.path, error) from error


def _old_segments(run: RunFolder, store: JobStore, before_unix_s: float, awaited: Collection[str]) -> int:
    old: list[Path] = []
    # A sweep that goes on is resumed from all that its trials have told.
    before_unix_s = min([before_unix_s, *(row.submitted_unix_s for row in store.left() if row.is_sweep)])
    for each in event_log.segments(run.events):
        if each.stat().st_mtime >= before_unix_s:
            break
        old.append(each)
    removed = 0
    if old:
        removed = _remove_jobs(run, store, old[-1].stat().st_mtime, awaited)
        if removed < MOST_REMOVED:
            for each in old:
                each.unlink()
    return removed


def _remove_jobs(run: RunFolder, store: JobStore, until_unix_s: float, awaited: Collection[str]) -> int:
    ended = (row for row in store.ended_by(run.path.name, until_unix_s) if row.name not in awaited)
    old = list(islice(ended, MOST_REMOVED))
    for row in old:
        trials = [each for each in run.jobs.glob(f"{row.name}.*") if row.is_sweep and sweep_of(each.name) == row.name]
        for folder in (run.job(row.name), *trials):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(folder)
    run_documents.drop(run.submitted, {row.name for row in old})
    store.remove([row.name for row in old])  # last: a removal that was cut off finds them again
    return len(old)


def _old_run(run: RunFolder, store: JobStore, before_unix_s: float, awaited: Collection[str]) -> int:
    """Remove an earlier run of the queue if all of its jobs ended long ago."""
    try:
        last_s = run.events.stat().st_mtime
    except OSError:  # no log: it is no run, or a damaged one
        return 0
    rows = store.of_run(run.path.name)
    if last_s >= before_unix_s or any(row.state is None or row.name in awaited for row in rows):
        return 0
    try:
        past_runs.remove(run.path)
    except UnfitEnvironment:
        raise
    except EcoshareError:  # it is in progress, or is no run folder
        return 0
    store.remove([row.name for row in rows])
    return len(rows)
