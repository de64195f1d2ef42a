"""Placement of jobs of changing width: several whole devices, one device, or a place on a shared device.

::

    widths         2        1      1/2   1/2   1/2   1/2        (core/placement/water_filling.py)
    device      0     1  │  2   │     3     │     4
              ████████████████████ ██ c ████ ██ d ████
              █ a ████████ b █████ ██ e ████ ██ f ████

All jobs are arranged anew whenever one comes, ends, pauses or is pruned, and once the need of one is known. Jobs of
whole devices are placed first, the longest first. Each other job goes to the device with the least work. A running job
stays where it is unless its width changes, or unless it gains by moving from a shared device to an idle one. A job that
cannot be moved always stays. A job is resized by stopping it and starting it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from ecoshare.core.placement.elastic_plan import (
    HERE,
    ElasticPlan,
    devices_of,
    is_resizable,
    most_devices,
    narrowed,
    resize_reason,
)
from ecoshare.core.placement.steps import GiveWay, Start, Step
from ecoshare.core.placement.strategy import PlacementParts, PlacementStrategy
from ecoshare.core.policies.base import ElasticPolicy
from ecoshare.core.records import Job, Lane
from ecoshare.core.states import JobState, LaneState


class ElasticPlacement(PlacementStrategy):
    """Strategy of a policy that sets the number of devices of each job."""

    def __init__(
        self, parts: PlacementParts, policy: ElasticPolicy, trials_coming: Callable[[], bool], widens: bool
    ) -> None:
        """Strategy without jobs.

        Args:
            parts: Parts of the run.
            policy: Policy that sets the widths.
            trials_coming: Whether a sampler was asked for a trial and has not answered.
            widens: Whether jobs may have more devices than they need.
        """
        super().__init__(parts)
        self._elastic, self._trials_coming, self._widens = policy, trials_coming, widens
        self._plan = ElasticPlan({}, {}, 0.0)
        self._started: list[Job] = []  # jobs that were starting, and could not be moved, when all were arranged
        self._unknown: list[Job] = []  # jobs of unknown need when all were arranged

    def started(self, job: Job, at_s: float) -> Iterator[Step]:
        """Steps after a job has begun to run: it can be resized from now on."""
        self._timers.look(job, at_s)
        yield from self.fill(at_s)

    def progressed(self, job: Job, settled: bool, at_s: float) -> Iterable[Step]:
        """Steps after a job has told its progress: if its need is known only now, all jobs are arranged anew."""
        yield from super().progressed(job, settled, at_s)
        if job in self._unknown and job.state is JobState.RUNNING and job.needs_s(at_s) is not None:
            self._plan = ElasticPlan({}, {}, 0.0)
            yield from self.fill(at_s)

    def device_failed(self, device: str) -> None:
        """Note that a device has failed: all jobs are arranged anew."""
        self._plan = ElasticPlan({}, {}, 0.0)

    def exhausted(self, at_s: float) -> Iterator[Step]:
        """Steps after a sampler has no more trials: jobs that were held back may start."""
        return self.fill(at_s)

    def _may_start(self) -> bool:
        """Whether jobs may start now. None starts while a sampler draws: the first trial would get all devices."""
        return super()._may_start() and not self._trials_coming()

    def _walk(self, at_s: float, newcomer: Job | None) -> Iterator[Step]:
        placed = list({job: None for lane in self.lane_index.lanes.values() for job in lane.jobs.values()})
        stay = [job for job in placed if job.state in HERE or job.again]
        jobs = sorted([*self.waiting, *stay], key=lambda job: job.number)
        if self._plan.needs.keys() != set(jobs) or any(job.state is JobState.RUNNING for job in self._started):
            self._plan = self._arrange(jobs, at_s)
            self._started = [job for job in stay if job.state is JobState.STARTING]
            self._unknown = [job for job in jobs if job.needs_s(at_s) is None]
        for job in stay:
            after = self._plan.devices.get(job, ())
            if is_resizable(job) and set(after) != set(devices_of(job)):
                yield GiveWay([job], None, resize_reason(job, after))
        for job in jobs:
            if job.state is JobState.QUEUED and (lanes := self._lanes(job)):
                yield Start(job, lanes)

    def _arrange(self, jobs: list[Job], at_s: float) -> ElasticPlan:
        """Plan for all jobs.

        If jobs of several devices would lose some, they keep them when the other jobs, on shared devices, would wait no
        longer and end about as early.
        """
        open_lanes = [lane for lane in self.lane_index.lanes.values() if lane.state is LaneState.OPEN]
        nodes = {lane.device.name: lane.device.node for lane in open_lanes}
        if not nodes:
            return ElasticPlan(dict.fromkeys(jobs, 0.0), nodes, 0.0)
        places = {name: sum(lane.places for lane in self.lane_index.devices[name]) for name in nodes}
        needs = dict(zip(jobs, self._elastic.needs(jobs, at_s), strict=True))
        most = [most_devices(job.spec, nodes.values()) if self._widens else 1 for job in jobs]
        share = 1.0 / max(places.values())
        poured = self._elastic.pour(list(needs.values()), len(nodes), share, most)
        anew: dict[Job, float] = {}
        kept: dict[Job, float] = {}
        for job, wide in zip(jobs, poured, strict=True):
            now = len(devices_of(job))
            if job.spec.gpus > 1:
                wide = max(wide, float(job.spec.gpus))
            if now and not is_resizable(job):
                wide = float(now) if now > 1 else min(wide, 1.0)
            elif wide > now > 0 and needs[job] / now - needs[job] / wide <= self._elastic.restart_s:
                wide = float(now)
            anew[job], kept[job] = wide, share if max(wide, now) <= 1 else max(wide, now)
        anew = narrowed(anew, needs, len(nodes))
        restart_s = self._elastic.restart_s
        plan = ElasticPlan(needs, nodes, restart_s).fill(anew, places)
        if all(len(devices_of(job)) <= wide for job, wide in anew.items() if len(devices_of(job)) > 1):
            return plan
        other = ElasticPlan(needs, nodes, restart_s).fill(kept, places)
        waits_longer = other.unplaced_s > plan.unplaced_s
        return plan if waits_longer or other.ends_s > plan.ends_s + restart_s else other

    def _lanes(self, job: Job) -> tuple[Lane, ...]:
        """Lanes on the planned devices of a job; empty while a job that must leave is still there.

        If the planned device has no memory for a job that shares one, another shared device takes its place.
        """
        devices = self._plan.devices.get(job, ())
        found = tuple(lane for name in devices if (lane := self._lane(job, name)) is not None)
        if found and len(found) == len(devices):
            return found
        if job in self._plan.shares:
            for name in {name: None for each in self._plan.shares for name in self._plan.devices[each]}:
                if (lane := self._lane(job, name)) is not None:
                    self._plan.devices[job] = (name,)
                    return (lane,)
        return ()

    def _lane(self, job: Job, name: str) -> Lane | None:
        """Lane of a device with the fewest jobs among those in which the job fits; None if there is none."""
        lanes = self.lane_index.devices[name]
        inside = [each for lane in lanes for each in lane.jobs.values()]
        if any(name not in self._plan.devices.get(each, ()) for each in inside):
            return None
        able = filter(partial(self.fit.fits, job), lanes)
        return min(able, key=lambda lane: (len(lane.jobs), lane.number), default=None)
