"""The scheduler: `handle(event) -> list[Command]`.

::

    events                      Scheduler                          commands
    RunOpened      ──►   lanes of every device               ──►   OpenLane
    JobArrived     ──►   waiting jobs, ordered by the policy
    Done, Refused  ──►   what was taken or freed counts now
    JobExited      ──►   end, or wait again                  ──►   StartJob, SetShares
    IterationsDone ──►   ranks inside the lane               ──►   SetShares, ProfileJob
    Profiled       ──►   what jobs of that class need
    Advised, ...   ──►   settings of the packings            ──►   ApplySetting, MeasureTrial, Ask
    StopRequested  ──►   nothing new; end what runs          ──►   KillJob

Deterministic: equal events give equal commands, so a run's log replays to the same decisions. No event costs a
scan of all jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import count

from ecoshare.core.commands import Command, KillJob, OpenLane, ProfileJob, SetShares, Share, StartJob
from ecoshare.core.events import (
    Advised,
    Device,
    Done,
    Event,
    IterationsDone,
    JobArrived,
    JobExited,
    Outcome,
    Profiled,
    Refused,
    RunOpened,
    StopRequested,
    TrialMeasured,
    Usage,
)
from ecoshare.core.memory import MemoryDemand, cap_bytes
from ecoshare.core.policies import POLICIES
from ecoshare.core.profiling import Profiling
from ecoshare.core.records import Job, Lane
from ecoshare.core.states import JobState, LaneState
from ecoshare.core.tuning import Tuning
from ecoshare.core.waiting import WaitingJobs

MOST_LOSSES = 3
"""How often an attempt may be lost through no fault of its job before the job is given up."""

MOST_PASSED = 16
"""How often a waiting job may be passed by others that fit where it does not, before room is kept for it."""

_FAILURES = frozenset({Outcome.FAILED, Outcome.CRASHED, Outcome.OUT_OF_MEMORY, Outcome.TIMED_OUT})


class Scheduler:
    """Decides which jobs run, in which lanes, and who goes first there.

    Attributes:
        jobs: All jobs that have arrived, by name.
        lanes: All lanes, by number.
        stopping: The user asked for the end of the run.
    """

    def __init__(self) -> None:
        """A scheduler that knows nothing; the first event must be `RunOpened`."""
        self.jobs: dict[str, Job] = {}
        self.lanes: dict[int, Lane] = {}
        self._devices: dict[str, list[Lane]] = {}
        self.stopping = False
        self._live = 0
        self._ids = count(1)
        self._starting: dict[int, Job] = {}
        self._opening: dict[int, Lane] = {}
        self._profiling = Profiling()

    @property
    def live_jobs(self) -> int:
        """Jobs that have arrived and not ended."""
        return self._live

    def handle(self, event: Event) -> list[Command]:
        """The commands that follow from one more event, in the order in which they must be carried out.

        Raises:
            IllegalMove: The event cannot follow what came before; the driver or the core has a defect.
        """
        match event:
            case RunOpened():
                return self._open(event)
            case JobArrived():
                return self._arrive(event)
            case Done():
                return self._done(event)
            case Refused():
                return self._refused(event)
            case IterationsDone():
                return self._progressed(event)
            case JobExited():
                return self._exited(event)
            case Profiled():
                self._profiling.ended(event)
                return self._fill(event.at_s) + self._settings()
            case TrialMeasured() | Advised():
                return self._tuned(event)
            case StopRequested():
                return self._stop(event)

    def _open(self, event: RunOpened) -> list[Command]:
        self._config = event.config
        self._policy = POLICIES[event.config.policy]()
        self._waiting = WaitingJobs(self._policy.order)
        known = {each.packing: each.setting for each in event.tuned}
        self._tuning = Tuning(known, event.config.search, lambda: next(self._ids))
        return [self._open_lane(device) for device in event.devices for _ in range(event.config.lanes_per_device)]

    def _open_lane(self, device: Device) -> OpenLane:
        lane = Lane(
            number=len(self.lanes),
            device=device,
            budget_bytes=device.memory_bytes // self._config.lanes_per_device,
            places=self._policy.places or self._config.places_per_lane,
            command=next(self._ids),
        )
        self.lanes[lane.number] = self._opening[lane.command] = lane
        self._devices.setdefault(device.name, []).append(lane)
        return OpenLane(lane.command, lane.number, device.name, lane.budget_bytes)

    def _arrive(self, event: JobArrived) -> list[Command]:
        before = event.job.before
        job = Job(event.job, event.at_s, attempt=before.attempts, failures=before.failures)
        job.whole_lane = before.out_of_memory
        self.jobs[event.job.name] = job
        self._live += 1
        self._waiting.add(job)
        if self.stopping:
            self._end(job, JobState.CANCELLED, event.at_s, "the run was being stopped")
        elif (reason := self._never_fits(job)) is not None:
            self._end(job, JobState.FAILED, event.at_s, reason)
        return self._fill(event.at_s)

    def _done(self, event: Done) -> list[Command]:
        if (lane := self._opening.pop(event.command, None)) is not None:
            lane.move(LaneState.OPEN, event.at_s, "opened")
            return self._fill(event.at_s)
        if self._tuning.owns(event.command):
            return self._tuned(event)
        job = self._starting.pop(event.command, None)
        if job is not None:
            job.command = None
            if job.state is JobState.STARTING:
                job.move(JobState.RUNNING, event.at_s, "started")
                return self._settings(*self._devices_of(job))
        return []

    def _refused(self, event: Refused) -> list[Command]:
        if (lane := self._opening.pop(event.command, None)) is not None:
            lane.move(LaneState.CLOSED, event.at_s, event.error)
            for job in [job for job in self._waiting if self._never_fits(job)]:
                self._end(job, JobState.FAILED, event.at_s, event.error)
            return self._fill(event.at_s)
        if self._tuning.owns(event.command):
            return self._tuned(event)
        job = self._starting.pop(event.command)
        job.command = None
        self._leave(job)
        # A start that fails does so for a reason that lasts (no such interpreter): trying again is the owner's
        # decision, so it counts as a failure.
        job.failures += 1
        if job.state is JobState.STOPPING:
            self._end(job, JobState.CANCELLED, event.at_s, event.error)
        elif job.failures > job.spec.retries:
            self._end(job, JobState.FAILED, event.at_s, event.error)
        else:
            self._requeue(job, event.at_s, event.error)
        return self._fill(event.at_s)

    def _progressed(self, event: IterationsDone) -> list[Command]:
        job = self.jobs[event.job]
        job.usage = event.usage
        commands = [command for lane in job.lanes for command in self._shares(lane)]
        at_default = all(self._tuning.at_default(lane) for lane in job.lanes)
        if self._config.profile and not self.stopping and at_default and self._profiling.wants(job, event.at_s):
            command = next(self._ids)
            self._profiling.begin(command, job)
            commands.append(ProfileJob(command, job.spec.name, job.attempt))
            return commands
        return commands + self._settings(*self._devices_of(job))

    def _exited(self, event: JobExited) -> list[Command]:
        job = self.jobs[event.job]
        job.usage = event.usage
        devices = self._devices_of(job)
        if job.command is not None:  # the word of its start was lost with its supervisor
            del self._starting[job.command]
            job.command = None
        self._leave(job)
        cause = event.reason or event.outcome.value
        if event.outcome is Outcome.COMPLETED:
            self._end(job, JobState.COMPLETED, event.at_s, cause)
        elif self._again(job, event.outcome):
            self._requeue(job, event.at_s, cause)
        elif event.outcome in (Outcome.STOPPED, Outcome.LOST) and self.stopping:
            self._end(job, JobState.CANCELLED, event.at_s, cause)
        else:
            self._end(job, JobState.FAILED, event.at_s, cause)
        suspects: list[Command] = []
        if event.outcome is Outcome.CRASHED and self._config.shared_context:
            suspects = self._restart_neighbours(job, event)
        return suspects + self._fill(event.at_s) + self._settings(*devices)

    def _again(self, job: Job, outcome: Outcome) -> bool:
        """Whether an attempt that ended like this is followed by another; keeps the counts."""
        if self.stopping:
            return False
        if outcome is Outcome.STOPPED:
            return job.again
        if outcome is Outcome.LOST:
            job.losses += 1
            return job.losses <= MOST_LOSSES
        if outcome is Outcome.OUT_OF_MEMORY and not job.whole_lane and job.demand.peak_bytes < self._largest_lane():
            job.whole_lane = True
            return True
        if outcome in _FAILURES:
            job.failures += 1
            return job.failures <= job.spec.retries
        return False

    def _restart_neighbours(self, culprit: Job, event: JobExited) -> list[Command]:
        """Jobs whose context the culprit's unclean death may have corrupted begin again."""
        devices = {lane.device.name for lane in culprit.lanes}
        reason = f"suspect: {culprit.spec.name} died beside it ({event.reason})"
        commands: list[Command] = []
        for lane in self.lanes.values():
            if lane.device.name not in devices:
                continue
            for job in lane.jobs.values():
                if job.state in (JobState.STARTING, JobState.RUNNING):
                    job.again = True
                    job.move(JobState.STOPPING, event.at_s, reason)
                    commands.append(KillJob(next(self._ids), job.spec.name, job.attempt, True, reason))
        return commands

    def _stop(self, event: StopRequested) -> list[Command]:
        self.stopping = True
        for job in list(self._waiting):
            self._end(job, JobState.CANCELLED, event.at_s, "the run was stopped")
        commands: list[Command] = []
        for job in self._running():
            job.again = False
            if job.state is not JobState.STOPPING:
                job.move(JobState.STOPPING, event.at_s, "the run was stopped")
            elif not event.at_once:
                continue
            commands.append(KillJob(next(self._ids), job.spec.name, job.attempt, event.at_once, "the run was stopped"))
        return commands

    def _fill(self, at_s: float) -> list[Command]:
        """Start every waiting job that has a place now; not before the last lane is there: the first would get all."""
        commands: list[Command] = []
        touched: dict[int, Lane] = {}
        while not self.stopping and not self._opening and (found := self._first_that_fits()) is not None:
            job, lanes, demand = found
            self._waiting.remove(job)
            job.lanes, job.demand = lanes, demand
            job.attempt += 1
            job.command = next(self._ids)
            self._starting[job.command] = job
            job.move(JobState.STARTING, at_s, f"attempt {job.attempt} in {[lane.number for lane in lanes]}")
            for lane in lanes:
                lane.jobs[job.spec.name] = job
                touched[lane.number] = lane
            numbers = tuple(lane.number for lane in lanes)
            commands.append(StartJob(job.command, job.spec.name, job.attempt, numbers, self._cap(job, lanes)))
        for lane in touched.values():
            commands += self._shares(lane)
        return commands

    def _first_that_fits(self) -> tuple[Job, tuple[Lane, ...], MemoryDemand] | None:
        passed: list[Job] = []
        kept: set[int] = set()
        for job in self._waiting.heads():
            lanes = self._lanes_for(job, kept)
            if lanes:
                for each in passed:
                    each.passed += 1
                return job, lanes, self._demand(job, lanes[0])
            if not self._policy.backfill:
                return None
            passed.append(job)
            if job.passed >= MOST_PASSED:
                kept.update(lane.number for lane in self._emptiest(job))
        return None

    def _lanes_for(self, job: Job, kept: set[int]) -> tuple[Lane, ...]:
        """One lane on each of `gpus` devices of one node, the policy's favourites; empty where there is no room.

        A gang holds its lanes whole: its members must have their turns together, or their collectives would wait
        for each other.

        Args:
            kept: Lanes in which room is kept for a job that has waited for long.
        """
        gang = job.spec.gpus > 1
        free = (
            lane
            for lane in sorted(self.lanes.values(), key=self._policy.lane)
            if lane.number not in kept
            and not self._profiling.occupies(lane)
            and not self._holds_gang(lane)
            and not (gang and lane.jobs)
            and lane.takes(self._demand(job, lane))
        )
        return _one_on_each_device(free, job.spec.gpus)

    def _emptiest(self, job: Job) -> tuple[Lane, ...]:
        """The lanes that will be free for a job first, if nobody else is let in: those with the fewest jobs."""
        open_lanes = [lane for lane in self.lanes.values() if lane.state is LaneState.OPEN]
        return _one_on_each_device(sorted(open_lanes, key=lambda lane: (len(lane.jobs), lane.number)), job.spec.gpus)

    def _never_fits(self, job: Job) -> str | None:
        """Why the job could not start even in an empty cluster, or None where it could."""
        lanes = [lane for lane in self.lanes.values() if lane.state is not LaneState.CLOSED]
        nodes = Counter(node for node, _ in {(lane.device.node, lane.device.name) for lane in lanes})
        if job.spec.gpus > max(nodes.values(), default=0):
            return f"needs {job.spec.gpus} devices of one node, and {max(nodes.values(), default=0)} can be had"
        largest_bytes = max(lane.budget_bytes for lane in lanes)
        if job.spec.memory is not None and job.spec.memory.peak_bytes > largest_bytes:
            return f"needs {job.spec.memory.peak_bytes} bytes, and the largest lane has {largest_bytes}"
        return None

    @staticmethod
    def _holds_gang(lane: Lane) -> bool:
        return any(job.spec.gpus > 1 for job in lane.jobs.values())

    def _demand(self, job: Job, lane: Lane) -> MemoryDemand:
        """What the job must be granted there: its profile's demand, else an equal share of the lane."""
        if job.whole_lane or job.spec.gpus > 1:
            return MemoryDemand(lane.budget_bytes)
        demand = self._measured(job) or MemoryDemand(lane.budget_bytes // lane.places)
        return demand if demand.peak_bytes <= lane.budget_bytes else MemoryDemand(lane.budget_bytes)

    def _measured(self, job: Job) -> MemoryDemand | None:
        return self._profiling.memory.get(job.spec.job_class) or job.spec.memory

    def _cap(self, job: Job, lanes: tuple[Lane, ...]) -> int:
        if job.demand == self._measured(job):
            return cap_bytes(job.demand, min(lane.budget_bytes for lane in lanes))
        return job.demand.peak_bytes

    def _largest_lane(self) -> int:
        return max((lane.budget_bytes for lane in self.lanes.values()), default=0)

    def _tuned(self, event: Done | Refused | TrialMeasured | Advised) -> list[Command]:
        """A command of the tuning has been answered."""
        device = self._tuning.device_of(event.command)
        if self.stopping:
            return []
        return self._tuning.answered(event, self._devices[device]) + self._settings(device)

    def _settings(self, *devices: str) -> list[Command]:
        """What follows from the packings of these devices, or of all."""
        if self.stopping or not self._tuning.active:
            return []
        commands: list[Command] = []
        for name in devices or self._devices:
            ready = self._config.search and self._is_ready(name)
            commands += self._tuning.look(name, self._devices[name], ready)
        return commands

    def _is_ready(self, device: str) -> bool:
        """Whether nobody is about to come or to be measured there: a packing that is searched should last."""
        if self._starting or len(self._waiting):
            return False
        lanes = self._devices[device]
        return not any(self._profiling.occupies(lane) for lane in lanes) and all(
            self._profiling.settled(job) for lane in lanes for job in lane.jobs.values()
        )

    @staticmethod
    def _devices_of(job: Job) -> tuple[str, ...]:
        return tuple(lane.device.name for lane in job.lanes)

    def _shares(self, lane: Lane) -> list[Command]:
        """`SetShares` where the order of the lane's jobs has changed; ranks are sent as small whole numbers."""
        ranks = {name: self._policy.rank(job) for name, job in lane.jobs.items()}
        dense = {rank: place for place, rank in enumerate(sorted(set(ranks.values())))}
        shares = tuple(Share(name, dense[rank], 1.0) for name, rank in ranks.items())
        if shares == lane.shares_sent or not shares:
            return []
        lane.shares_sent = shares
        return [SetShares(next(self._ids), lane.number, shares)]

    @staticmethod
    def _leave(job: Job) -> None:
        """Free the job's places. The claims of those who stay keep their order, so nothing is sent."""
        for lane in job.lanes:
            del lane.jobs[job.spec.name]

    def _requeue(self, job: Job, at_s: float, cause: str) -> None:
        job.move(JobState.QUEUED, at_s, cause)
        job.again = False
        job.earlier_s += job.usage.held_s
        job.usage = Usage()
        job.lanes = ()
        self._waiting.add(job)

    def _end(self, job: Job, state: JobState, at_s: float, cause: str) -> None:
        if job.state is JobState.QUEUED:
            self._waiting.remove(job)
        job.move(state, at_s, cause)
        self._live -= 1

    def _running(self) -> list[Job]:
        """Jobs that hold a place, each once, in the order of the lanes."""
        return list({job.spec.name: job for lane in self.lanes.values() for job in lane.jobs.values()}.values())


def _one_on_each_device(lanes: Iterable[Lane], gpus: int) -> tuple[Lane, ...]:
    """The first lanes that make up so many devices of one node; empty where there are not so many."""
    nodes: dict[str, dict[str, Lane]] = {}
    for lane in lanes:
        chosen = nodes.setdefault(lane.device.node, {})
        chosen.setdefault(lane.device.name, lane)
        if len(chosen) == gpus:
            return tuple(chosen.values())
    return ()
