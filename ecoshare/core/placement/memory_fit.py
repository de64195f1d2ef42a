"""Memory fit: whether a job fits into a lane, and how much memory it is granted there.

::

    device   ├── lane 0: P P P │ largest T ──┼── lane 1: P P │ largest T ──┼── free ──┤

A lane has no memory of its own: it takes what its jobs need. So a job fits if the memory of its device suffices for all
lanes together, whichever way the jobs before it have divided the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain
from types import MappingProxyType

from ecoshare.common.plural import counted
from ecoshare.core.memory import cached_bytes, lane_bytes, promised
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.placement.latency_room import LatencyRoom, too_slow
from ecoshare.core.placement.power_room import PowerRoom
from ecoshare.core.profiling_windows import Profiling
from ecoshare.core.records import Job, Lane
from ecoshare.core.states import JobState
from ecoshare.values.class_profile import CONTEXT_BYTES, MemoryDemand

SPARE = 1.5
"""Memory granted / largest memory seen of the job, its class or its script: jobs of one class differ in size."""

UNSEEN_BYTES = 512 << 20
"""Memory granted to a job of an unseen class and script if memory is watched: enough for torch and a small model."""


class MemoryFit:
    """Safety condition, with the present knowledge of each job's memory.

    A job is granted the first of these that is known:

    1. the demand that was measured for its class, with an allowance in live runs (`memory.promised`);
    2. `SPARE` times the largest memory that its class was seen to take, or else its script;
    3. an equal share of its device, or `UNSEEN_BYTES` if memory is watched (on processors).

    If memory is watched, 2 and 3 are at least `SPARE` times the memory that the job itself was seen to take. A job that
    ran out of memory may need its device to itself, and is granted all of its memory. A gang is granted at least an
    equal share of each device. No other job is granted less than its `least_bytes` or more than its device has.

    Attributes:
        regranted: Names of the devices with running jobs that are granted more or less than before; the reader clears
            it.
        latency: Room for the targets of services.
    """

    def __init__(
        self,
        lane_index: LaneIndex,
        profiling: Profiling,
        moves_freely: bool = False,
        enforces: bool = False,
        power: PowerRoom | None = None,
    ) -> None:
        """Memory fit without knowledge beyond the specifications of the jobs.

        Args:
            lane_index: Index of the lanes.
            profiling: Profiling windows, with the demands measured in this run.
            moves_freely: Whether jobs move between the lanes of a device at any time. Memory must then suffice for
                every distribution of the jobs over the lanes.
            enforces: Whether memory is enforced on the devices; see `Config.enforces_memory`.
            power: Room in a power budget by placement; None without one.
        """
        self._lane_index, self._profiling, self._moves_freely = lane_index, profiling, moves_freely
        self._enforces, self._power = enforces, power
        self.latency = LatencyRoom(lane_index)
        self.regranted: dict[str, None] = {}
        self._shown_bytes: dict[str, int] = {}  # largest peak, by class
        self._family_bytes: dict[str, int] = {}  # largest peak, by script
        self._suspects: set[str] = set()

    def took(self, job: Job, peak_bytes: int) -> None:
        """Note the peak of a job that ran to its end. Jobs of its class and script are granted more than that.

        A job with more devices than it needs shows nothing.
        """
        if job.widening > 1.0:
            return
        name = job.spec.job_class
        self._shown_bytes[name] = max(peak_bytes, self._shown_bytes.get(name, 0))
        self._saw(job, peak_bytes)

    def grew(self, job: Job) -> bool:
        """Note that a job takes more memory than before. Returns whether its grant has grown."""
        if self._measured(job) is not None or not job.lanes or not job.lanes[0].device.memory_is_watched:
            return False
        self._saw(job, job.usage.peak_bytes)
        before = job.demand
        self.grant(job, self.demand(job, job.lanes[0]))
        return job.demand.peak_bytes > before.peak_bytes

    def suspects(self, job: Job) -> None:
        """Note that a job is a suspect: until its end it runs only when no other job does."""
        self._suspects.add(job.spec.name)

    def ended(self, job: Job) -> None:
        """Note the end of a job."""
        self._suspects.discard(job.spec.name)

    def apart(self, job: Job) -> list[Job]:
        """Jobs with a place beside which this job may not run: suspects, or all jobs if it is a suspect itself."""
        if not self._suspects:
            return []
        others = [each for lane in self._lane_index.lanes.values() for each in lane.jobs.values() if each is not job]
        return others if job.is_suspect else [each for each in others if each.is_suspect]

    def _saw(self, job: Job, peak_bytes: int) -> None:
        if (family := _family(job)) and peak_bytes > self._family_bytes.get(family, 0):
            self._family_bytes[family] = peak_bytes

    def outgrown(self, lane: Lane, measured: str | None = None) -> Job | None:
        """Job that must give way because the jobs of a device have outgrown its memory.

        Candidates were granted a guess: they belong to an unmeasured class, or to the class that was measured just now.
        The loser is the candidate that has held its turn for the shortest time. The result is None if the memory
        suffices, or if the job is alone: its memory limit ends it then.

        Args:
            lane: Lane of the device.
            measured: Class that was measured just now; None if none was.
        """
        jobs = [job for job in self._beside(lane) if not job.state.is_leaving]
        if len(jobs) < 2 or self.needed_bytes(lane.device.name, only=jobs) <= lane.device.memory_bytes:
            return None
        guesses = [
            job
            for job in jobs
            if len(job.lanes) == 1 and (self._measured(job) is None or job.spec.job_class == measured)
        ]
        return min(guesses, key=lambda job: (job.usage.held_s, -job.number), default=None)

    def fits(self, job: Job, lane: Lane) -> bool:
        """Whether the job may be started in the lane now.

        A gang has its lanes to itself unless its ranks take turns together: otherwise their collectives would wait for
        each other. A suspect runs when no other job does, so that it is known whether it causes the deaths.
        A parked job goes on in the lane where it was.
        """
        if not lane.has_place or self.apart(job):
            return False
        if self._profiling.occupies(lane) or any(other.spec.has_lanes_alone for other in lane.jobs.values()):
            return False
        if job.parked_in is not None and job.parked_in is not lane:
            return False
        if self._power is not None and not self._power.admits(job, lane):
            return False
        if self._lane_index.is_idle(lane.device.name):
            return True  # no demand is larger than the device
        if not self._has_room(lane.device.name, {lane.number: [self.demand(job, lane)]}):
            return False
        return self.latency.admits(job, chain(lane.jobs.values(), lane.coming.values()))

    def match(self, job: Job, lane: Lane) -> tuple[float, ...]:
        """How well a job fits into a lane: T that the lane lacks, then T that the job leaves unused; smaller is better.

        Jobs of a lane share one ephemeral region, so jobs of equal T waste least of it.
        """
        here_bytes = max((each.demand.ephemeral_bytes for each in lane.jobs.values()), default=0)
        more_bytes = self.demand(job, lane).ephemeral_bytes - here_bytes
        return (max(0, more_bytes), max(0, -more_bytes))

    def joins(self, device: str, newcomers: Iterable[Job]) -> bool:
        """Whether a device has memory for the newcomers beside its present jobs, in any of its lanes."""
        lane = self._lane_index.devices[device][0]
        demands = [*self._demands(lane), *(self.demand(job, lane) for job in newcomers)]
        return self._in_any_lanes(device, demands) <= lane.device.memory_bytes

    def joining(self, device: str, newcomers: Iterable[Job]) -> list[Job]:
        """Newcomers for which `joins` holds, each taken alone, and that no service keeps out of every lane.

        Jobs of equal needs are looked at once.
        """
        lanes = self._lane_index.devices[device]
        lane = lanes[0]
        here = self._demands(lane)
        joins: dict[tuple[object, ...], bool] = {}
        found = []
        for job in newcomers:
            needs = _needs(job)
            joined = joins.get(needs)
            if joined is None:
                needed_bytes = self._in_any_lanes(device, [*here, self.demand(job, lane)])
                joined = joins[needs] = needed_bytes <= lane.device.memory_bytes
            if joined and self.latency.has_lane(job, lanes):
                found.append(job)
        return found

    def fits_joined(self, job: Job, device: str) -> bool:
        """Whether the job would have room on a device if all jobs of the device took turns in one lane."""
        lane = self._lane_index.devices[device][0]
        return lane_bytes([*self._demands(lane), self.demand(job, lane)]) <= lane.device.memory_bytes

    def keeps_caches(self, device: str) -> bool:
        """Whether the jobs of a device may keep the caches of their allocators while they wait for their turn.

        The memory suffices for all that they may ever reserve. Otherwise each job empties its cache at a hand-over.
        """
        lane = self._lane_index.devices[device][0]
        return cached_bytes(self._demands(lane)) <= lane.device.memory_bytes

    def needed_bytes(
        self,
        device: str,
        newcomers: Mapping[int, Sequence[MemoryDemand]] = MappingProxyType({}),
        only: Sequence[Job] | None = None,
    ) -> int:
        """Memory (bytes) that the jobs of a device need: all P, and the largest T of each lane.

        If jobs move freely, the sum has the largest T of all jobs, one for each lane.

        Args:
            device: Name of the device.
            newcomers: Demands of further jobs, by the number of their lane.
            only: Present jobs that count; None for all.
        """
        lanes = self._lane_index.devices[device]
        present = [
            [job.demand for job in lane.jobs.values() if only is None or job in only]
            + list(newcomers.get(lane.number, ()))
            for lane in lanes
        ]
        if self._moves_freely:
            return self._in_any_lanes(device, [demand for demands in present for demand in demands])
        needed_bytes = 0
        for lane, demands in zip(lanes, present, strict=True):
            coming = [MemoryDemand(0, job.demand.ephemeral_bytes) for job in lane.coming.values()]
            needed_bytes += lane_bytes([*demands, *coming])
        return needed_bytes

    def _in_any_lanes(self, device: str, demands: Sequence[MemoryDemand]) -> int:
        """Memory (bytes) for these demands, however their jobs are distributed over the lanes of the device."""
        ephemeral = nlargest(len(self._lane_index.devices[device]), (each.ephemeral_bytes for each in demands))
        return sum(each.persistent_bytes for each in demands) + sum(ephemeral)

    def _demands(self, lane: Lane) -> list[MemoryDemand]:
        """Demands of the jobs on the device of a lane."""
        return [job.demand for job in self._beside(lane)]

    def _has_room(self, device: str, newcomers: Mapping[int, Sequence[MemoryDemand]]) -> bool:
        return self.needed_bytes(device, newcomers) <= self._lane_index.devices[device][0].device.memory_bytes

    def _beside(self, lane: Lane) -> Iterator[Job]:
        """Jobs on the device of a lane."""
        for each in self._lane_index.devices[lane.device.name]:
            yield from each.jobs.values()

    def granted(self, job: Job, lane: Lane) -> MemoryDemand:
        """Memory that a job is granted when it starts in the lane. On a GPU, its allocator is limited to that.

        If jobs move freely, an unseen job on a GPU that is about to be measured gets all free memory until then,
        because too little would end it.
        """
        demand = self.demand(job, lane)
        if not self._moves_freely or lane.device.memory_is_watched or not self._profiling.will(job):
            return demand
        if self._measured(job) is not None or self._seen_bytes(job):
            return demand
        return MemoryDemand(max(demand.peak_bytes, self._free_bytes(job, lane)))

    def _free_bytes(self, job: Job, lane: Lane) -> int:
        """Memory that the other jobs leave of the memory of the device."""
        others = [each for each in self._beside(lane) if each is not job]
        return lane.device.memory_bytes - self.needed_bytes(lane.device.name, only=others)

    def is_new(self, job: Job) -> bool:
        """Whether the class of a job is unknown and will be measured as soon as the job is warm.

        If one job of a class ran to its end without a measurement, the others are taken to be too short for it, too.
        """
        if job.spec.job_class in self._shown_bytes or not self._profiling.will(job):
            return False
        return not self._profiling.too_short(job, job.told_s)

    def gets_warm(self, job: Job) -> bool:
        """Whether a running job has begun, and its class will have its first window as soon as it is warm."""
        if job.state is not JobState.RUNNING or not job.usage.done or not self.is_new(job):
            return False
        return not self._profiling.has_tried(job) and not self._profiling.ends_soon(job, job.told_s)

    def never(self, job: Job) -> str | None:
        """Reason in words why the job could not start even if no other job ran; None if it could."""
        in_node, devices, largest_bytes = self._lane_index.limits()
        gpus, nodes = job.spec.gpus, job.spec.nodes
        most = devices if nodes is None else min(in_node * nodes, devices)
        if gpus > most:
            of_nodes = "" if nodes is None else " of one node" if nodes == 1 else f" of {nodes} nodes"
            return f"needs {counted(gpus, 'device')}{of_nodes}, and {most} can be had"
        if job.spec.memory is not None and job.spec.memory.peak_bytes > largest_bytes:
            return f"needs {job.spec.memory.peak_bytes} bytes, and the largest device has {largest_bytes}"
        return (self._power and self._power.never(job)) or too_slow(job.spec) or None

    def returns_at_once(self, job: Job) -> bool:
        """Whether memory that a running job gives back is free at once, without a limit to its allocator."""
        return not self._enforces or job.lanes[0].device.memory_is_watched

    def needed(self, job: Job) -> MemoryDemand:
        """Memory that a running job needs by present knowledge. It may have been granted more before."""
        job.least_bytes = max(job.least_bytes, job.usage.peak_bytes)
        return self.demand(job, job.lanes[0])

    def grant(self, job: Job, demand: MemoryDemand) -> None:
        """Change what a running job is granted."""
        job.demand = demand
        self.regranted.update(dict.fromkeys(job.device_names))

    def demand(self, job: Job, lane: Lane) -> MemoryDemand:
        """Memory that the job must be granted in the lane: see the class."""
        device_bytes = lane.device.memory_bytes
        if job.parked_in is not None:
            return job.demand  # the process lives, with this limit of its allocator
        if job.whole_device:
            return MemoryDemand(device_bytes)
        if (
            job.widening > 1.0
        ):  # no other job is there, and gradients that ranks exchange are in no profile of one device
            return MemoryDemand(min(each.device.memory_bytes for each in job.lanes))
        measured = self._measured(job)
        if measured is not None:
            demand = promised(measured, device_bytes) if self._enforces else measured
        else:
            seen_bytes = int(SPARE * self._seen_bytes(job))
            if lane.device.memory_is_watched:
                seen_bytes = max(seen_bytes or UNSEEN_BYTES, int(SPARE * job.usage.peak_bytes))
            demand = MemoryDemand(seen_bytes or self._share_bytes(job, lane))
        least_bytes = max(job.least_bytes, self._share_bytes(job, lane) if job.spec.has_lanes_alone else 0)
        if demand.peak_bytes < least_bytes:
            demand = MemoryDemand(least_bytes)
        return demand if demand.peak_bytes <= device_bytes else MemoryDemand(device_bytes)

    def _share_bytes(self, job: Job, lane: Lane) -> int:
        """Equal share of the device: for a gang that has its lanes to itself, a lane's; else the share of a place."""
        lanes = 1 if self._moves_freely else len(self._lane_index.devices[lane.device.name])
        share_bytes = lane.device.memory_bytes // (lanes if job.spec.has_lanes_alone else lanes * lane.places)
        if self._enforces and not lane.device.memory_is_watched:
            share_bytes = max(share_bytes, CONTEXT_BYTES + UNSEEN_BYTES)  # with less, not even a context would fit
        return share_bytes

    def known(self, job: Job) -> tuple[object, ...]:
        """Key of everything but the lane that decides whether a job fits. Waiting jobs with equal keys fit alike."""
        shown_bytes = self._shown_bytes.get(job.spec.job_class)
        lanes = job.spec.gpus, job.spec.takes_turns
        needs = (lanes, job.is_suspect, job.whole_device, job.least_bytes, job.usage.peak_bytes)
        return (*needs, self._measured(job), shown_bytes, _family(job))

    def _seen_bytes(self, job: Job) -> int:
        """Largest peak of the job's class, else of its script; 0 if none was seen."""
        return self._shown_bytes.get(job.spec.job_class) or self._family_bytes.get(_family(job), 0)

    def fuses(self, job: Job) -> bool:
        """Whether the present attempt shares a process: the first attempt of a job that may, once its memory is known.

        In a shared process, the memory of a single job cannot be measured. A service shares it all the same: the first
        of its class does not end. Later attempts do not share: the job had to leave the process, or died with it.
        """
        if not job.spec.fused or job.attempt > 1:
            return False
        known = self._measured(job) is not None or job.spec.job_class in self._shown_bytes
        return known or job.spec.service is not None

    def cap(self, job: Job, lanes: tuple[Lane, ...]) -> int:
        """Memory limit (bytes) of a job that starts with its demand.

        If memory is watched and the class was not measured, the limit is all free memory, but at least what an unseen
        job is granted: a neighbour that ends leaves its part of the shared pages to the others.
        """
        lane, measured = lanes[0], self._measured(job)
        if measured is not None and job.demand == measured:  # not enforced: the allowance is no part of the demand
            return promised(measured, lane.device.memory_bytes).peak_bytes
        if measured is not None or not lane.device.memory_is_watched:
            return job.demand.peak_bytes
        # One byte below the device: a job with all of it as its limit is not tried again when it runs out of memory.
        room_bytes = max(self._free_bytes(job, lane), UNSEEN_BYTES)
        return max(job.demand.peak_bytes, min(room_bytes, lane.device.memory_bytes - 1))

    def largest_bytes(self) -> int:
        """Memory (bytes) of the largest device that has an open lane."""
        return self._lane_index.limits()[2]

    def _measured(self, job: Job) -> MemoryDemand | None:
        return self._profiling.memory.get(job.spec.job_class) or job.spec.memory


def _needs(job: Job) -> tuple[object, ...]:
    """Key of everything in a job that its demand depends on."""
    spec, seen = job.spec, job.usage.peak_bytes
    lanes = spec.gpus, spec.takes_turns, job.widening
    return (spec.job_class, _family(job), spec.memory, lanes, job.whole_device, job.least_bytes, seen)


def _family(job: Job) -> str:
    return job.spec.solo.family if job.spec.solo is not None else ""
