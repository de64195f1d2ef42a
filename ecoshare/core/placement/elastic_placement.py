"""Placement of jobs of changing width: several whole devices, one device, or a place on a shared device.

::

    widths         2        1      1/2   1/2   1/2   1/2        (core/placement/water_filling.py)
    device      0     1  │  2   │     3     │     4
              ████████████████████ ██ c ████ ██ d ████
              █ a ████████ b █████ ██ e ████ ██ f ████

All jobs are arranged anew whenever one comes, ends, pauses or is pruned. Jobs of whole devices are placed first, the
longest first. Each other job goes to the device with the least work. A running job stays where it is unless its width
changes, or unless it gains by moving from a shared device to an idle one. A job that cannot be moved always stays.
A job is resized by stopping it and starting it again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.placement.preemption import GiveWay, Start
from ecoshare.core.policies.base import ElasticPolicy
from ecoshare.core.records import Job, Lane
from ecoshare.core.states import JobState, LaneState

_HERE = (JobState.STARTING, JobState.RUNNING)


class ElasticPlacement:
    """Placement of jobs with the widths that the policy sets."""

    def __init__(self, policy: ElasticPolicy, lane_index: LaneIndex, fits: Callable[[Job, Lane], bool]) -> None:
        """Placement without jobs.

        Args:
            policy: Policy that sets the widths.
            lane_index: Index of the lanes.
            fits: Whether a job may be started in a lane.
        """
        self._policy, self._lane_index, self._fits = policy, lane_index, fits
        self._plan = _Plan({}, {}, 0.0)
        self._started: list[Job] = []  # jobs that were starting, and could not be moved, when all were arranged

    def walk(self, waiting: Iterable[Job], at_s: float) -> Iterator[Start | GiveWay]:
        """Actions to take now. The caller carries out each action before it asks for the next."""
        placed = list({job: None for lane in self._lane_index.lanes.values() for job in lane.jobs.values()})
        stay = [job for job in placed if job.state in _HERE or job.again]
        jobs = sorted([*waiting, *stay], key=lambda job: job.number)
        if self._plan.needs.keys() != set(jobs) or any(job.state is JobState.RUNNING for job in self._started):
            self._plan = self._arrange(jobs, at_s)
            self._started = [job for job in stay if job.state is JobState.STARTING]
        for job in stay:
            after = self._plan.devices.get(job, ())
            if _resizable(job) and set(after) != set(_devices(job)):
                yield GiveWay([job], None, _reason(job, after))
        for job in jobs:
            if job.state is JobState.QUEUED and (lanes := self._lanes(job)):
                yield Start(job, lanes)

    def _arrange(self, jobs: list[Job], at_s: float) -> _Plan:
        """Plan for all jobs.

        If jobs of several devices would lose some, they keep them when the other jobs, on shared devices, would wait no
        longer and end about as early.
        """
        open_lanes = [lane for lane in self._lane_index.lanes.values() if lane.state is LaneState.OPEN]
        nodes = {lane.device.name: lane.device.node for lane in open_lanes}
        if not nodes:
            return _Plan(dict.fromkeys(jobs, 0.0), nodes, 0.0)
        places = {name: sum(lane.places for lane in self._lane_index.devices[name]) for name in nodes}
        needs = dict(zip(jobs, self._policy.needs(jobs, at_s), strict=True))
        most = [min(len(nodes), job.spec.widest) for job in jobs]
        share = 1.0 / max(places.values())
        poured = self._policy.pour(list(needs.values()), len(nodes), share, most)
        anew: dict[Job, float] = {}
        kept: dict[Job, float] = {}
        for job, wide in zip(jobs, poured, strict=True):
            now = len(_devices(job))
            if job.spec.gpus > 1:
                wide = float(job.spec.gpus)
            elif now and not _resizable(job):
                wide = float(now) if now > 1 else min(wide, 1.0)
            elif wide > now > 0 and needs[job] / now - needs[job] / wide <= self._policy.restart_s:
                wide = float(now)
            anew[job], kept[job] = wide, share if max(wide, now) <= 1 else max(wide, now)
        restart_s = self._policy.restart_s
        plan = _Plan(needs, nodes, restart_s).fill(anew, places)
        if all(len(_devices(job)) <= wide for job, wide in anew.items() if len(_devices(job)) > 1):
            return plan
        other = _Plan(needs, nodes, restart_s).fill(kept, places)
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
        lanes = self._lane_index.devices[name]
        inside = [each for lane in lanes for each in lane.jobs.values()]
        if any(name not in self._plan.devices.get(each, ()) for each in inside):
            return None
        able = filter(partial(self._fits, job), lanes)
        return min(able, key=lambda lane: (len(lane.jobs), lane.number), default=None)


@dataclass(slots=True)
class _Plan:
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

    def fill(self, widths: Mapping[Job, float], places: Mapping[str, int]) -> _Plan:
        """Give each job its devices, and return the plan."""
        alone = max(places.values()) == 1
        longest = sorted(widths, key=lambda job: (-self.needs[job], job.number))
        fixed = [job for job in longest if _devices(job) and not _resizable(job)]
        for job in fixed:
            self._put(job, _devices(job), len(_devices(job)) == 1 and (alone or widths[job] < 1.0))
        occupied = Counter(name for job in longest if job not in self.devices for name in _devices(job))
        for job in longest:
            if job not in self.devices and widths[job] >= (2.0 if alone else 1.0):
                self._place_whole(job, int(widths[job]), occupied)
        rest = [job for job in longest if job not in self.devices and job.spec.gpus == 1]
        for job in rest:
            if len(_devices(job)) == 1 and self._has_place(_devices(job)[0], places):
                self._put(job, _devices(job), True)
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
        own = _devices(job)
        free: dict[str, list[str]] = defaultdict(list)
        for name in sorted(self.nodes, key=lambda name: (name not in own, occupied.get(name, 0))):
            if not self._inside[name]:
                free[self.nodes[name]].append(name)
        of_own = Counter(self.nodes[name] for name in own)
        order = sorted(free, key=lambda node: (-min(wide, len(free[node])), -of_own[node], len(free[node])))
        found = [name for node in order[: job.spec.nodes] for name in free[node]][:wide]
        if len(found) == wide or (found and job.spec.gpus == 1):
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
            movable = [job for job in self._inside[most] if not _devices(job) or self._pays(job)]
            if movable:
                job = movable[-1]
                self._inside[most].remove(job)
                self._inside[name].append(job)
                self.devices[job] = (name,)

    def _pays(self, job: Job) -> bool:
        """Whether a running job gains by moving to a device of its own."""
        return _resizable(job) and self.needs[job] > self.restart_s

    def _has_place(self, name: str, places: Mapping[str, int]) -> bool:
        inside = self._inside[name]
        return len(inside) < places[name] and all(job in self.shares for job in inside)

    def _load_s(self, name: str) -> float:
        return sum(self.needs[job] for job in self._inside[name])


def _devices(job: Job) -> tuple[str, ...]:
    """Present devices of a job that starts or runs; empty for any other job."""
    return tuple(lane.device.name for lane in job.lanes) if job.state in _HERE else ()


def _resizable(job: Job) -> bool:
    return job.spec.movable and job.state is JobState.RUNNING


def _reason(job: Job, after: tuple[str, ...]) -> str:
    if not after:
        return "others are longer"
    before = len(job.lanes)
    return f"goes on elsewhere, on {len(after)}" if len(after) == before else f"has {len(after)} in place of {before}"
