"""Plan of an elastic placement: the devices that each job is to have, from the width of each job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ecoshare.core.records import Job
from ecoshare.core.states import JobState
from ecoshare.values.job_spec import JobSpec

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
