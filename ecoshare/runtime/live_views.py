"""Present state of a run, for displays: its jobs, devices and services."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ecoshare.base.attempt import Usage
from ecoshare.base.device import DeviceInfo
from ecoshare.base.plural import listed
from ecoshare.base.service import ServiceSpec
from ecoshare.core.records import Job, JobState, Step
from ecoshare.core.scheduler import Scheduler
from ecoshare.jobs.quantities import format_duration
from ecoshare.lane.serving.request_intervals import RECENT_S, RequestCounts, RequestInterval, percentiles_s
from ecoshare.record.accounts.alone_time import by_counters
from ecoshare.record.accounts.run_energy import LiveEnergy
from ecoshare.record.run_view import (
    LONG_WAIT_S,
    SILENT_S,
    DeviceView,
    JobView,
    LaneView,
    RunView,
    ServiceView,
    SweepView,
)
from ecoshare.runtime.job_arrivals import Arrivals
from ecoshare.runtime.live_sweeps import Sweeping
from ecoshare.runtime.nodes.run_node import NodeReadings
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.planning.planned_job import PlannedJob
from ecoshare.runtime.planning.planned_sweeps import PlannedSweep

_REFRESH_S = 5.0
"""Least time (s) between two percentiles: one takes some milliseconds, and a run may have many services."""


class RecentRequests:
    """Requests of one attempt of a service."""

    def __init__(self) -> None:
        """No request so far."""
        self._arrived = self._late = self._unanswered = 0
        self._recent: deque[RequestInterval] = deque()
        self._p99_s: float | None = None
        self._known_s = -math.inf  # time of the last percentile

    def add(self, found: Iterable[RequestInterval]) -> None:
        """Count the requests of new intervals."""
        for each in found:
            self._arrived += each.arrived
            self._late += each.late
            self._unanswered += each.failed + each.refused
            self._recent.append(each)

    def view(self, target_s: float, now_s: float) -> ServiceView:
        """View of the service.

        Args:
            target_s: Target (s) of the 99th percentile of latencies.
            now_s: Time (s) since the run was opened.
        """
        while self._recent and self._recent[0].at_s < now_s - RECENT_S:
            self._recent.popleft()
        if now_s - self._known_s >= _REFRESH_S:
            self._known_s = now_s
            (p99_s,) = percentiles_s(self._recent, (99.0,))
            self._p99_s = None if math.isnan(p99_s) else p99_s
        return ServiceView(target_s, self._arrived, self._late, self._unanswered, self._p99_s)


@dataclass(frozen=True, slots=True)
class DeviceViews:
    """Reads the devices of a run.

    Attributes:
        core: Scheduler of the run.
        devices: The devices.
        node: Readings of the machine of the run.
        energy: Joules so far.
    """

    core: Scheduler
    devices: Sequence[DeviceInfo]
    node: NodeReadings
    energy: LiveEnergy

    def present(self) -> tuple[DeviceView, ...]:
        """State of each device now, in the order of the plan."""
        return tuple(map(self._view, self.devices))

    def _view(self, device: DeviceInfo) -> DeviceView:
        now, reading = self.node.device(device.name), self.energy.device(device.name)
        sample = reading.sample if reading is not None else None
        lanes = tuple(
            LaneView(number, tuple(self.core.lanes[number].jobs), lane.holder)
            for number, lane in sorted(now.lanes.items())
            if number in self.core.lanes  # a segment of the log has no lanes of failed devices
        )
        return DeviceView(
            name=device.name,
            described=device.described,
            lanes=lanes,
            memory_total_bytes=device.memory_bytes,
            failed=now.failed,
            setting=now.setting,
            power_w=reading.power_w if reading is not None else None,
            energy_j=reading.energy_j if reading is not None else None,
            energy_source=reading.source if reading is not None else "",
            gpu_clock_mhz=sample.gpu_clock_mhz if sample is not None else None,
            memory_clock_mhz=sample.memory_clock_mhz if sample is not None else None,
            temperature_c=sample.temperature_c if sample is not None else None,
            busy=sample.busy if sample is not None else None,
            memory_bytes=sample.in_use_bytes if sample is not None else None,
        )


class ServiceViews:
    """Requests of the services of a run."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """No request so far.

        Args:
            now_s: Returns the time (s) since the run was opened.
        """
        self._now_s = now_s
        self._recent: dict[str, tuple[int, RecentRequests]] = {}  # number and requests of the last attempt
        self._counts: dict[str, RequestCounts] = defaultdict(RequestCounts)

    def hear(self, name: str, attempt: int, found: Sequence[RequestInterval]) -> None:
        """Count the requests of new intervals of a service.

        Args:
            name: Name of the service.
            attempt: Number of its attempt.
            found: The intervals.
        """
        last = self._recent.get(name)
        if last is None or last[0] != attempt:
            last = self._recent[name] = (attempt, RecentRequests())
        last[1].add(found)
        self._counts[name].add(found)

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the requests of all other services."""
        for kept in (self._recent, self._counts):
            for name in kept.keys() - names:
                del kept[name]

    def view(self, name: str, service: ServiceSpec) -> ServiceView:
        """Requests of the last attempt of a service, as far as they were heard."""
        _, recent = self._recent.get(name, (0, RecentRequests()))
        return recent.view(service.p99_s, self._now_s())

    def counts(self, name: str) -> RequestCounts:
        """Sums over the requests of a service in this session, as far as they were heard."""
        return self._counts[name]


@dataclass(frozen=True, slots=True)
class Viewing:
    """Reads the parts of a run.

    Attributes:
        plan: Plan of the run.
        devices: Devices of the run so far.
        core: Scheduler of the run.
        node: Readings of the machine of the run.
        sweeping: Sweeps of the run.
        services: Requests of the services.
        arrivals: Arrivals of the jobs.
        troubles: Present troubles of other parts in words, by subject.
    """

    plan: Plan
    devices: Sequence[DeviceInfo]
    core: Scheduler
    node: NodeReadings
    sweeping: Sweeping
    services: ServiceViews
    arrivals: Arrivals
    troubles: Mapping[str, str] = field(default_factory=dict)
    _unplaced: dict[str, tuple[Step | None, Usage, JobView]] = field(default_factory=dict)

    def run(self, at_s: float, warm: bool) -> RunView:
        """State of all jobs that were submitted, and of the trials that have not ended.

        Args:
            at_s: Time (s) since the run was opened.
            warm: Whether the warm server has loaded torch.
        """
        jobs = self.sweeping.jobs
        # Trials of earlier sessions that run again are among them. Those that have ended may be forgotten.
        own = {job.spec.name: job for job in self.plan.jobs if job.spec.name in jobs}
        own |= {name: job for name, job in jobs.items() if not job.spec.sweep}
        trials = (jobs[name] for name in self.sweeping.live if name not in own)
        return RunView(
            at_s=at_s,
            jobs=(*map(self._job, own.values()), *map(self._view, trials)),
            sweeps=tuple(self._sweep(sweep) for sweep in self.arrivals.sweeps.values()),
            stopping=self.core.stopping,
            warm=warm,
            warnings=self.warnings(),
        )

    def warnings(self) -> dict[str, str]:
        """Present troubles in words, by subject: those of other parts, and turns that are held without an iteration."""
        found = dict(self.troubles)
        readings = {name: self.node.attempt(name) for name in self.node.in_progress}
        for name, held in readings.items():
            if held.silent_s < SILENT_S:
                continue
            lanes = set(held.turns)
            waiting = [each for each, own in readings.items() if own.waits_s >= SILENT_S and lanes & set(own.lanes)]
            if waiting:
                found[f"turn of {name}"] = self._held_turn(name, held.silent_s, waiting)
        return found

    def _held_turn(self, name: str, silent_s: float, waiting: Sequence[str]) -> str:
        planned = self.sweeping.jobs.get(name)
        is_service = planned is not None and planned.spec.service is not None
        what = "in one call" if is_service else "without the end of an iteration"
        waits = f"{listed(waiting)} {'waits' if len(waiting) == 1 else 'wait'}"
        words = f"{name} has had its turn for {format_duration(round(silent_s))} {what}, and {waits}"
        if self.plan.queue:
            return f"{words}: `ecoshare cancel {name} --now --queue {self.plan.queue}` ends it"
        return f"{words}: `timeout:` in its job file would end it"

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the views of all other jobs."""
        for name in self._unplaced.keys() - names:
            del self._unplaced[name]

    def job(self, name: str) -> JobView | None:
        """State of one job; None if there is none of this name."""
        planned = self.sweeping.jobs.get(name)
        return None if planned is None else self._job(planned)

    def sweep(self, name: str) -> SweepView | None:
        """State of one sweep; None if there is none of this name."""
        sweep = self.arrivals.sweeps.get(name)
        return None if sweep is None else self._sweep(sweep)

    def _sweep(self, sweep: PlannedSweep) -> SweepView:
        ended = self.sweeping.ended_in[sweep.name]
        return SweepView(
            name=sweep.name,
            trials=sweep.options.count,
            ended={state.value: ended[state] for state in JobState if ended[state]},
            best=self.sweeping.best.get(sweep.name),
        )

    def _job(self, planned: PlannedJob) -> JobView:
        """View of a job of the file. Without a place, a job changes with a move only: its last view holds."""
        name = planned.spec.name
        job, known = self.core.jobs.get(name), self._unplaced.get(name)
        if name in self.arrivals.names_to_come:
            return self._view(planned)
        if job is None and known is not None and JobState(known[2].state).ended:
            return known[2]  # a segment of the log has begun since then
        if job is None or name in self.node.in_progress:
            return self._view(planned)
        step, usage = job.history[-1] if job.history else None, job.usage
        if known is None or known[0] is not step or known[1] is not usage:
            known = self._unplaced[name] = (step, usage, self._view(planned))
        return known[2]

    def _view(self, planned: PlannedJob) -> JobView:
        name, is_learned = planned.spec.name, planned.learned is not None
        job = self.core.jobs.get(name)
        if job is None:
            reason = self.arrivals.never.get(name, "")
            return JobView(
                name,
                JobState.CANCELLED.value if reason else "arriving",
                (),
                False,
                0,
                0,
                planned.spec.iterations,
                None,
                None,
                reason=reason,
                is_learned=is_learned,
                waits_for=self.arrivals.gate.waits_for(name),
            )
        reading = self.node.attempt(name) if name in self.node.in_progress else None
        service, usage = planned.spec.service, job.usage if reading is None else reading.usage
        done, total = usage.done, planned.spec.iterations
        iterations = job.earlier_iterations + int(job.counts_for * usage.iterations)
        alone = by_counters(usage, self.plan.lanes, None)
        is_known = done > 1 and usage.span_s > 0 and service is None
        waits_s = 0.0 if reading is None or reading.waits_s < LONG_WAIT_S else reading.waits_s
        rate = job.counts_for * (done - 1) / usage.span_s if is_known and not waits_s else None
        if is_learned and total is not None and iterations > total:
            total = None
        return JobView(
            name=name,
            state=JobState.QUEUED.value if job.resumable and self.plan.queue else job.state.value,
            lanes=tuple(lane.number for lane in job.lanes) if reading is not None else (),
            holding=reading is not None and reading.holding,
            iterations=iterations,
            eval_iterations=usage.eval_iterations,
            total=total,
            rate=rate,
            slowdown=alone.slowdown if alone is not None and service is None else None,
            reason=job.history[-1].cause if job.state is JobState.FAILED else "",
            is_learned=is_learned,
            devices=job.device_names if reading is not None and len(self.devices) > 1 else (),
            service=self.services.view(name, service) if service is not None else None,
            metric=self.sweeping.metric_of(name),
            by_steps=usage.by_steps,
            turn_wait_s=waits_s,
            behind=self._holders(job) if waits_s else (),
        )

    def _holders(self, job: Job) -> tuple[str, ...]:
        """Other jobs that have a turn on the devices of a job."""
        lanes = (lane for device in job.device_names for lane in self.node.device(device).lanes.values())
        return tuple(dict.fromkeys(lane.holder for lane in lanes if lane.holder and lane.holder != job.spec.name))
