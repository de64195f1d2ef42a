"""A job of a trace in the simulator: its description for the core, its state, and its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from ecoshare.base.class_profile import Solo
from ecoshare.base.job_spec import JobSpec, SweepSpec
from ecoshare.core.commands import ParkJob, ResumeJob, StartJob
from ecoshare.core.events import Config, Event, Parked, Resumed, SweepOpened
from ecoshare.core.records import Job
from ecoshare.lane.serving.request_intervals import RequestInterval
from ecoshare.record.results.service_summary import service_summary
from ecoshare.simulation.cluster import Cluster
from ecoshare.simulation.result import Finished, UsageIntegrals
from ecoshare.simulation.simulated_attempt import ServiceAttempt, SimulatedAttempt, SimulatedRequests, expected_s
from ecoshare.simulation.traces.job_trace import Trace, TraceJob, TraceSweep, TraceTrial
from ecoshare.simulation.world import Truth


@dataclass(slots=True)
class SimulatedJob:
    """A job that has arrived and not ended.

    Attributes:
        left_s: Work (s) left for the next attempt.
        work_s: Work (s) of the whole job.
        arrival_s: Time (s) of arrival; for a trial, the time at which its sampler was asked for it.
        demand_s: `UsageIntegrals.demand_s` at the arrival.
        sweep: Sweep that the trial belongs to; empty if the job is no trial.
        curve: Values that the trial reports.
        reported: Number of values reported so far.
        start_s: Time (s) at which the first attempt was started; infinite before.
        placed_s: Time (s) for which earlier attempts had a place.
        since_s: Time (s) at which the present attempt got a place.
        seat: The present attempt; None if there is none.
        served_s: Time (s) for which earlier attempts of a service had the turn.
        intervals: Records of the requests in earlier attempts of a service.
    """

    job: TraceJob
    left_s: float
    work_s: float
    arrival_s: float
    demand_s: float
    sweep: str = ""
    curve: tuple[float, ...] = ()
    reported: int = 0
    start_s: float = math.inf
    placed_s: float = 0.0
    since_s: float = 0.0
    attempts: int = 0
    seat: SimulatedAttempt | None = None
    served_s: float = 0.0
    intervals: list[RequestInterval] = field(default_factory=list)

    def begin(self, command: StartJob, now_s: float) -> SimulatedAttempt:
        """Begin an attempt. The requests of a service begin anew."""
        job, attempt, lanes, seed = self.job, command.attempt, command.lanes, f"{self.job.name}/{command.attempt}"
        if job.service is None:
            left_s = self.left_s
            seat = SimulatedAttempt(job, attempt, lanes, left_s, left_s, self.work_s, command.cap_bytes)
        else:
            requests = SimulatedRequests(job, seed)
            seat = ServiceAttempt(job, attempt, lanes, 0.0, 0.0, 0.0, command.cap_bytes, requests=requests)
        seat.steps, seat.reported = len(self.curve), self.reported
        self.seat, self.since_s, self.attempts = seat, now_s, command.attempt
        return seat

    def end(self, seat: SimulatedAttempt, now_s: float) -> None:
        """End an attempt. A service closes: requests without an answer fail."""
        self.seat = None
        self.placed_s += now_s - self.since_s
        if isinstance(seat, ServiceAttempt):
            seat.requests.close(now_s)
            self.served_s += seat.held_s
            self.intervals += seat.requests.intervals
        else:
            self.left_s = seat.left_s

    def result(self, account: UsageIntegrals, gpus: int, now_s: float) -> Finished:
        """Result of the job, which ends now.

        Args:
            account: Integrals of the demand for GPUs.
            gpus: Number of GPUs of the cluster.
            now_s: Present time (s).
        """
        service, passed_s = self.job.service, now_s - self.arrival_s
        wanted = (account.demand_s - self.demand_s) / passed_s if passed_s > 0.0 else 0.0
        return Finished(
            name=self.job.name,
            arrival_s=self.arrival_s,
            start_s=self.start_s,
            finish_s=now_s,
            gpus=self.job.gpus,
            service_s=self.work_s - max(0.0, self.left_s) if service is None else self.served_s,
            placed_s=self.placed_s,
            attempts=self.attempts,
            contention=max(1.0, wanted / gpus),
            service=None if service is None else service_summary(service.p99_s, self.intervals, None),
        )


def spec_of(job: TraceJob, sweep: str, config: Config, cluster: Cluster, world: Truth, now_s: float) -> JobSpec:
    """Description of a job for the core. If the run profiles, the core knows no more than before the first window.

    Args:
        job: The job.
        sweep: Sweep that the trial belongs to; empty if the job is no trial.
        config: Configuration of the run.
        cluster: The cluster.
        world: Speeds and watts.
        now_s: Present time (s).
    """
    work_s, solo = job.service_s, world.solo(job, "", now_s)
    if len(job.phases) > 1:
        work_s = job.startup_s + expected_s(job, work_s - job.startup_s)
    return JobSpec(
        name=job.name,
        job_class=job.job_class,
        gpus=job.gpus,
        nodes=cluster.most_nodes(job),
        priority=job.priority,
        iterations=job.iterations,
        service_s=work_s if job.announced and job.service is None else None,
        phases=_epochs(job),
        active_w=None if config.profile else world.watts(job),
        movable=job.service is None,
        widest=1 + len(job.speedups),
        memory=None if config.profile else job.memory,
        profiled=not config.profile,
        solo=Solo(solo.family) if config.profile else solo,
        slowdown_limit=job.slowdown_limit,
        sweep=sweep,
        service=job.service,
        cuttable=job.is_cuttable,
    )


def _epochs(job: TraceJob) -> tuple[tuple[float, float], ...]:
    """Number of epochs and seconds of one epoch for each phase; empty if a phase counts no epochs."""
    if not job.announced or any(phase.epoch_iterations is None for phase in job.phases):
        return ()
    return tuple(
        (phase.iterations / phase.epoch_iterations, phase.iteration_s * phase.epoch_iterations)
        for phase in job.phases
        if phase.epoch_iterations is not None
    )


class SimulatedSweeps:
    """Sweeps of a trace."""

    def __init__(self, trace: Trace, later: Callable[[float, Callable[[float], Event | None]], None]) -> None:
        """No sweep is open yet.

        Args:
            trace: The trace.
            later: Tells the core an event at a time (s).
        """
        self._later = later
        self._sweeps = {sweep.name: sweep for sweep in trace.sweeps}
        self._unfinished = {sweep.name: len(sweep.trials) for sweep in trace.sweeps}

    @property
    def are_unfinished(self) -> bool:
        """Whether a trial has not ended."""
        return any(self._unfinished.values())

    def schedule(self) -> None:
        """Let each sweep that follows no other one open at its time."""
        for sweep in self._sweeps.values():
            if not sweep.after:
                self._later(sweep.opens_s, partial(_opened, sweep))

    def trial(self, sweep: str, number: int) -> TraceTrial | None:
        """Trial of a sweep with this number, from 0; None if there are no more."""
        trials = self._sweeps[sweep].trials
        return trials[number] if number < len(trials) else None

    def ended(self, sweep: str, now_s: float) -> None:
        """Note that a trial has ended. If it was the last one of its sweep, the sweeps after that one open."""
        self._unfinished[sweep] -= 1
        if not self._unfinished[sweep]:
            for each in self._sweeps.values():
                if each.after == sweep:
                    self._later(now_s, partial(_opened, each))


def _opened(sweep: TraceSweep, now_s: float) -> SweepOpened:
    return SweepOpened(now_s, SweepSpec(sweep.name, sweep.parallel, early_stopping=sweep.early_stopping))


GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class SimulatedParking:
    """Carries out commands that park and resume jobs.

    Attributes:
        transfer_s_per_gib: Time (s) in which a GiB moves, one way.
        jobs: Jobs that have arrived and not ended, by name.
        core_jobs: The same jobs as the core knows them.
        leave: Lets an attempt leave its lane.
        join: Lets an attempt join its lane.
        later: Calls a function at a time (s), and tells the event that it returns, if any.
    """

    transfer_s_per_gib: float
    jobs: Mapping[str, SimulatedJob]
    core_jobs: Mapping[str, Job]
    leave: Callable[[SimulatedAttempt, float], None]
    join: Callable[[SimulatedAttempt, float], None]
    later: Callable[[float, Callable[[float], Event | None]], None]

    def park(self, command: ParkJob, now_s: float) -> None:
        """Let a job leave its turn at once: in virtual time it need not reach a boundary first."""
        running, took_s = self.jobs[command.job], self._transfer_s(command.job)
        seat = running.seat
        assert seat is not None, "only a running job is parked"
        self.leave(seat, now_s)

        def parked(at_s: float) -> Parked | None:
            if seat.is_killed:  # the device failed meanwhile
                return None
            running.placed_s += at_s - running.since_s
            return Parked(at_s, command.id, seat.usage(), took_s)

        self.later(now_s + took_s, parked)

    def resume(self, command: ResumeJob, now_s: float) -> None:
        """Let a parked job join its lane again, when its memory is back."""
        running, took_s = self.jobs[command.job], self._transfer_s(command.job)
        seat = running.seat
        assert seat is not None, "a parked job has an attempt"
        running.since_s = now_s

        def resumed(at_s: float) -> Resumed | None:
            if seat.is_killed:
                return None
            self.join(seat, at_s)
            return Resumed(at_s, command.id, took_s)

        self.later(now_s + took_s, resumed)

    def _transfer_s(self, job: str) -> float:
        return self.transfer_s_per_gib * self.core_jobs[job].demand.persistent_bytes / GIB
