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

from ecoshare.base.attempt import Outcome
from ecoshare.base.class_profile import CONTEXT_BYTES, MemoryDemand
from ecoshare.base.device import Device
from ecoshare.base.plural import counted
from ecoshare.core.memory import KEPT_ALLOWANCE_BYTES, bare, cached_bytes, cut, grown, lane_bytes, promised
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.placement.limits import LatencyRoom, PowerRoom, too_slow
from ecoshare.core.records import Job, JobState, Lane
from ecoshare.core.settings.profiling_windows import Profiling

SPARE = 1.5
"""Memory granted / largest memory seen of the job, its class or its script: jobs of one class differ in size."""

UNSEEN_BYTES = 512 << 20
"""Memory granted to a job of an unseen class and script if memory is watched: enough for torch and a small model."""


class MemoryFit:
    """Safety condition, with the present knowledge of each job's memory.

    A job is granted the first of these that is known:

    1. the demand that was measured for its class, with an allowance in live runs (`memory.promised`). A job of the
       class that takes more raises it;
    2. `SPARE` times the largest memory that its class was seen to take, or else its script;
    3. an equal share of its device, or `UNSEEN_BYTES` if memory is watched (on processors).

    In live runs 2 and 3 are at least `SPARE` times the memory that the job itself was seen to take. A job that has
    outgrown its memory is granted all of its device that open-ended services leave. A gang is granted at least an equal
    share of each device. No other job is granted less than its `least_bytes` or more than its device has.

    Attributes:
        regranted: Names of the devices with running jobs that are granted more or less than before; the reader clears
            it.
        latency: Room for the targets of services.
        left: Memory (bytes) that other runs leave of each device where there are any, by its name.
        claimed: Memory (bytes) of such a device that the jobs of this run have, which may be more than that.
    """

    def __init__(
        self,
        lane_index: LaneIndex,
        profiling: Profiling,
        moves_freely: bool = False,
        enforces: bool = False,
        power: PowerRoom | None = None,
        grows: bool = True,
    ) -> None:
        """Memory fit without knowledge beyond the specifications of the jobs.

        Args:
            lane_index: Index of the lanes.
            profiling: Profiling windows, with the demands measured in this run.
            moves_freely: Whether jobs move between the lanes of a device at any time. Memory must then suffice for
                every distribution of the jobs over the lanes.
            enforces: Whether memory is enforced on the devices; see `Config.enforces_memory`.
            power: Room in a power budget by placement; None without one.
            grows: Whether the promise of a job is no limit on processors; see `Config.grows`.
        """
        self._lane_index, self._profiling, self._moves_freely = lane_index, profiling, moves_freely
        self._enforces, self._power, self._grows = enforces, power, grows
        self.latency = LatencyRoom(lane_index)
        self.left: dict[str, int] = {}
        self.claimed: dict[str, int] = {}
        self.regranted: dict[str, None] = {}
        self._shown_bytes: dict[str, int] = {}  # largest peak, by class
        self._family_bytes: dict[str, int] = {}  # largest peak, by script
        self._grown: dict[str, MemoryDemand] = {}  # demand beyond the measured one, by class
        self._suspects: set[str] = set()

    def capacity(self, device: Device) -> int:
        """Memory (bytes) of a device for the jobs of this run."""
        return min(device.memory_bytes, self.left.get(device.name, device.memory_bytes))

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
        """Note the memory that a running job was seen to take. Returns whether its grant has grown.

        The grant covers what was seen. Room ahead of that is granted as far as the device has free memory.
        """
        if not job.lanes or not (self._enforces or job.lanes[0].device.memory_is_watched):
            return False
        before, lane, usage, measured = job.demand, job.lanes[0], job.usage, self._measured(job)
        if measured is not None:
            larger = grown(measured, before.peak_bytes, usage.peak_bytes, usage.kept_bytes)
            if larger is None or job.widening > 1.0:
                return False
            self._grown[job.spec.job_class] = larger
        self._saw(job, usage.peak_bytes)
        wanted = self.demand(job, lane)
        if measured is None and wanted.peak_bytes <= before.peak_bytes and not lane.device.memory_is_watched:
            return False  # it was granted more, and gives the rest back when it was measured
        self.grant(job, cut(wanted, max(before.peak_bytes, usage.peak_bytes, self._free_bytes(job, lane))))
        return job.demand.peak_bytes > before.peak_bytes or job.demand.persistent_bytes > before.persistent_bytes

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

    def outgrown(self, lane: Lane) -> Job | None:
        """Job that must leave because the jobs of a device have outgrown its memory.

        A job that only starts loses nothing, and goes first. Otherwise it is a job that has taken more than it was
        promised at its start: the one that has held its turn for the shortest time. The result is None if the memory
        suffices, or if the job is alone. Jobs with room ahead of what they were seen to take lose it before.

        On processors no job must leave: peaks of several jobs may add up to more than they ever use at once. The warm
        server sees what they use, and ends one if that is too much (`Outcome.OUTGREW`).
        """
        jobs = [job for job in self._beside(lane) if not job.state.is_leaving]
        if len(jobs) < 2 or self._suffices(lane, jobs):
            return None
        for job in filter(self._is_short, jobs):
            least = self._measured(job) or MemoryDemand(job.usage.peak_bytes)
            least = bare(least) if self.limits_allocators(lane.device) else least
            if least.peak_bytes < job.demand.peak_bytes:
                self.grant(job, least)
        if lane.device.memory_is_watched or self._suffices(lane, jobs):
            return None
        able = [job for job in jobs if len(job.lanes) == 1 and (job.state is JobState.STARTING or self._is_short(job))]
        return min(
            able, key=lambda job: (job.state is not JobState.STARTING, job.usage.held_s, -job.number), default=None
        )

    def _suffices(self, lane: Lane, jobs: Sequence[Job]) -> bool:
        most_bytes = max(self.capacity(lane.device), self.claimed.get(lane.device.name, 0))
        return self.needed_bytes(lane.device.name, only=jobs) <= most_bytes

    def has_outgrown(self, job: Job) -> bool:
        """Whether a job has taken more memory than it was promised at its start."""
        return self._exceeds(job, job.usage.peak_bytes, job.usage.kept_bytes)

    def _is_short(self, job: Job) -> bool:
        """Whether a job takes, or its class was found to need, more memory than the job was promised at its start."""
        measured = self._measured(job) or MemoryDemand(0)
        return self.has_outgrown(job) or self._exceeds(job, measured.peak_bytes, measured.persistent_bytes)

    @staticmethod
    def _exceeds(job: Job, peak_bytes: int, kept_bytes: int) -> bool:
        promised = job.promised
        return peak_bytes > promised.peak_bytes or kept_bytes > promised.persistent_bytes + KEPT_ALLOWANCE_BYTES

    def could_have_more(self, job: Job, outcome: Outcome) -> bool:
        """Whether an attempt that has left its places for lack of memory had less memory than a job can have.

        It had less if other jobs were beside it, except services without an end, or if its allocator had a limit. On
        processors a script that fails for lack of memory by itself has met no limit of ecoshare.
        """
        if job.lanes[0].device.memory_is_watched:
            beside = (each for lane in job.lanes for each in self._beside(lane))
            return outcome is Outcome.OUTGREW and not all(each.spec.is_open_ended for each in beside)
        return job.cap_bytes < self._lane_index.limits()[2]

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
        if self._lane_index.is_idle(lane.device.name) and lane.device.name not in self.left:
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
        return self._in_any_lanes(device, demands) <= self.capacity(lane.device)

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
                joined = joins[needs] = needed_bytes <= self.capacity(lane.device)
            if joined and self.latency.has_lane(job, lanes):
                found.append(job)
        return found

    def fits_joined(self, job: Job, device: str) -> bool:
        """Whether the job would have room on a device if all jobs of the device took turns in one lane."""
        lane = self._lane_index.devices[device][0]
        return lane_bytes([*self._demands(lane), self.demand(job, lane)]) <= self.capacity(lane.device)

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
        return self.needed_bytes(device, newcomers) <= self.capacity(self._lane_index.devices[device][0].device)

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
        return self.capacity(lane.device) - self.needed_bytes(lane.device.name, only=others)

    def is_new(self, job: Job) -> bool:
        """Whether the class of a job is unknown, or its profile in doubt, and is measured as soon as the job is warm.

        A job that ends before that is not new: its neighbours need not wait for a window that never comes. If one job
        of a class ran to its end without a measurement, the others are taken to be too short for it, too.
        """
        if job.spec.job_class in self._shown_bytes or not self._profiling.will(job):
            return False
        return not self._profiling.ends_soon(job, job.told_s)

    def gets_warm(self, job: Job) -> bool:
        """Whether a running job has begun, and its class will have its first window as soon as it is warm."""
        if job.state is not JobState.RUNNING or not job.usage.done or not self.is_new(job):
            return False
        return not self._profiling.has_tried(job)

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

    def limits_allocators(self, device: Device) -> bool:
        """Whether the allocators of jobs on a device have limits: in live runs on GPUs."""
        return self._enforces and not device.memory_is_watched

    def regrant(self, job: Job) -> bool:
        """Grant a running job what it needs by present knowledge. Returns whether that differs from its grant."""
        before, job.least_bytes = job.demand, max(job.least_bytes, job.usage.peak_bytes)
        self.grant(job, self.demand(job, job.lanes[0]))
        return job.demand != before

    def grant(self, job: Job, demand: MemoryDemand) -> None:
        """Change what a running job is granted."""
        job.demand = demand
        self.regranted.update(dict.fromkeys(job.device_names))

    def demand(self, job: Job, lane: Lane) -> MemoryDemand:
        """Memory that the job must be granted in the lane: see the class."""
        return self._demand(job, lane, self.capacity(lane.device))

    def wanted_bytes(self, job: Job, lane: Lane) -> int:
        """Memory (bytes) that a job would be granted in the lane if no other run were there."""
        return self._demand(job, lane, lane.device.memory_bytes).peak_bytes

    def _demand(self, job: Job, lane: Lane, shared_bytes: int) -> MemoryDemand:
        """See `demand`. Jobs of unseen classes have equal parts of so much memory (bytes)."""
        device_bytes = lane.device.memory_bytes
        if job.parked_in is not None:
            return job.demand  # the process lives, with this limit of its allocator
        if job.whole_device:
            served = [each for each in self._beside(lane) if each.spec.is_open_ended and each is not job]
            return MemoryDemand(max(0, device_bytes - cached_bytes(each.demand for each in served)))
        if (
            job.widening > 1.0
        ):  # no other job is there, and gradients that ranks exchange are in no profile of one device
            return MemoryDemand(min(each.device.memory_bytes for each in job.lanes))
        measured = self._measured(job)
        if measured is not None:
            demand = promised(measured, device_bytes) if self._enforces else measured
        else:
            seen_bytes = int(SPARE * self._seen_bytes(job))
            if lane.device.memory_is_watched or self._enforces:
                watched = lane.device.memory_is_watched
                unseen_bytes = UNSEEN_BYTES if watched else self._share_bytes(job, lane, shared_bytes)
                seen_bytes = max(seen_bytes or unseen_bytes, int(SPARE * job.usage.peak_bytes))
            demand = MemoryDemand(seen_bytes or self._share_bytes(job, lane, shared_bytes))
        share_bytes = self._share_bytes(job, lane, shared_bytes) if job.spec.has_lanes_alone else 0
        least_bytes = max(job.least_bytes, share_bytes)
        if demand.peak_bytes < least_bytes:
            demand = MemoryDemand(least_bytes)
        return demand if demand.peak_bytes <= device_bytes else MemoryDemand(device_bytes)

    def _share_bytes(self, job: Job, lane: Lane, device_bytes: int) -> int:
        """Equal share of the device: for a gang that has its lanes to itself, a lane's; else the share of a place."""
        lanes = 1 if self._moves_freely else len(self._lane_index.devices[lane.device.name])
        share_bytes = device_bytes // (lanes if job.spec.has_lanes_alone else lanes * lane.places)
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
        """Memory (bytes) that an attempt is promised at its start."""
        lane, measured = lanes[0], self._measured(job)
        if measured is not None and job.demand == measured:  # not enforced: the allowance is no part of the demand
            return promised(measured, lane.device.memory_bytes).peak_bytes
        if measured is None and lane.device.memory_is_watched and not self._grows:
            room_bytes = max(self._free_bytes(job, lane), UNSEEN_BYTES)
            return max(job.demand.peak_bytes, min(room_bytes, lane.device.memory_bytes - 1))
        return job.demand.peak_bytes

    def free_bytes(self, device: str, keeps_caches: bool) -> int:
        """Memory (bytes) that is left of a device if its jobs take all that they are granted, in whichever lanes."""
        return self.capacity(self._lane_index.devices[device][0].device) - self.held_bytes(device, keeps_caches)

    def held_bytes(self, device: str, keeps_caches: bool) -> int:
        """Memory (bytes) of a device that its jobs were granted, in whichever lanes."""
        demands = self._demands(self._lane_index.devices[device][0])
        return cached_bytes(demands) if keeps_caches else self._in_any_lanes(device, demands)

    def is_measured(self, job: Job) -> bool:
        """Whether the memory demand of the job's class is known from a measurement."""
        return self._measured(job) is not None

    def _measured(self, job: Job) -> MemoryDemand | None:
        measured = self._profiling.memory.get(job.spec.job_class) or job.spec.memory
        larger = self._grown.get(job.spec.job_class)
        if measured is None or larger is None:
            return measured
        return MemoryDemand(
            max(measured.persistent_bytes, larger.persistent_bytes),
            max(measured.ephemeral_bytes, larger.ephemeral_bytes),
        )


def _needs(job: Job) -> tuple[object, ...]:
    """Key of everything in a job that its demand depends on."""
    spec, seen = job.spec, job.usage.peak_bytes
    lanes = spec.gpus, spec.takes_turns, job.widening
    return (spec.job_class, _family(job), spec.memory, lanes, job.whole_device, job.least_bytes, seen)


def _family(job: Job) -> str:
    return job.spec.solo.family if job.spec.solo is not None else ""
