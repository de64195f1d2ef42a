"""A run in progress: what its parts share.

::

                         ┌──────────── Run ────────────┐
    Driver ──events───►  │ core, log, jobs, tell()     │ ◄──tell── nodes, advisers
    displays ──────────► │ energy, requests, sweeps    │ ◄──samples, requests── nodes
    queue ──────submit─► │ arrivals                    │
                         └─────────────────────────────┘
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from ecoshare.base.clock import SideTasks
from ecoshare.core.commands import MeasureSetting
from ecoshare.core.events import ClassesKnown, Event
from ecoshare.core.records import JobState
from ecoshare.core.scheduler import Scheduler
from ecoshare.lane.serving.request_intervals import RequestInterval
from ecoshare.record.accounts.run_energy import LiveEnergy
from ecoshare.record.event_log import EventLog
from ecoshare.record.run_documents import with_devices
from ecoshare.record.run_folder import RunFolder, write_json
from ecoshare.record.samples import Line
from ecoshare.runtime.job_arrivals import Arrivals
from ecoshare.runtime.live_requests import ServiceViews
from ecoshare.runtime.live_sweeps import Sweeping
from ecoshare.runtime.measuring.profiler import Profiler
from ecoshare.runtime.measuring.setting_searches import RunSearches
from ecoshare.runtime.nodes.run_host import RunHost
from ecoshare.runtime.nodes.run_node import JoiningDevices, LeavingDevices, NodePlan, RunNode
from ecoshare.runtime.planning.node_job import NodeJob
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.planning.planned_job import PlannedJob
from ecoshare.runtime.planning.planned_knowledge import energy_rates, known_context_bytes


class Run:
    """A run in progress. It is also the run as its nodes see it; see `NodeRun`.

    Attributes:
        plan: Plan of the run, for what its machines can do once they are open.
        jobs: All jobs that the run was given, by name; trials are added when they are drawn.
        folder: The run folder.
        log: Event log of the run.
        environment: Facts about the machines, as in `environment.json`.
        token: Token that marks the processes of the run.
        host: The process that this runs in.
        profiler: Makes profiles from windows, and stores them.
        stays_open: Whether the run has a source of more jobs.
        began_s: Monotonic time (s) at which the run was first opened.
        core: Scheduler, which makes all decisions.
        devices: Devices of the run. Those that have come are added when the run begins to use them, and those that
            leave are taken out.
        node: The machines with the lanes and devices of the run, once they are open.
        searches: Searches for settings on the devices.
        energy: Joules so far.
        requests: Requests of the services so far.
        sweeping: Sweeps of the run.
        arrivals: Arrivals of the jobs and sweeps.
        coming: Devices of machines that have come, and are not used yet.
        leaving: Devices that the run does without, if the next look finds that this can be.
        warnings: Present troubles in words, by subject.
        tasks: Work beside the loop of the run.
        events: Events that the core has not handled yet, each as a function that makes it.
    """

    node: RunNode

    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        log: EventLog,
        environment: dict[str, Any],
        host: RunHost,
        profiler: Profiler,
        *,
        stays_open: bool = False,
        reached_s: float = 0.0,
    ) -> None:
        """A run without open machines.

        Args:
            reached_s: Last moment of an earlier session, as time (s) since the run was first opened. Time continues
                from there if the clock was set back since then.
        """
        self.plan, self.folder, self.log, self.environment = plan, folder, log, environment
        self.host, self.profiler, self.stays_open = host, profiler, stays_open
        self.token: str = environment["token"]
        open_for_s: float = max(host.clock.unix_s() - environment["opened_unix_s"], reached_s)
        self.began_s = host.clock.monotonic_s() - open_for_s
        self.jobs: dict[str, PlannedJob] = {job.spec.name: job for job in plan.jobs}
        self.core = Scheduler()
        self.devices = list(plan.devices)
        self.searches = RunSearches()
        self.energy = LiveEnergy(energy_rates(self.jobs, profiler.made, plan.known))
        self.requests = ServiceViews(self.now_s)
        self.sweeping = Sweeping(folder, self.jobs, self.tell)
        self.arrivals = Arrivals(self.jobs, self.sweeping, self.now_s, self.tell)
        self.coming, self.leaving = list[JoiningDevices](), list[LeavingDevices]()
        self.warnings: dict[str, str] = {}
        self.tasks = SideTasks()
        self.events: asyncio.Queue[Callable[..., Event | None]] = asyncio.Queue()

    @property
    def only_measures(self) -> bool:
        """Whether the run is for a profile or for a search only."""
        return self.plan.only_tune or self.profiler.stops_the_run

    @property
    def waiting_jobs(self) -> int:
        """Number of jobs that wait for a place."""
        return sum(job.state is JobState.QUEUED for job in self.core.jobs.values())

    def know(self, facts: Mapping[str, Any]) -> None:
        """Add facts about a machine that has come to the documents: its devices to both, the rest to one."""
        own = self.environment
        for key, new in facts.items():
            own[key] = with_devices(own[key], new) if key == "devices" else {**own[key], **new}
        write_json(self.folder.environment, own)
        plan = json.loads(self.folder.plan.read_text())
        write_json(self.folder.plan, {**plan, "devices": with_devices(plan["devices"], facts["devices"])})

    # Machines that come and go. A segment of the log may begin at once.

    def join(self, coming: JoiningDevices) -> None:
        """Use devices of a machine that has come, from the next segment of the log on."""
        self.know(coming.environment)
        self.coming.append(coming)
        self.tell(lambda at_s: None)

    def leave(self, leaving: LeavingDevices) -> None:
        """Do without the devices of a machine, if that can be now. It may be called again."""
        if all(each.names != leaving.names for each in self.leaving):
            self.leaving.append(leaving)
        self.tell(lambda at_s: None)

    # For a run that stays open. The call is made in the loop of the run.

    def submit(self, plan: Plan) -> None:
        """Let the jobs and sweeps of a plan that was added to the arrivals come.

        Args:
            plan: The plan. Profiles and measurements of earlier runs that it has are used, too.
        """
        self.plan.known.update(plan.known)
        if plan.known_settings or plan.colocations or plan.known_responses:
            self.tell(
                partial(
                    ClassesKnown,
                    known_settings=plan.known_settings,
                    colocations=plan.colocations,
                    known_responses=plan.known_responses,
                )
            )
        self.arrivals.submit(plan, self.now_s())

    # The run for its nodes; see `NodeRun`

    @property
    def for_nodes(self) -> NodePlan:
        return NodePlan.of(self.plan)

    @property
    def stopping(self) -> bool:
        return self.core.stopping

    @property
    def live_jobs(self) -> int:
        return self.core.live_jobs

    def now_s(self) -> float:
        return self.host.clock.monotonic_s() - self.began_s

    def tell(self, make: Callable[..., Event | None]) -> None:
        self.events.put_nowait(make)

    def warn(self, subject: str, words: str) -> None:
        if words:
            self.warnings[subject] = words
        else:
            self.warnings.pop(subject, None)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.begin(work)

    def job(self, name: str) -> NodeJob:
        return self.jobs[name].for_node()

    def context_bytes(self, job_class: str) -> int:
        return known_context_bytes(job_class, self.plan.on_processors, self.profiler.made, self.plan.known)

    def most_s(self, command: MeasureSetting) -> Mapping[str, float] | None:
        return self.searches.most_s(command)

    def hear_sample(self, line: Line) -> None:
        if self.stays_open:  # only clients of a queue ask for joules so far
            self.energy.hear(line)

    def hear_requests(self, service: str, attempt: int, found: Sequence[RequestInterval]) -> None:
        self.requests.hear(service, attempt, found)

    def attempt_over(self, job: str, attempt: int) -> None:
        self.sweeping.listen(job, attempt, over=True)
