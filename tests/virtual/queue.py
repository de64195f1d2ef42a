"""A queue in virtual time: its run, its store and its clients, which call it without a socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any

from ecoshare.errors import UnfitEnvironment
from ecoshare.jobs.load import LoadedJobs
from ecoshare.queue.job_store import JobEnd, JobStore
from ecoshare.queue.live_queue import LiveQueue
from ecoshare.queue.queue_documents import Submission
from ecoshare.queue.submission_plan import leftover_jobs, no_jobs
from ecoshare.record.run_folder import RunFolder
from ecoshare.reporting.progress import Silent
from ecoshare.runtime import run_opening
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.planning.planned_limits import PlannedMachines
from ecoshare.runtime.run_lifecycle import FinishedRun
from tests.planning import planned as made_plan
from tests.virtual.run import World, jobs_of, run_in

Client = Callable[[LiveQueue], Coroutine[Any, Any, None]]
"""Actions of a client once the queue is up."""

NAME = "virtual"


class BusyStore(JobStore):
    """Store that another program locks for a while, such as a backup.

    Attributes:
        busy: Number of ends that are refused before it is free.
    """

    busy = 0

    def end(self, ends: Iterable[JobEnd], started: Mapping[str, float] | None = None) -> None:
        if self.busy:
            self.busy -= 1
            raise UnfitEnvironment("the store is locked")
        super().end(ends, started)


def submission(number: int, *jobs: Mapping[str, Any], folder: Path, held: bool = False) -> Submission:
    """Submission of jobs, given by their keys in a job file. Their script is never run."""
    text = jobs_of(folder, jobs).read_text()
    return Submission(id=f"{number:032x}", text=text, file="jobs.yaml", folder=str(folder), held=held)


def serve(
    world: World,
    client: Client,
    *clients: Client,
    policy: str = "fair",
    keep_s: float | None = None,
    **options: Any,
) -> FinishedRun:
    """Serve a queue, a new one or that on the disk of the world, until its clients have brought it to its end."""

    @contextlib.asynccontextmanager
    async def served(queue: LiveQueue) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            for each in (client, *clients):
                tasks.create_task(each(queue))
            yield

    def plan(loaded: LoadedJobs, machines: PlannedMachines, beside: Collection[str]) -> Plan:
        return made_plan(loaded, machines, policy=policy, queue=NAME, beside=beside, **options)

    machines = world.machines

    def planner(loaded: LoadedJobs, beside: Collection[str]) -> Plan:
        return plan(loaded, machines, beside)

    world.disk.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(BusyStore(world.disk / "queue.db")) as store:
        queue = LiveQueue(NAME, store, planner, served, keep_s, clock=world.clock)
        runs = world.disk / "runs"
        if runs.is_dir():
            folder = RunFolder.open(run_in(runs))

            def planned(_machines: PlannedMachines) -> Plan:
                return leftover_jobs(NAME, store, planner)

            return run_opening.reopen(folder, planned, Silent(), queue, world.hold)
        return run_opening.start(
            leftover_jobs(NAME, store, planner),
            no_jobs(NAME).text,
            runs,
            Silent(),
            machines=machines,
            host=world,
            source=queue,
        )
