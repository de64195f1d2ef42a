"""Where a job is tried beside another one, in lanes of one device, and whether that is undone.

::

    device 0   lane 0  A ████████████████████      nobody waits and no device is empty: B, of another class, is tried
               lane 1        B ████████│           beside A; told of both, the policy finds that it does not pay, and B
    device 1   lane 0  C ████████████████████      gives way
               lane 1                  B ██████    it is tried beside C instead, or waits for an empty device

Only jobs of one device whose speed does not change by itself are tried: of others nobody could say what slowed them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import combinations

from ecoshare.core.placement.job_queue import demand
from ecoshare.core.placement.lane_index import Fits, LaneIndex
from ecoshare.core.placement.observed_rates import Rates
from ecoshare.core.policies.base import TrialPackingPolicy
from ecoshare.core.records import Job, Lane
from ecoshare.core.states import JobState


class TrialPacking:
    """Finds places for a policy that tries, and asks it what came of each trial."""

    def __init__(self, policy: TrialPackingPolicy, room: LaneIndex, crowds: bool) -> None:
        """Nobody is there.

        Args:
            crowds: Whether a device may have more than two jobs: lanes of several places, or more than two lanes.
        """
        self._policy, self._room, self._crowds = policy, room, crowds
        self._rates = Rates()
        self._on: dict[str, dict[Job, None]] = {}  # by device, who has a place there, in the order in which they came
        self._single: dict[str, dict[str, Job]] = {}  # by class and device, those that have their device to themselves
        self._open: dict[str, tuple[Job, Job]] = {}  # by device, who was there and who came

    @property
    def has_room(self) -> bool:
        """Whether there is a place at all, for somebody."""
        return self._has_idle or bool(self._single) or (self._crowds and self._room.has_places)

    @property
    def _has_idle(self) -> bool:
        return len(self._on) < len(self._room.devices)

    def line(self, job: Job) -> tuple[object, ...]:
        """What jobs that wait have in common where one of them has no place if another has none."""
        return (*demand(job), job.spec.job_class if _is_steady(job) else None)

    def find(self, job: Job, fits: Fits, kept: Container[int]) -> tuple[Lane, ...]:
        """Lanes for a job: of empty devices, else beside another job, else where nobody's neighbours are uncertain."""
        if self._has_idle:
            lanes = self._room.find(job, lambda lane: lane.device.name not in self._on and fits(lane), kept)
            if lanes:
                return lanes
        if job.spec.gpus > 1:
            return ()
        for lane in self._beside(job):
            if lane.number not in kept and fits(lane):
                return (lane,)
        if not self._crowds:
            return ()
        return self._room.find(job, lambda lane: self._is_certain(job, lane) and fits(lane), kept)

    def keep(self, lanes: tuple[Lane, ...]) -> Iterator[int]:
        """Numbers of all lanes of the devices of these: whoever they are kept for needs an empty device."""
        return (each.number for lane in lanes for each in self._room.devices[lane.device.name])

    def takes(self, job: Job) -> None:
        """A job gets its places."""
        for lane in job.lanes:
            self._unlist(lane.device.name)
            self._on.setdefault(lane.device.name, {})[job] = None
            self._list(lane.device.name)

    def started(self, job: Job) -> None:
        """It runs from now on; a trial begins where it is beside one other job, and nobody knows how that goes."""
        self._change(job)
        device = job.lanes[0].device.name
        others = [each for each in self._on[device] if each is not job]
        if not self._neighbours(job):
            self._rates.begin(job)
        elif len(others) == 1 and others[0].state is JobState.RUNNING and not self._is_paid(job, others[0]):
            self._open[device] = others[0], job

    def told(self, job: Job, settled: bool) -> tuple[bool, Job | None]:
        """There is news of a job that runs; returns whether a trial is over by it, and who must give way.

        Args:
            settled: Its device is as it was found, and nobody is measured there.
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
            if job is newcomer or self._rates.has_begun(newcomer):  # before that, it was beside one that warmed up
                self._rates.begin(job)
            fails = self._policy.judge(self._rates.beside(first), self._rates.beside(newcomer))
            if fails or self._is_paid(first, newcomer):
                del self._open[device]
                moves = fails and newcomer.spec.movable and newcomer.state is JobState.RUNNING
                return True, newcomer if moves else None
        return False, None

    def left(self, job: Job) -> None:
        """A job leaves its places."""
        if self._rates.has_begun(job) and not self._neighbours(job):
            self._rates.was_alone(job)
        self._change(job)
        self._rates.forget(job)
        for lane in job.lanes:
            self._unlist(lane.device.name)
            del self._on[lane.device.name][job]
            self._list(lane.device.name)

    def _change(self, job: Job) -> None:
        """The neighbours of those on its devices are others from now on."""
        for lane in job.lanes:
            self._open.pop(lane.device.name, None)
            for each in self._on[lane.device.name]:
                self._rates.cut(each)

    def _neighbours(self, job: Job) -> bool:
        """Whether anybody runs in another lane of its devices."""
        return any(
            each is not job and each.state in (JobState.RUNNING, JobState.STOPPING) and job.lanes != each.lanes
            for lane in job.lanes
            for each in self._on[lane.device.name]
        )

    def _beside(self, job: Job) -> Iterator[Lane]:
        """Empty lanes beside those that a job may be tried beside, in the order of the policy."""
        if not _is_steady(job):
            return
        keys = {}
        for name, devices in self._single.items():
            other = next(iter(devices.values()))
            if (key := self._policy.beside(job, other)) is not None:
                keys[name] = (key, other.number)
        for name in sorted(keys, key=keys.__getitem__):
            for device in self._single[name]:
                yield from (lane for lane in self._room.devices[device] if not lane.jobs)

    def _is_certain(self, job: Job, lane: Lane) -> bool:
        """Whether all that would run beside each other on a lane's device are known to gain by it."""
        places = [(job, lane)]
        places += [(each, at) for at in self._room.devices[lane.device.name] for each in at.jobs.values()]
        return all(
            one_lane is other_lane or self._is_paid(one, other)
            for (one, one_lane), (other, other_lane) in combinations(places, 2)
        )

    def _is_paid(self, one: Job, other: Job) -> bool:
        return _is_steady(one) and _is_steady(other) and self._policy.pays(one, other)

    def _list(self, device: str) -> None:
        """Those on a device have changed."""
        if not self._on[device]:
            del self._on[device]
        elif (job := self._lone(device)) is not None:
            self._single.setdefault(job.spec.job_class, {})[device] = job

    def _unlist(self, device: str) -> None:
        """Those on a device are about to change."""
        if (job := self._lone(device)) is not None:
            devices = self._single[job.spec.job_class]
            del devices[device]
            if not devices:
                del self._single[job.spec.job_class]

    def _lone(self, device: str) -> Job | None:
        """Who has a device to himself where another one could be tried."""
        jobs = self._on.get(device, {})
        if len(jobs) != 1 or len(self._room.devices[device]) == 1:
            return None
        job = next(iter(jobs))
        return job if _is_steady(job) else None


def _is_steady(job: Job) -> bool:
    """Whether it may be tried."""
    return job.spec.gpus == 1 and len(job.spec.phases) <= 1
