"""States of the jobs of a queue for its clients: from the store, the core and the view of the run."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ecoshare.core.records import JobState
from ecoshare.queue.job_store import JobRow
from ecoshare.queue.live_queue import LiveQueue
from ecoshare.queue.queue_documents import DeviceStatus, JobStatus, QueueStatus, ServiceStatus
from ecoshare.record.run_view import DeviceView


async def queue_status(queue: LiveQueue, most_ended: int) -> QueueStatus:
    """State of a queue with all jobs that have not ended, and those that ended last."""
    run = queue.run
    rows, more = await asyncio.to_thread(queue.store.listed, most_ended)
    return QueueStatus(
        name=queue.name,
        run=str(run.folder.path),
        process=os.getpid(),
        opened_unix_s=queue.opened_unix_s,
        objective=run.plan.objective,
        policy=run.plan.policy,
        devices=[_device(each) for each in run.devices.present()],
        ending=queue.ending,
        warm=run.is_warm(),
        jobs=[_status(queue, queue.noted(row)) for row in rows],
        more=more,
        warnings=list(run.viewing.warnings().values()),
    )


async def job_status(queue: LiveQueue, name: str) -> JobStatus:
    """State of one job or sweep.

    Raises:
        UsageError: There is none of this name.
    """
    return _status(queue, await queue.row(name))


def _device(view: DeviceView) -> DeviceStatus:
    return DeviceStatus.model_validate({**asdict(view), "setting": dict(view.setting)})


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
    view, sweep = run.viewing.job(row.name), run.viewing.sweep(row.name)
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
            "service": ServiceStatus(**asdict(view.service)) if view.service is not None else None,
            "lanes": list(view.lanes),
            "devices": list(view.devices),
        }
    return kept.model_copy(update=known)
