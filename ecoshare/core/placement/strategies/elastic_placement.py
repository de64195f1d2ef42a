"""Placement of jobs of changing width: several whole devices, one device, or a place on a shared device.

::

    widths         2        1      1/2   1/2   1/2   1/2        (core/policies/fluid.py)
    device      0     1  │  2   │     3     │     4
              ████████████████████ ██ c ████ ██ d ████
              █ a ████████ b █████ ██ e ████ ██ f ████

All jobs are arranged anew whenever one comes, ends, pauses or is pruned, and once the need of one is known. Jobs of
whole devices are placed first, the longest first. Each other job goes to the device with the least work. A running job
stays where it is unless its width changes, or unless it gains by moving from a shared device to an idle one. A job that
cannot be moved always stays. A job is resized by stopping it and starting it again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from ecoshare.base.job_spec import JobSpec
from ecoshare.core.placement.steps import GiveWay, Start, Step
from ecoshare.core.placement.strategy import PlacementParts, PlacementStrategy
from ecoshare.core.policies.base import ElasticPolicy
from ecoshare.core.records import Job, JobState, Lane, LaneState

HERE = (JobState.STARTING, JobState.RUNNING)
"""States of a job that keeps its place, unless it is resized or moved."""


@dataclass(slots=True)
class ElasticPlan:
    """Devices that each job is to have.

    Attributes:
        needs: Time (s) that each job needs on one device.
        nodes: Node of each device.
        restart_s: Time (s) that a running job loses when it is moved.
        devices: Devices of each job that has a place in the plan.
        shares: Jobs of `devices` that have a place on a shared device.
        unplaced_s: Time (s) on one device that the jobs without a place need.
    """

    needs: Mapping[Job, float]
    nodes: Mapping[str, str]
    restart_s: float
    devices: dict[Job, tuple[str, ...]] = field(default_factory=dict)
    shares: dict[Job, None] = field(default_factory=dict)
    unplaced_s: float = 0.0
    _inside: dict[str, list[Job]] = field(default_factory=lambda: defaultdict(list))

    @property
    def ends_s(self) -> float:
        """Time (s) until all jobs end, if speed is linear in width and the jobs without a place come last."""
        loads = (sum(self.needs[job] / len(self.devices[job]) for job in inside) for inside in self._inside.values())
        return max(loads, default=0.0) + self.unplaced_s / len(self.nodes)

    def fill(self, widths: Mapping[Job, float], places: Mapping[str, int]) -> ElasticPlan:
        """Give each job its devices, and return the plan."""
        alone = max(places.values()) == 1
        longest = sorted(widths, key=lambda job: (-self.needs[job], job.number))
        fixed = [job for job in longest if devices_of(job) and not is_resizable(job)]
        for job in fixed:
            self._put(job, devices_of(job), len(devices_of(job)) == 1 and (alone or widths[job] < 1.0))
        occupied = Counter(name for job in longest if job not in self.devices for name in devices_of(job))
        for job in longest:
            if job not in self.devices and widths[job] >= (2.0 if alone else 1.0):
                self._place_whole(job, int(widths[job]), occupied)
        rest = [job for job in longest if job not in self.devices and job.spec.gpus == 1]
        for job in rest:
            if len(devices_of(job)) == 1 and self._has_place(devices_of(job)[0], places):
                self._put(job, devices_of(job), True)
        for job in rest:
            if job not in self.devices:
                self._place_shared(job, places)
        self._even_out()
        self.unplaced_s = sum(self.needs[job] for job in widths if job not in self.devices)
        return self

    def _put(self, job: Job, devices: tuple[str, ...], shared: bool) -> None:
        self.devices[job] = devices
        if shared:
            self.shares[job] = None
        for name in devices:
            self._inside[name].append(job)

    def _place_whole(self, job: Job, wide: int, occupied: Mapping[str, int]) -> None:
        """Give a job whole devices that no job has in the plan: its present ones first, then idle ones.

        The devices lie on at most as many nodes as the job may span. Among nodes on which the job could be equally
        wide, the node where it runs goes first, then the node with the fewest free devices.
        """
        own = devices_of(job)
        free: dict[str, list[str]] = defaultdict(list)
        for name in sorted(self.nodes, key=lambda name: (name not in own, occupied.get(name, 0))):
            if not self._inside[name]:
                free[self.nodes[name]].append(name)
        of_own = Counter(self.nodes[name] for name in own)
        order = sorted(free, key=lambda node: (-min(wide, len(free[node])), -of_own[node], len(free[node])))
        found = [name for node in order[: job.spec.nodes] for name in free[node]][:wide]
        if len(found) >= job.spec.gpus:
            self._put(job, tuple(found), False)

    def _place_shared(self, job: Job, places: Mapping[str, int]) -> None:
        """Give a job a place on the device with the least work."""
        able = [name for name in self.nodes if self._has_place(name, places)]
        if able:
            self._put(job, (min(able, key=self._load_s),), True)

    def _even_out(self) -> None:
        """Move a job from the busiest shared device to each idle device, if a job there is new or gains by moving."""
        for name in self.nodes:
            crowded = [each for each in self.nodes if len(self._inside[each]) > 1]
            if self._inside[name] or not crowded:
                continue
            most = max(crowded, key=self._load_s)
            movable = [job for job in self._inside[most] if not devices_of(job) or self._pays(job)]
            if movable:
                job = movable[-1]
                self._inside[most].remove(job)
                self._inside[name].append(job)
                self.devices[job] = (name,)

    def _pays(self, job: Job) -> bool:
        """Whether a running job gains by moving to a device of its own."""
        return is_resizable(job) and self.needs[job] > self.restart_s

    def _has_place(self, name: str, places: Mapping[str, int]) -> bool:
        inside = self._inside[name]
        return len(inside) < places[name] and all(job in self.shares for job in inside)

    def _load_s(self, name: str) -> float:
        return sum(self.needs[job] for job in self._inside[name])


def most_devices(spec: JobSpec, nodes: Collection[str]) -> int:
    """Most devices that a job can use, given the node of each device."""
    largest = sorted(Counter(nodes).values(), reverse=True)
    return max(1, min(spec.widest, sum(largest[: spec.nodes])))


def narrowed(widths: Mapping[Job, float], needs: Mapping[Job, float], devices: int) -> dict[Job, float]:
    """The widths, made to fit: jobs that can do with less give devices to gangs that cannot.

    Water-filling knows no least width. If the widths of all jobs exceed the devices, the job that would end first gives
    one device after the other.
    """
    found = dict(widths)
    while sum(wide for wide in found.values() if wide >= 1.0) > devices:
        able = [job for job, wide in found.items() if wide - 1.0 >= job.spec.gpus and not _is_fixed(job)]
        if not able:
            break
        first = min(able, key=lambda job: (needs[job] / (found[job] - 1.0), job.number))
        found[first] -= 1.0
    return found


def _is_fixed(job: Job) -> bool:
    return bool(devices_of(job)) and not is_resizable(job)


def devices_of(job: Job) -> tuple[str, ...]:
    """Present devices of a job that starts or runs; empty for any other job."""
    return tuple(lane.device.name for lane in job.lanes) if job.state in HERE else ()


def is_resizable(job: Job) -> bool:
    """Whether a job can get another number of devices now: it can move, and runs."""
    return job.spec.movable and job.state is JobState.RUNNING


def resize_reason(job: Job, after: tuple[str, ...]) -> str:
    """Reason why a job gets other devices, in words; `after` names the devices that it gets."""
    if not after:
        return "others are longer"
    before = len(job.lanes)
    return f"goes on elsewhere, on {len(after)}" if len(after) == before else f"has {len(after)} in place of {before}"


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
