"""Audit of a simulation: allocations, work and energy, added up independently of the simulator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.plural import counted
from ecoshare.core.commands import Command, KillJob, MoveJob, OpenLane, ParkJob, ResumeJob, StartJob
from ecoshare.core.events import Done, Event, JobExited, Parked, Resumed
from ecoshare.simulation.cluster import Cluster
from ecoshare.simulation.traces.job_trace import Trace, TraceJob
from ecoshare.simulation.world import World


class AllocationAudit:
    """Totals of a run, computed from its events and commands alone.

    Attributes:
        faults: Allocation faults, in words: a resource given twice, or a gang that got only a part.
        worked_s: Seconds for which each job was started and had its places.
        iterations: Iterations of each job over all attempts.
        energy_j: Energy (J) of all devices since the first arrival.
    """

    def __init__(
        self,
        trace: Trace,
        cluster: Cluster,
        world: World,
        places: int,
        log: Iterable[tuple[Event, Sequence[Command]]],
    ) -> None:
        """Follow a run from its first arrival to the end of its log.

        Args:
            places: Places of each lane.
            log: Events, each with the commands that the core answered.
        """
        self.faults: list[str] = []
        self.worked_s: dict[str, float] = dict.fromkeys((job.name for job in trace.jobs), 0.0)
        self.iterations: Counter[str] = Counter()
        self.energy_j = 0.0
        self._jobs = {job.name: cluster.with_share(job) for job in trace.jobs}
        self._cluster, self._world, self._places = cluster, world, places
        self._opened: dict[int, OpenLane] = {}
        self._inside: dict[int, dict[str, MemoryDemand]] = {}
        self._held: dict[str, tuple[int, ...]] = {}
        self._starts: dict[int, str] = {}
        self._moves: dict[int, MoveJob] = {}
        self._transfers: dict[int, ParkJob | ResumeJob] = {}
        self._parked: dict[str, MemoryDemand] = {}
        self._at_work: dict[str, None] = {}
        self._at_s = trace.jobs[0].arrival_s
        for event, commands in log:
            self._follow(event, commands)

    def _follow(self, event: Event, commands: Sequence[Command]) -> None:
        self._pass(event.at_s)
        if isinstance(event, Done) and event.command in self._starts:
            self._at_work[self._starts.pop(event.command)] = None
        elif isinstance(event, Done) and event.command in self._moves:
            self._move(self._moves.pop(event.command))
        elif isinstance(event, Parked):
            name = self._transfers.pop(event.command).job
            (lane,) = self._held.pop(name)
            self._parked[name] = self._inside[lane].pop(name)
        elif isinstance(event, Resumed):
            self._at_work[self._transfers.pop(event.command).job] = None
        elif isinstance(event, JobExited):
            self._at_work.pop(event.job, None)
            self.iterations[event.job] += event.usage.iterations
            for lane in self._held.pop(event.job):
                del self._inside[lane][event.job]
        for command in commands:
            match command:
                case OpenLane():
                    self._opened[command.lane], self._inside[command.lane] = command, {}
                case StartJob():
                    self._take(command)
                case MoveJob():
                    self._moves[command.id] = command
                case ParkJob():
                    self._transfers[command.id] = command
                    self._at_work.pop(command.job, None)
                case ResumeJob():
                    self._transfers[command.id] = command
                    self._resume(command)
                case KillJob():
                    self._at_work.pop(command.job, None)

    def _pass(self, at_s: float) -> None:
        passed_s = max(0.0, at_s - self._at_s)
        by_lane = {lane: self._jobs[name] for name in self._at_work for lane in self._held[name]}
        devices: dict[str, list[TraceJob]] = {}
        for lane, job in by_lane.items():
            devices.setdefault(self._opened[lane].device, []).append(job)
        active_w = sum(self._world.device_watts(jobs) for jobs in devices.values())
        watts = self._cluster.size * self._world.gpu.idle_w + active_w
        self.energy_j += watts * passed_s
        for name in self._at_work:
            self.worked_s[name] += passed_s
        self._at_s += passed_s

    def _resume(self, command: ResumeJob) -> None:
        if command.job not in self._parked:
            self.faults.append(f"job {command.job} was resumed and is not parked")
            return
        self._inside[command.lane][command.job] = self._parked.pop(command.job)
        self._held[command.job] = (command.lane,)
        self._check(command.lane, starts=True)

    def _move(self, command: MoveJob) -> None:
        (before,) = self._held[command.job]
        if command.job not in self._inside[before]:
            self.faults.append(f"job {command.job} was moved and is not there")
            return
        self._inside[command.lane][command.job] = self._inside[before].pop(command.job)
        self._held[command.job] = (command.lane,)
        device, there = self._opened[command.lane].device, self._opened[before].device
        if device != there:
            self.faults.append(f"job {command.job} was moved from {there} to {device}")
        self._check(command.lane)

    def _check(self, lane: int, starts: bool = False) -> None:
        """Note a fault if a device has too few places or too little memory, or a lane too few places for a start."""
        inside, names = self._inside[lane], ", ".join(self._inside[lane])
        device = self._opened[lane].device
        lanes = [self._inside[number] for number, each in self._opened.items() if each.device == device]
        needed = [
            (sum(one.persistent_bytes for one in each.values()), max(one.ephemeral_bytes for one in each.values()))
            for each in lanes
            if each
        ]
        gang = any(self._jobs[name].gpus > 1 for name in inside)
        wrong = {
            f"lane {lane} of a gang is shared: {names}": gang and len(inside) > 1,
            f"lane {lane} of {counted(self._places, 'place')} has {names}": starts and len(inside) > self._places,
            f"{device} has fewer places than jobs": sum(map(len, lanes)) > self._places * len(lanes),
            f"{device} has less memory than its lanes need": sum(map(sum, needed)) > self._cluster.gpu.memory_bytes,
        }
        self.faults += [words for words, holds in wrong.items() if holds]

    def _take(self, command: StartJob) -> None:
        job = self._jobs[command.job]
        devices = {self._opened[lane].device for lane in command.lanes}
        nodes, most = {device.partition("g")[0] for device in devices}, self._cluster.most_nodes(job)
        most_gpus = max(job.gpus, len(job.speedups) + 1)
        whole = len(devices) == len(command.lanes) and job.gpus <= len(devices) <= most_gpus
        wrong = {
            f"job {job.name} was started while it ran": job.name in self._held,
            f"job {job.name} of {counted(job.gpus, 'GPU')} got {len(devices)}": not whole,
            f"job {job.name} got {counted(len(nodes), 'node')}, and may have {most}": most is not None
            and len(nodes) > most,
        }
        self._held[job.name], self._starts[command.id] = command.lanes, job.name
        for lane in command.lanes:
            inside, budget = self._inside[lane], self._opened[lane].budget_bytes
            inside[job.name] = job.memory or MemoryDemand(budget if job.gpus > 1 else budget // self._places)
            if inside[job.name].peak_bytes > command.cap_bytes:  # the job ends out of memory; until then it has the cap
                inside[job.name] = MemoryDemand(command.cap_bytes)
            self._check(lane, starts=True)
        self.faults += [words for words, holds in wrong.items() if holds]
