"""Rules for the allocators of running jobs: whether they keep their caches, and how much memory they may take.

::

    caches        they are kept while the memory suffices for all; else each job empties its own at a hand-over
    limits        │ demand A │ room │ demand B │ room │      the room of each job is an equal part of what is free

    B starts      ──LimitMemory(A: less room), StartJob(B)──►  the driver holds the start until A has answered
    A has grown   ──LimitMemory(B: less room)──► Done ──LimitMemory(A: more)──►
    A keeps more  ◄──Refused──  A is granted what it may take, and B waits for its place again

Limits exist in live runs on GPUs, where the allocator of a job fails at its limit. On processors nothing limits a job
but the memory of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ecoshare.base.class_profile import MemoryDemand
from ecoshare.core.commands import Command, LimitMemory, SetCaching, ShareMemory, StartJob
from ecoshare.core.events import MemoryLeft
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.placement.memory_fit import MemoryFit
from ecoshare.core.records import Job, JobState, Lane


@dataclass(frozen=True, slots=True)
class _Asked:
    """Limit that a job was asked to keep, and has not answered."""

    job: Job
    cap_bytes: int


class AllocatorRules:
    """Caches and limits of the jobs of all devices. Caches are kept at first."""

    def __init__(
        self, fit: MemoryFit, lane_index: LaneIndex, jobs: Mapping[str, Job], next_id: Callable[[], int]
    ) -> None:
        """Memory by the grants of a memory fit.

        Args:
            fit: Memory fit of jobs and lanes.
            lane_index: Index of the lanes.
            jobs: All jobs, by name.
            next_id: Function that returns the id of the next command.
        """
        self._fit, self._lane_index, self._jobs, self._next_id = fit, lane_index, jobs, next_id
        self._emptied: set[str] = set()
        self._changed: dict[str, None] = {}
        self._asked: dict[int, _Asked] = {}
        self._refused_at: dict[Job, int] = {}  # iterations that the job had done
        self._emptying: dict[int, str] = {}  # device of each command to empty caches that has no answer yet
        self._numbers: dict[str, int] = {}  # number of the last `MemoryLeft`, by device
        self._told: dict[str, tuple[int, int, int, int]] = {}  # facts of the last `ShareMemory` of each device

    @property
    def emptied(self) -> tuple[str, ...]:
        """Names of the devices where waiting jobs empty their caches, sorted."""
        return tuple(sorted(self._emptied))

    @property
    def asked(self) -> tuple[tuple[int, str, int], ...]:
        """Limits that have no answer yet, as (id of the command, job, bytes)."""
        return tuple((command, each.job.spec.name, each.cap_bytes) for command, each in self._asked.items())

    @property
    def shared(self) -> tuple[tuple[str, int, int], ...]:
        """Memory that other runs leave of devices, as (device, bytes, number of the `MemoryLeft`), sorted."""
        return tuple((name, left, self._numbers.get(name, 0)) for name, left in sorted(self._fit.left.items()))

    def go_on(self, emptied: Iterable[str], shared: Iterable[tuple[str, int, int]]) -> None:
        """Take over the devices where waiting jobs empty their caches, and those that are shared with other runs."""
        for device in emptied:
            self._set_caching(device, is_kept=False)
        self._fit.left.clear()
        for device, left_bytes, number in shared:
            self._fit.left[device], self._numbers[device] = left_bytes, number

    def _set_caching(self, device: str, is_kept: bool) -> None:
        (self._emptied.discard if is_kept else self._emptied.add)(device)
        for lane in self._lane_index.devices[device]:
            lane.empties = not is_kept

    def await_limits(self, asked: Iterable[tuple[int, str, int]]) -> None:
        """Take over limits that have no answer yet. Their jobs are there by now."""
        self._asked.update({command: _Asked(self._jobs[job], cap_bytes) for command, job, cap_bytes in asked})

    def leave(self, event: MemoryLeft) -> None:
        """Note how much memory of a device other runs leave this one, or that no other run is there any more."""
        device = event.device
        self._numbers[device] = event.number
        if event.others:
            self._fit.left[device] = event.memory_bytes
        else:
            for told in (self._fit.left, self._fit.claimed, self._told):
                told.pop(device, None)
        self.look(self._lane_index.devices[device])

    def caches_are_set(self, command: int) -> None:
        """Note that a `SetCaching` command is carried out: memory of emptied caches can be left to other runs."""
        self._emptying.pop(command, None)

    def shares(self, waiting: Iterable[Job]) -> Iterator[ShareMemory]:
        """Commands that leave the memory of devices which this run does not use to the others there.

        Args:
            waiting: Jobs that wait for a place, in order.
        """
        for device in self._fit.left:
            if not (lanes := self._lane_index.devices.get(device)):
                continue  # it has failed
            lane = lanes[0]
            is_kept = device not in self._emptied or device in self._emptying.values()
            held_bytes = self._fit.held_bytes(device, is_kept) + sum(map(self._room_bytes, self._with_room(device)))
            wanted_bytes, needed_bytes = held_bytes, 0
            for job in waiting:
                if wanted_bytes >= lane.device.memory_bytes:
                    break
                if not held_bytes:
                    needed_bytes = needed_bytes or self._fit.demand(job, lane).peak_bytes
                wanted_bytes += self._fit.wanted_bytes(job, lane)
            wanted_bytes = min(wanted_bytes, lane.device.memory_bytes)
            shared = held_bytes, wanted_bytes, needed_bytes, self._numbers.get(device, 0)
            if shared != self._told.get(device):
                self._told[device] = shared
                self._fit.claimed[device] = held_bytes
                yield ShareMemory(self._next_id(), device, *shared)

    def look(self, lanes: Iterable[Lane]) -> None:
        """Note that jobs have come to these lanes or have left them."""
        self._changed.update({lane.device.name: None for lane in lanes})

    def left(self, job: Job) -> None:
        """Note that a job leaves its places: a limit has no answer any more."""
        self._refused_at.pop(job, None)
        self._asked = {command: each for command, each in self._asked.items() if each.job is not job}

    def with_limits(self, commands: Sequence[Command]) -> list[Command]:
        """Commands of the scheduler, with those about memory before them, and limits with room for jobs that start.

        Commands about memory follow for the devices of which jobs or grants have changed.
        """
        if not self._changed and not self._fit.regranted:
            return list(commands)
        self._changed.update(self._fit.regranted)
        self._fit.regranted.clear()
        starts = [self._jobs[each.job] for each in commands if isinstance(each, StartJob)]
        before: list[Command] = []
        for device in self._changed:
            is_kept = self._keeps_caches(device)
            if is_kept == (device in self._emptied):
                self._set_caching(device, is_kept)
                before.append(SetCaching(command := self._next_id(), device, is_kept))
                if not is_kept:
                    self._emptying[command] = device
            if self._has_limits(device):
                for job in starts:
                    self._make_room(job, device)
                before += self._limits(device)
        self._changed.clear()
        limited = (
            replace(each, cap_bytes=self._jobs[each.job].cap_bytes) if isinstance(each, StartJob) else each
            for each in commands
        )
        return [*before, *limited]

    def _keeps_caches(self, device: str) -> bool:
        """Whether waiting jobs may keep their caches: the memory suffices for all that they are granted.

        Emptied caches stay so until there is some more memory, if allocators have limits: each change lowers some.
        """
        spare_bytes = self._fit.free_bytes(device, keeps_caches=True)
        more_bytes = 0
        if device in self._emptied and self._has_limits(device):
            more_bytes = self._lane_index.devices[device][0].device.memory_bytes // 8
        return spare_bytes >= more_bytes

    # Limits

    def _make_room(self, job: Job, device: str) -> None:
        """Give a job that starts room above its demand if nothing was measured of its class.

        Another job gets room after its first boundary: until then it takes what was measured, and could not lower its
        limit for a newcomer.
        """
        if device in job.device_names and self._may_have_room(job) and not self._fit.is_measured(job):
            job.cap_bytes = job.demand.peak_bytes + self._fair_bytes(device)

    def owns(self, command: int) -> bool:
        """Whether a command is a limit that has no answer yet."""
        return command in self._asked

    def answered(self, command: int, is_limited: bool) -> Job:
        """Note the answer to a limit. A job that keeps more than it was asked to is granted all that it may take.

        Returns:
            The job.
        """
        asked = self._asked.pop(command)
        job = asked.job
        if is_limited:
            job.cap_bytes = asked.cap_bytes
        elif asked.cap_bytes < job.cap_bytes:
            kept_bytes = job.cap_bytes - job.demand.ephemeral_bytes
            self._fit.grant(job, MemoryDemand(kept_bytes, job.demand.ephemeral_bytes))
            self._refused_at[job] = job.usage.done
        self.look(job.lanes)
        return job

    def _limits(self, device: str) -> Iterator[LimitMemory]:
        """Limits that share the free memory out again, if the device lacks memory or a job has little room left.

        Rooms are lowered first. Memory that was given back raises those of other jobs at the next look.
        """
        rooms = {job: self._room_bytes(job) for job in self._with_room(device)}
        fair_bytes, left_bytes = self._fair_bytes(device), self._free_bytes(device) - sum(rooms.values())
        asked = {each.job for each in self._asked.values()}
        able = [job for job in rooms if job.state is JobState.RUNNING and job not in asked]
        short = [job for job in able if job.usage.done and rooms[job] < fair_bytes // 2]
        if left_bytes < sum(fair_bytes - rooms[job] for job in short):
            for job in able:
                enough_bytes = fair_bytes + (fair_bytes // 8 if left_bytes >= 0 else 0)
                if rooms[job] > enough_bytes and self._may_lower(job):
                    yield self._ask(job, fair_bytes)
        for job in able:
            more_bytes = min(fair_bytes - rooms[job], left_bytes) if job in short else 0
            is_worth_it = more_bytes > fair_bytes // 4
            if is_worth_it or job.cap_bytes < job.demand.peak_bytes:
                left_bytes -= max(0, more_bytes)
                yield self._ask(job, rooms[job] + max(0, more_bytes))

    def _may_lower(self, job: Job) -> bool:
        """Whether a job may be asked for less.

        A job that keeps more is not asked again in this attempt. One that had come to no boundary is, when it has.
        """
        done = self._refused_at.get(job)
        return done is None or done == 0 < job.usage.done

    def _has_limits(self, device: str) -> bool:
        return self._fit.limits_allocators(self._lane_index.devices[device][0].device)

    def _may_have_room(self, job: Job) -> bool:
        """Whether the limit of a job's allocator may be above its demand: it has one allocator, and to itself."""
        return len(job.lanes) == 1 and not job.fused and self._has_limits(job.lanes[0].device.name)

    def _with_room(self, device: str) -> list[Job]:
        jobs = (job for lane in self._lane_index.devices[device] for job in lane.jobs.values())
        return [job for job in jobs if self._may_have_room(job)]

    def _free_bytes(self, device: str) -> int:
        return self._fit.free_bytes(device, self._keeps_caches(device))

    def _fair_bytes(self, device: str) -> int:
        """Memory (bytes) above its demand that each job of a device may take: an equal part of what is free."""
        return max(0, self._free_bytes(device)) // max(1, len(self._with_room(device)))

    def _room_bytes(self, job: Job) -> int:
        """Memory (bytes) above its demand that a job may take now, or has been allowed to."""
        allowed = [each.cap_bytes for each in self._asked.values() if each.job is job]
        return max(0, max([job.cap_bytes, *allowed]) - job.demand.peak_bytes)

    def _ask(self, job: Job, room_bytes: int) -> LimitMemory:
        command = self._next_id()
        cap_bytes = job.demand.peak_bytes + room_bytes
        self._asked[command] = _Asked(job, cap_bytes)
        return LimitMemory(command, job.spec.name, job.attempt, cap_bytes)
