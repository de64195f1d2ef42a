"""Trial packing: two jobs are co-located on trial, and the newcomer gives way if the packing does not pay."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from itertools import combinations

from ecoshare.base.attempt import Usage
from ecoshare.core.placement.admission import Admission
from ecoshare.core.placement.job_queue import demand
from ecoshare.core.placement.lane_index import Fits, LaneIndex
from ecoshare.core.placement.steps import GiveWay, Park, Step
from ecoshare.core.placement.strategy import PlacementParts, PlacementStrategy
from ecoshare.core.policies.base import NeighbourRate, TrialPackingPolicy
from ecoshare.core.records import Job, JobState, Lane

FEWEST = 20
"""Least iterations of an interval that gives an iteration time: the ends of an interval lie inside iterations."""


class Rates:
    """Rates of jobs, in the time of a typical device of the run, so that jobs of one class can be compared.

    ::

        reports  ·····│······│······│
                      └─ interval ──┘   iterations and turn time between two reports among the same neighbours

    A mean over the whole attempt would mix the rates before and after a neighbour came.
    """

    def __init__(self) -> None:
        self._since: dict[Job, Usage] = {}
        self._alone_s: dict[Job, float] = {}
        self._class_alone_s: dict[str, float] = {}

    def begin(self, job: Job) -> None:
        """Begin an interval of a job with its present usage, unless it has one."""
        self._since.setdefault(job, job.usage)

    def has_begun(self, job: Job) -> bool:
        """Whether the job has an interval."""
        return job in self._since

    def cut(self, job: Job) -> None:
        """End the interval of a job, because its neighbours have changed."""
        self._since.pop(job, None)

    def forget(self, job: Job) -> None:
        """Forget a job: its attempt is over."""
        self.cut(job)
        self._alone_s.pop(job, None)

    def was_alone(self, job: Job) -> None:
        """Note that a job had no neighbour in its interval so far. The interval goes on."""
        iterations, iteration_s = self._window(job)
        if iterations >= FEWEST:
            self._alone_s[job] = self._class_alone_s[job.spec.job_class] = iteration_s

    def beside(self, job: Job) -> NeighbourRate:
        """Rate of a job beside its neighbour in its interval."""
        iterations, iteration_s = self._window(job)
        alone_s = self._expected_s(job)
        return NeighbourRate(job, iterations, None if alone_s is None or iteration_s <= 0.0 else alone_s / iteration_s)

    def _expected_s(self, job: Job) -> float | None:
        """Time (s) of an iteration alone; None if unknown.

        The value is that of this attempt, else the last one of its class, else that of the job's specification.
        """
        if job in self._alone_s:
            return self._alone_s[job]
        if (seen_s := self._class_alone_s.get(job.spec.job_class)) is not None:
            return seen_s
        if job.spec.service_s is None or not job.spec.iterations:
            return None
        return job.spec.service_s / job.spec.iterations

    def _window(self, job: Job) -> tuple[int, float]:
        """Number of iterations in the interval of a job, and the time (s) of one; zeros if there is none."""
        since = self._since.get(job)
        if since is None:
            return 0, 0.0
        iterations = job.usage.iterations - max(1, since.iterations)  # time counts from the first boundary
        passed_s = (job.usage.span_s - job.usage.waited_s) - (since.span_s - since.waited_s)
        speed = job.lanes[0].device.speed(job.spec.job_class)
        return (iterations, passed_s / iterations * speed) if iterations > 0 else (0, 0.0)


class TrialPacking:
    """Finder of places for a trial-packing policy. It asks the policy to judge each packing.

    ::

        device 0   lane 0  A ████████████████████      no device is empty, so B is co-located with A on trial;
                   lane 1        B ████████│           the rates of both show that it does not pay, and B gives way
        device 1   lane 0  C ████████████████████
                   lane 1                  B ██████    B is co-located with C on trial, or waits for an empty device

    Only jobs of one device and of one phase are packed on trial: the speed of other jobs changes by itself, so the
    cause of a slowdown would be unknown.
    """

    def __init__(
        self, policy: TrialPackingPolicy, lane_index: LaneIndex, crowds: bool, gives_way: Callable[[Job], bool]
    ) -> None:
        """Trial packing without jobs.

        Args:
            policy: Policy that judges the packings.
            lane_index: Index of the lanes.
            crowds: Whether a device may have more than two jobs: lanes of several places, or more than two lanes.
            gives_way: Whether a job can give up its place now.
        """
        self._policy, self._lane_index, self._crowds = policy, lane_index, crowds
        self._gives_way = gives_way
        self._rates = Rates()
        self._on: dict[str, dict[Job, None]] = {}  # jobs with a place, by device, in the order in which they came
        self._single: dict[str, dict[str, Job]] = {}  # jobs with a device to themselves, by class and device
        self._open: dict[str, tuple[Job, Job]] = {}  # open trial packings by device: first job, newcomer

    @property
    def has_room(self) -> bool:
        """Whether any job could get a place."""
        return self._has_idle or bool(self._single) or (self._crowds and self._lane_index.has_places)

    @property
    def _has_idle(self) -> bool:
        return len(self._on) < len(self._lane_index.devices)

    def find(self, job: Job, fits: Fits, kept: Container[int]) -> tuple[Lane, ...]:
        """Lanes for a job: on empty devices, else beside a lone job on trial, else beside jobs known to gain."""
        if self._has_idle:
            lanes = self._lane_index.find(job, lambda lane: lane.device.name not in self._on and fits(lane), kept)
            if lanes:
                return lanes
        if job.spec.gpus > 1:
            return ()
        for lane in self._beside(job):
            if lane.number not in kept and fits(lane):
                return (lane,)
        if not self._crowds:
            return ()
        return self._lane_index.find(job, lambda lane: self._is_certain(job, lane) and fits(lane), kept)

    def takes(self, job: Job) -> None:
        """Note that a job gets its places."""
        for lane in job.lanes:
            self._unlist(lane.device.name)
            self._on.setdefault(lane.device.name, {})[job] = None
            self._list(lane.device.name)

    def started(self, job: Job) -> None:
        """Note that a job runs from now on. A trial packing begins if the gain beside its one neighbour is unknown."""
        self._change(job)
        device = job.lanes[0].device.name
        others = [each for each in self._on[device] if each is not job]
        if not self._neighbours(job):
            self._rates.begin(job)
        elif len(others) == 1 and others[0].state is JobState.RUNNING and not self._is_paid(job, others[0]):
            self._open[device] = others[0], job

    def told(self, job: Job, settled: bool) -> tuple[bool, Job | None]:
        """Note progress of a running job.

        Args:
            job: Job that has made progress.
            settled: Whether the device is at its default setting and no job or setting is measured there.

        Returns:
            Whether a trial packing is over, and the job that must give way; None if none must.
        """
        device = job.lanes[0].device.name
        trial = self._open.get(device)
        if not settled:
            for each in self._on[device]:
                self._rates.cut(each)
        elif not self._neighbours(job):
            self._rates.begin(job)
            self._rates.was_alone(job)
        elif trial is not None and job.usage.iterations:
            first, newcomer = trial
            if job is newcomer or self._rates.has_begun(newcomer):  # before that, its neighbour was warming up
                self._rates.begin(job)
            fails = self._policy.judge(self._rates.beside(first), self._rates.beside(newcomer))
            if fails or self._is_paid(first, newcomer):
                del self._open[device]
                return True, newcomer if fails and self._gives_way(newcomer) else None
        return False, None

    def left(self, job: Job) -> None:
        """Note that a job leaves its places."""
        if self._rates.has_begun(job) and not self._neighbours(job):
            self._rates.was_alone(job)
        self._change(job)
        self._rates.forget(job)
        for lane in job.lanes:
            self._unlist(lane.device.name)
            del self._on[lane.device.name][job]
            self._list(lane.device.name)

    def _change(self, job: Job) -> None:
        """End the trial packings and intervals on the devices of a job, because the neighbours change."""
        for lane in job.lanes:
            self._open.pop(lane.device.name, None)
            for each in self._on[lane.device.name]:
                self._rates.cut(each)

    def _neighbours(self, job: Job) -> bool:
        """Whether another job runs or stops in another lane of its devices."""
        return any(
            each is not job and (each.state is JobState.RUNNING or each.state.is_leaving) and job.lanes != each.lanes
            for lane in job.lanes
            for each in self._on[lane.device.name]
        )

    def _beside(self, job: Job) -> Iterator[Lane]:
        """Empty lanes beside lone jobs that a job may be packed with on trial, in the order of the policy."""
        if not _is_steady(job):
            return
        keys = {}
        for name, devices in self._single.items():
            other = next(iter(devices.values()))
            if (key := self._policy.beside(job, other)) is not None:
                keys[name] = (key, other.number)
        for name in sorted(keys, key=keys.__getitem__):
            for device in self._single[name]:
                yield from (lane for lane in self._lane_index.devices[device] if not lane.jobs)

    def _is_certain(self, job: Job, lane: Lane) -> bool:
        """Whether all jobs that would run in different lanes of the device are known to gain from it."""
        places = [(job, lane)]
        places += [(each, at) for at in self._lane_index.devices[lane.device.name] for each in at.jobs.values()]
        return all(
            one_lane is other_lane or self._is_paid(one, other)
            for (one, one_lane), (other, other_lane) in combinations(places, 2)
        )

    def _is_paid(self, one: Job, other: Job) -> bool:
        return _is_steady(one) and _is_steady(other) and self._policy.pays(one, other)

    def _list(self, device: str) -> None:
        """Update the lists after the jobs of a device have changed."""
        if not self._on[device]:
            del self._on[device]
        elif (job := self._lone(device)) is not None:
            self._single.setdefault(job.spec.job_class, {})[device] = job

    def _unlist(self, device: str) -> None:
        """Take a device out of the lists before its jobs change."""
        if (job := self._lone(device)) is not None:
            devices = self._single[job.spec.job_class]
            del devices[device]
            if not devices:
                del self._single[job.spec.job_class]

    def _lone(self, device: str) -> Job | None:
        """Job that has a device to itself and may be packed on trial; None if there is none."""
        jobs = self._on.get(device, {})
        if len(jobs) != 1 or len(self._lane_index.devices[device]) == 1:
            return None
        job = next(iter(jobs))
        return job if _is_steady(job) else None


def trial_class(job: Job) -> tuple[object, ...]:
    """Resource class of a waiting job: its demand, and its class if the job may be packed on trial."""
    return (*demand(job), job.spec.job_class if _is_steady(job) else None)


def _is_steady(job: Job) -> bool:
    """Whether a job may be packed on trial: it has one device and at most one phase."""
    return job.spec.gpus == 1 and len(job.spec.phases) <= 1


class TrialPlacement(PlacementStrategy):
    """Strategy of a policy that packs on trial.

    Attributes:
        trial_packing: Open trial packings, and the search for a place beside another job.
    """

    watches_neighbours = True

    def __init__(self, parts: PlacementParts, policy: TrialPackingPolicy, crowds: bool) -> None:
        """Strategy without jobs.

        Args:
            parts: Parts of the run.
            policy: Policy that judges the packings.
            crowds: Whether a device may have more than two jobs: lanes of several places, or more than two lanes.
        """
        super().__init__(parts, trial_class)
        self.trial_packing = TrialPacking(policy, self.lane_index, crowds, self._gives_way)
        self._admission = Admission(self.policy, self.waiting, self.lane_index, self.fit, self.trial_packing)

    def takes(self, job: Job, fused: bool) -> None:
        """Note that a job of the queue has got its places."""
        super().takes(job, fused)
        self.trial_packing.takes(job)

    def started(self, job: Job, at_s: float) -> Iterator[Step]:
        """Steps after a job has begun to run. A trial packing may begin."""
        self.trial_packing.started(job)
        return super().started(job, at_s)

    def progressed(self, job: Job, settled: bool, at_s: float) -> Iterator[Step]:
        """Steps after a job has told its progress. A decided trial packing opens its lanes to more jobs."""
        if self._state.stopping or job.state is not JobState.RUNNING:
            return
        settled = settled and not any(self.profiling.occupies(lane) for lane in job.lanes)
        is_over, loser = self.trial_packing.told(job, settled)
        if loser is not None:
            reason = "the two were slower beside each other than in turn"
            yield Park(loser, None, reason) if self.host.may_park(loser) else GiveWay([loser], None, reason)
        elif is_over:
            yield from self.fill(at_s)

    def _gives_way(self, job: Job) -> bool:
        return job.state is JobState.RUNNING and (job.spec.movable or self.host.may_park(job))

    def left(self, job: Job) -> None:
        """Note that a job is about to leave its places."""
        self.trial_packing.left(job)

    def _walk(self, at_s: float, newcomer: Job | None) -> Iterator[Step]:
        return self._admission.walk(at_s)
