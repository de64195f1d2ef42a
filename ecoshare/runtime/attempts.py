"""Attempts in progress during a run, with the lanes' tables that they have slots in.

::

    StartJob ──► start: a slot in each lane ──► Launched ... usage, memory, progress ... Ended ──► end
                                            └─► NotLaunched ──► give_up

Each reader of a job's table follows the job first: it may have moved to another lane meanwhile.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ecoshare.common.clock import REAL, Clock
from ecoshare.common.plural import counted
from ecoshare.core.commands import LimitMemory, OpenLane, SetShares, StartJob
from ecoshare.core.events import Event
from ecoshare.core.memory import KEPT_ALLOWANCE_BYTES
from ecoshare.errors import UnfitEnvironment
from ecoshare.lane import attempt_process, processes
from ecoshare.lane.gang_table import GangTable
from ecoshare.lane.lane_table import LaneTable, lane_path
from ecoshare.lane.messages import Ended, MoveAttempt
from ecoshare.lane.table_layout import BoundaryRequest, Slot, SlotState
from ecoshare.record import samples
from ecoshare.record.samples import AttemptProgress
from ecoshare.runtime.lane_moves import Moving
from ecoshare.runtime.memory_watch import Footprints
from ecoshare.runtime.node_job import NodeJob
from ecoshare.values.attempt import Usage
from ecoshare.values.device import DeviceInfo

_PROGRESS_SHARE = 0.01
_PROGRESS_AT_LEAST_S = 60.0
"""Progress of a job is reported when the job has done a hundredth more than was known, or when a minute has passed.

This is enough for any policy, and gives a log of a few megabytes a day.
"""

_ANSWERS_SHARE = 0.2
"""The same part for a service. No policy goes by its answers, and services answer faster than jobs iterate."""

_GROWTH, _GROWN_BYTES = 1.1, 64 << 20
"""Ratio of the memory of a job to its reported memory, and memory beyond it, from which on it is reported at once."""


@dataclass(slots=True)
class LiveAttempt:
    """An attempt that the supervisor was asked to start, and that has no reported end.

    Attributes:
        places: Lane and slot on each device of the job.
        owner: ID of the command that the slots were prepared for.
        known: Usage that was last reported to the core.
        seen: Usage that was last read.
        told_s: Time (s) in the run of the last report to the core.
        keeps_lane: Reason, in words, why the attempt keeps its lane to its end; empty if it does not, as far as known.
        spent_s: Processor time (s) in each of its lanes that was last read.
        measured_s: Time (s) in the run of the last look at its memory.
        command: Id of the command that started it.
    """

    job: NodeJob
    attempt: int
    places: tuple[tuple[int, int], ...]
    owner: int
    known: Usage = field(default_factory=Usage)
    seen: Usage = field(default_factory=Usage)
    told_s: float = 0.0
    keeps_lane: str = ""
    spent_s: dict[int, float] = field(default_factory=dict)
    measured_s: float = 0.0
    command: int = 0

    @property
    def key(self) -> str:
        """Key of the attempt in the samples."""
        return samples.attempt_key(self.job.spec.name, self.attempt)

    def is_news(self, usage: Usage, now_s: float) -> bool:
        """Whether the core needs to know of this usage: progress, memory that has grown, or a lane that is kept."""
        before = self.known
        if usage.peak_bytes > min(_GROWTH * before.peak_bytes, before.peak_bytes + _GROWN_BYTES):
            return True
        if usage.kept_bytes > before.kept_bytes + KEPT_ALLOWANCE_BYTES or usage.keeps_lane != before.keeps_lane:
            return True
        more, late = usage.done - before.done, now_s - self.told_s > _PROGRESS_AT_LEAST_S
        share = _PROGRESS_SHARE if self.job.spec.service is None else _ANSWERS_SHARE
        return bool(more) and (more >= share * before.done or late)


class Attempts:
    """Attempts in progress, and the tables of the run's lanes.

    Attributes:
        live: Attempts in progress, by job.
        tables: Table of each open lane, by number.
        moving: Moves of jobs between lanes.
        context_bytes: Returns the memory (bytes) outside the allocator of a process of a job class.
    """

    def __init__(
        self,
        shared: Path,
        places: int,
        send: Callable[[MoveAttempt], None],
        tell: Callable[[Callable[..., Event]], None],
        context_bytes: Callable[[str], int] = lambda job_class: 0,
        clock: Clock = REAL,
    ) -> None:
        """No attempt, and no lane yet.

        Args:
            shared: Private folder in memory, for the tables.
            places: Most jobs that the core lets into a lane.
            send: Sends a message to the supervisor.
            tell: Reports an event to the core.
            context_bytes: Returns the memory (bytes) outside the allocator of a process of a job class.
            clock: Time of the run.
        """
        self.context_bytes, self._clock = context_bytes, clock
        self.live: dict[str, LiveAttempt] = {}
        self.tables: dict[int, LaneTable] = {}
        self.moving = Moving(self.tables, self.live, places, send, tell)
        self._shared = shared
        self._device_of: dict[int, str] = {}
        self._ended: dict[str, dict[str, AttemptProgress]] = defaultdict(dict)
        self._footprints = Footprints()

    # Services

    def limit_batches(self, device: DeviceInfo, most: int) -> None:
        """Tell the services of a device the largest batch that they may form; 0 for any that their jobs allow."""
        for name, own in self.live.items():
            if own.job.spec.service is not None and self._is_on(own, device):
                self.slot(name).most_batch = most

    # Lanes

    def open_lane(self, command: OpenLane, tell_of_hung: Callable[[int], None]) -> None:
        """Make the table of a lane.

        Args:
            tell_of_hung: Called with a process that is stopped while it holds the lock of the table.

        Raises:
            UnfitEnvironment: The table cannot be written.
        """
        try:
            table = LaneTable.create(lane_path(self._shared, command.lane), clock_s=self._clock.monotonic_s)
        except OSError as error:
            raise UnfitEnvironment(
                f"cannot write the table of a lane in {self._shared}: {error.strerror or error}",
                f"make room in {self._shared.parent} (docker: --shm-size), "
                "or lift the limit on the size of files (`ulimit -f`)",
            ) from error
        table.tell_of_hung(tell_of_hung)
        self.tables[command.lane], self._device_of[command.lane] = table, command.device

    def device_of(self, lane: int) -> str:
        """Name of the device of a lane."""
        return self._device_of[lane]

    def tables_of(self, device: str) -> dict[int, LaneTable]:
        """Tables of the lanes of a device, by number."""
        return {lane: table for lane, table in self.tables.items() if self._device_of[lane] == device}

    def set_shares(self, command: SetShares) -> None:
        """Write the order of the jobs of a lane into its table."""
        claims = {}
        for share in command.shares:
            own = self.live.get(share.job)
            for lane, slot in own.places if own is not None else ():
                if lane == command.lane:
                    claims[slot] = (share.rank, share.weight)
        self.tables[command.lane].claim(claims)

    # Attempts

    def gang_table(self, own: LiveAttempt) -> str:
        """Path of a new table for the ranks of an attempt. The ranks of a part of a gang end together, too.

        Raises:
            UnfitEnvironment: The table cannot be written.
        """
        path = self._gang_path(own.command)
        try:
            GangTable.create(path, len(own.places)).close()
        except OSError as error:
            raise UnfitEnvironment(f"cannot write {path}: {error.strerror or error}") from error
        return str(path)

    def _gang_path(self, command: int) -> Path:
        return self._shared / f"gang{command}"

    def start(self, command: StartJob, job: NodeJob) -> LiveAttempt:
        """Prepare a slot in each lane of the command for an attempt."""
        # One order for all gangs: each takes the turn of its lanes in this order, so that no two wait for each other.
        places = tuple((lane, self.moving.free_slots(lane)[0]) for lane in sorted(command.lanes))
        for lane, slot in places:
            self.tables[lane].seat(slot, command.id)
        own = self.live[command.job] = LiveAttempt(job, command.attempt, places, command.id, command=command.id)
        if len(places) > 1 and not job.has_ranks:
            own.keeps_lane = f"one process uses {counted(len(places), 'device')}"
        if job.part is not None:
            own.keeps_lane = f"its ranks run on {counted(job.part.nodes, 'node')}"
        return own

    def give_up(self, command: int) -> None:
        """Free the slots of an attempt that was not launched, by the ID of its command."""
        name = next(name for name, own in self.live.items() if own.command == command)
        self._gang_path(command).unlink(missing_ok=True)
        self.free(self.live.pop(name))
        self.moving.ended(name)

    def free(self, own: LiveAttempt) -> None:
        """Free the slots of an attempt that has no process any more."""
        for lane, slot in own.places:
            self.tables[lane].free(slot, own.owner)

    def end(self, ended: Ended) -> Usage | None:
        """Take out an attempt that has ended, and return its usage; None if it is not in progress."""
        own = self.live.get(ended.job)
        if own is None or own.attempt != ended.attempt:
            return None
        del self.live[ended.job]
        if own.job.has_ranks:
            self._gang_path(own.command).unlink(missing_ok=True)
        usage = self._with_context(own, Usage(**ended.usage)) if ended.usage else own.seen
        # The kernel's peak is that of one process, and the job may have several.
        peak_bytes = max(usage.peak_bytes, self._footprints.largest_seen_bytes(own.key))
        usage = replace(usage, peak_bytes=peak_bytes, keeps_lane=own.keeps_lane)
        left_s = usage.cpu_s - sum(own.spent_s.get(lane, 0.0) for lane, _ in own.places)
        for lane, _ in own.places:
            part = replace(usage, cpu_s=own.spent_s.get(lane, 0.0) + left_s / len(own.places))
            self._ended[self._device_of[lane]][own.key] = _progress(own, lane, part, None)
        self._footprints.forget(own.key)
        return usage

    # Readings

    def usage(self, name: str) -> Usage:
        """Usage so far of a job in progress, from the table of its lane."""
        own = self.live[name]
        for _ in range(2):  # twice, since the job may move to another lane meanwhile
            slot = self.slot(name)
            usage = Usage(**attempt_process.usage(slot, self._clock.monotonic_s))
            if slot.seat != SlotState.EMPTY:
                # A read within a turn may exceed its final value by a few microseconds, and totals must not decrease.
                usage = self._with_context(own, usage)
                own.seen = replace(usage, held_s=max(usage.held_s, own.seen.held_s), keeps_lane=own.keeps_lane)
                break
        return own.seen  # the last value read, if the job has ended and its end is not reported yet

    def _with_context(self, own: LiveAttempt, usage: Usage) -> Usage:
        """Usage with the context of a job on a GPU, which tells the memory of its allocator."""
        if not usage.kept_bytes:
            return usage
        context_bytes = self.context_bytes(own.job.spec.job_class)
        peak_bytes, kept_bytes = usage.peak_bytes + context_bytes, usage.kept_bytes + context_bytes
        return replace(usage, peak_bytes=peak_bytes, kept_bytes=kept_bytes)

    def slot(self, name: str) -> Slot:
        """Present slot of a job in progress; of several, the one that has its counters."""
        self.moving.follow(name)
        lane, index = self.live[name].places[0]
        return self.tables[lane].slots[index]

    def _process_on(self, name: str, device: DeviceInfo) -> tuple[int, bool]:
        """Process of a job on a device, as `Slot.process` tells it: that of the rank there, if the job has ranks."""
        own = self.live[name]
        if not own.job.has_ranks:
            return self.slot(name).process()
        lane, index = next(place for place in own.places if self._device_of[place[0]] == device.name)
        return self.tables[lane].slots[index].process()

    def limit(self, command: LimitMemory, allocator_bytes: int) -> BoundaryRequest | None:
        """Ask a job for another memory limit at its next boundary; call again until the answer is there.

        Args:
            command: Command of the core.
            allocator_bytes: Part of the memory that the allocator of the job may take.

        Returns:
            `LIMIT` until there is an answer, `NOTHING` if the limit is in force, `UNFIT` if the job keeps more than
            that. None if the attempt is over.
        """
        own = self.live.get(command.job)
        if own is None or own.attempt != command.attempt:
            return None
        slot = self.slot(command.job)
        if slot.limited_bytes == allocator_bytes:
            return BoundaryRequest.NOTHING
        if slot.ask == BoundaryRequest.UNFIT:
            slot.ask = BoundaryRequest.NOTHING
            return BoundaryRequest.UNFIT
        if slot.ask == BoundaryRequest.NOTHING:  # not asked yet, or the job has moved to another slot meanwhile
            slot.cap_bytes = allocator_bytes
            slot.ask = BoundaryRequest.LIMIT
        return BoundaryRequest.LIMIT

    def unlimit(self, command: LimitMemory) -> None:
        """Take back what `limit` has asked of a job, if the attempt goes on."""
        own = self.live.get(command.job)
        if own is not None and own.attempt == command.attempt and self.slot(command.job).ask == BoundaryRequest.LIMIT:
            self.slot(command.job).ask = BoundaryRequest.NOTHING

    def largest_seen_bytes(self, name: str) -> int:
        """Result of the last `peak_bytes` of a job; 0 without one."""
        return self._footprints.largest_seen_bytes(self.live[name].key)

    def peak_bytes(self, name: str) -> int:
        """Largest memory (bytes) seen of a job on processors, or of its first rank; 0 without a process of its own."""
        pid, is_fused = self.slot(name).process()
        return 0 if is_fused or not pid else self._footprints.peak_bytes(self.live[name].key, processes.family(pid))

    def with_children_on(self, device: DeviceInfo, on_device: Collection[int]) -> list[LiveAttempt]:
        """Attempts on a device of which other processes than the first use it.

        Args:
            on_device: Processes on the device, as far as its driver reports them.
        """
        shown = {name: self._process_on(name, device) for name, own in self.live.items() if self._is_on(own, device)}
        own_pids = {name: pid for name, (pid, is_fused) in shown.items() if pid and not is_fused}
        others = set(on_device) - set(own_pids.values())
        if not others:  # the usual case, which needs no look at families
            return []
        return [self.live[name] for name, pid in own_pids.items() if not others.isdisjoint(processes.family(pid))]

    def progress_on(self, device: DeviceInfo, on_device: Mapping[int, int]) -> dict[str, AttemptProgress]:
        """Progress of each attempt on a device, and once more of each attempt that ended since the last call.

        Args:
            on_device: Memory (bytes) of each process on the device, as far as its driver reports it.
        """
        done = self._ended.pop(device.name, {})
        names = [name for name, own in self.live.items() if self._is_on(own, device)]
        usages = {name: self.usage(name) for name in names}
        shown = {name: self._process_on(name, device) for name in names}  # once, as processes come and go
        sharing = Counter(pid for pid, _ in shown.values())
        for name in names:
            own, usage, (pid, is_fused) = self.live[name], usages[name], shown[name]
            family = processes.family(pid)
            spent_s = usage.cpu_s if is_fused else max(processes.processor_s(family), usage.cpu_s)
            if not own.job.has_ranks:  # the kernel does not tell by partition what one process has used
                spent_s /= len(own.places)
            reported = None if device.on_processors else on_device
            memory_bytes = self._footprints.bytes(own.key, family, reported, sharing[pid])
            lane = next(lane for lane, _ in own.places if self._device_of[lane] == device.name)
            own.spent_s[lane] = spent_s
            done[own.key] = _progress(own, lane, replace(usage, cpu_s=spent_s), memory_bytes)
        return done

    def _is_on(self, own: LiveAttempt, device: DeviceInfo) -> bool:
        return any(self._device_of[lane] == device.name for lane, _ in own.places)


def _progress(own: LiveAttempt, lane: int, usage: Usage, memory_bytes: int | None) -> AttemptProgress:
    """Progress of an attempt in one lane, with the processor time of `usage`. Iterations count in the first lane."""
    is_first = lane == own.places[0][0] and own.job.has_first_rank
    return AttemptProgress(
        lane,
        usage.held_s,
        usage.iterations if is_first else 0,
        usage.eval_iterations if is_first else 0,
        usage.cpu_s,
        memory_bytes,
    )
