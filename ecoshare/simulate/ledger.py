"""What was given to whom in a simulation, added up again by other means than the simulator's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ecoshare.core.commands import Command, KillJob, OpenLane, StartJob
from ecoshare.core.events import Done, Event, JobExited
from ecoshare.core.memory import MemoryDemand, lane_fits
from ecoshare.simulate.cluster import Cluster
from ecoshare.simulate.traces.trace import Trace, TraceJob
from ecoshare.simulate.world import World


class Ledger:
    """Adds up a run, from its events and commands alone.

    Attributes:
        faults: What was given twice, or not as a whole.
        worked_s: By job, seconds for which it had its places and was started.
        iterations: By job, over all attempts.
        energy_j: Of all devices since the first arrival.
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
            places: Of each lane.
            log: Events, each with the commands that it was answered with.
        """
        self.faults: list[str] = []
        self.worked_s: dict[str, float] = dict.fromkeys((job.name for job in trace.jobs), 0.0)
        self.iterations: Counter[str] = Counter()
        self.energy_j = 0.0
        self._jobs = {job.name: job for job in trace.jobs}
        self._cluster, self._world, self._places = cluster, world, places
        self._opened: dict[int, OpenLane] = {}
        self._inside: dict[int, dict[str, MemoryDemand]] = {}
        self._held: dict[str, tuple[int, ...]] = {}
        self._starts: dict[int, str] = {}
        self._at_work: dict[str, None] = {}
        self._at_s = trace.jobs[0].arrival_s
        for event, commands in log:
            self._follow(event, commands)

    def _follow(self, event: Event, commands: Sequence[Command]) -> None:
        self._pass(event.at_s)
        if isinstance(event, Done) and event.command in self._starts:
            self._at_work[self._starts.pop(event.command)] = None
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
                case KillJob():
                    self._at_work.pop(command.job, None)

    def _pass(self, at_s: float) -> None:
        passed_s = max(0.0, at_s - self._at_s)
        by_lane = {lane: self._jobs[name] for name in self._at_work for lane in self._held[name]}
        devices: dict[str, list[TraceJob]] = {}
        for lane, job in by_lane.items():
            devices.setdefault(self._opened[lane].device, []).append(job)
        watts = self._cluster.size * self._world.gpu.idle_w + sum(map(self._world.device_watts, devices.values()))
        self.energy_j += watts * passed_s
        for name in self._at_work:
            self.worked_s[name] += passed_s
        self._at_s += passed_s

    def _take(self, command: StartJob) -> None:
        job = self._jobs[command.job]
        devices = {self._opened[lane].device for lane in command.lanes}
        nodes, most = {device.partition("g")[0] for device in devices}, self._cluster.most_nodes(job)
        wrong = {
            f"job {job.name} was started while it ran": job.name in self._held,
            f"job {job.name} of {job.gpus} GPUs got {len(devices)}": not len(devices) == len(command.lanes) == job.gpus,
            f"job {job.name} got {len(nodes)} nodes, and may have {most}": most is not None and len(nodes) > most,
        }
        self._held[job.name], self._starts[command.id] = command.lanes, job.name
        for lane in command.lanes:
            inside, budget = self._inside[lane], self._opened[lane].budget_bytes
            inside[job.name] = job.memory or MemoryDemand(budget if job.gpus > 1 else budget // self._places)
            gang, names = any(self._jobs[name].gpus > 1 for name in inside), ", ".join(inside)
            wrong[f"lane {lane} of a gang is shared: {names}"] = gang and len(inside) > 1
            wrong[f"lane {lane} of {self._places} places has {names}"] = len(inside) > self._places
            wrong[f"lane {lane} has less memory than needed by {names}"] = not lane_fits(inside.values(), budget)
        self.faults += [words for words, holds in wrong.items() if holds]
