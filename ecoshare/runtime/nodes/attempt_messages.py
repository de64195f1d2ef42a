"""Messages about attempts, to the server of the lanes and from it."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ecoshare.base.attempt import Outcome
from ecoshare.base.device import DeviceInfo
from ecoshare.core.commands import StartJob
from ecoshare.core.events import Done, Event, JobExited, Refused
from ecoshare.devices.registry import vendor
from ecoshare.lane import child_processes
from ecoshare.lane.messages import Ended, KeepLane, LaunchAttempt, Launched, Message, NotLaunched, NotMoved, Ready
from ecoshare.record.run_documents import recorded_end
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.measuring.device_session import DeviceWatch
from ecoshare.runtime.nodes.attempts import Attempts, LiveAttempt
from ecoshare.runtime.nodes.live_memory import LiveParking, MemoryRelease
from ecoshare.runtime.nodes.run_node import NodeMachine, NodeRun

_MOST_BOUND = 64
"""Most ports that stay bound. A rank 0 that listens at an earlier one has it by itself."""

_MOST_GIVEN = 4096
"""Ports after which earlier ones may be given again: their ranks have met long ago."""


class LoopbackPorts:
    """Ports of a run.

    The latest ports stay bound, without listening. So no other program that asks for any free port gets one before
    rank 0 has opened its store there: both sides set `SO_REUSEADDR`.
    """

    def __init__(self) -> None:
        """No port yet."""
        self._bound: deque[socket.socket] = deque()
        self._given: set[int] = set()

    def take(self) -> int:
        """A free port.

        Raises:
            OSError: The machine has none left.
        """
        while True:
            bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(("127.0.0.1", 0))
            port = int(bound.getsockname()[1])
            self._bound.append(bound)
            if len(self._bound) > _MOST_BOUND:
                self._bound.popleft().close()
            if len(self._given) > _MOST_GIVEN:
                self._given.clear()
            if port not in self._given:
                self._given.add(port)
                return port

    def close(self) -> None:
        """Give all ports back."""
        for bound in self._bound:
            bound.close()


class AttemptLaunches:
    """Launches of a run."""

    def __init__(self, machine: NodeMachine, run: NodeRun, attempts: Attempts) -> None:
        """No launch yet.

        Args:
            machine: The machine.
            run: The run.
            attempts: Attempts in progress, and the lanes' tables.
        """
        self._machine, self._run, self._attempts, self._serves = machine, run, attempts, run.for_nodes.serves
        self._devices = {each.device.name: each.device for each in machine.devices}
        self._ports = LoopbackPorts()
        self._environments: dict[tuple[str, ...], dict[str, str | None]] = {}  # key: names of devices

    def launch(self, command: StartJob, own: LiveAttempt, names: Sequence[str]) -> LaunchAttempt:
        """Message that starts an attempt.

        Args:
            command: Command of the core.
            own: The attempt, which has its slots.
            names: Names of its devices, in the order of the slots.

        Raises:
            OSError: No port is left for the rendezvous of ranks.
            UnfitEnvironment: The table of a gang cannot be written.
        """
        job = own.job
        return job.launch(
            command,
            [(self._attempts.tables[lane].path, slot) for lane, slot in own.places],
            self._run.folder.job(command.job),
            [self._devices[name] for name in names],
            {**self._environment(tuple(names)), **self._behind(own)},
            self._run.began_s,
            process_bytes=self._devices[names[0]].memory_bytes,
            machine_bytes=sum(each.memory_bytes for each in self._devices.values() if each.on_processors),
            context_bytes=self._run.context_bytes(job.spec.job_class),
            master_port=self._ports.take() if job.has_ranks and job.part is None else 0,
            gang_table=self._attempts.gang_table(own) if job.has_ranks else "",
            measures_answers=self._run.profiler.stops_the_run,
        )

    def take_port(self) -> int:
        """A port for the rendezvous of a gang that has its rank 0 here.

        Raises:
            OSError: No port is left.
        """
        return self._ports.take()

    def _behind(self, own: LiveAttempt) -> dict[str, str | None]:
        """Variables that let a job in another lane of the device give way to services."""
        return self._machine.sharing.behind if self._serves and own.job.spec.service is None else {}

    def close(self) -> None:
        """Give the ports back. No more launches follow."""
        self._ports.close()

    def _environment(self, names: tuple[str, ...]) -> dict[str, str | None]:
        """Changes to the environment of a job on these devices."""
        if names not in self._environments:
            devices = [self._devices[name] for name in names]
            shown = vendor(devices[0].vendor).environment(devices)
            self._environments[names] = {**shown, **self._machine.sharing.environment}
        return self._environments[names]


_LOOK_S = 0.5


class ChildrenWatch:
    """Watches the attempts in progress.

    ::

        note in the folder of the job       ──► the attempt keeps its lane
        child of a job among the processes
        of the GPU, and no note             ──KeepLane──► supervisor ──signal──► job ──► note
    """

    def __init__(self, folder: RunFolder, attempts: Attempts, send: Callable[[KeepLane], None]) -> None:
        """Watch without a look so far.

        Args:
            folder: The run folder.
            attempts: Attempts in progress.
            send: Sends a message to the supervisor.
        """
        self._folder, self._attempts, self._send = folder, attempts, send

    def read_note(self, own: LiveAttempt) -> None:
        """Note whether an attempt keeps its lane."""
        if not own.keeps_lane:
            own.keeps_lane = child_processes.kept_lane_reason(self._folder.job(own.job.spec.name), own.attempt)

    async def keep(self, devices: Sequence[tuple[DeviceInfo, Callable[[], Awaitable[Mapping[int, int]]]]]) -> None:
        """Read the notes of all attempts, and ask attempts to keep their lanes of which children are on a GPU.

        They are asked again until their notes are there: a signal does not always wake a process that waits. This goes
        on until it is cancelled.

        Args:
            devices: Devices of the run, each with a function that returns the memory (bytes) of the processes on it.
        """
        while True:
            await asyncio.sleep(_LOOK_S)
            await self._look(devices)

    async def _look(self, devices: Sequence[tuple[DeviceInfo, Callable[[], Awaitable[Mapping[int, int]]]]]) -> None:
        for own in self._attempts.live.values():
            self.read_note(own)
        for device, processes in devices:
            if device.on_processors or not self._attempts.live:
                continue
            on_device = await processes()
            for own in self._attempts.with_children_on(device, on_device):
                if not own.keeps_lane:
                    self._send(KeepLane(own.job.spec.name, own.attempt))


@dataclass(frozen=True, slots=True)
class AttemptAnswers:
    """Hears what becomes of attempts, and tells the core.

    ::

        Launched, NotLaunched ──► Done, Refused
        Ended                 ──► the rest of a trial's values, then JobExited
        the server has died   ──► JobExited of each attempt in progress: as its record says, else as lost

    Attributes:
        folder: The run folder.
        attempts: Attempts in progress.
        memory: Starts that wait until other jobs have given memory back.
        children: Child processes of the jobs.
        watch: Watch over failing devices.
        parking: Parked jobs.
        over: Called with the name and the number of an attempt that has ended.
        tell: Reports an event to the core.
    """

    folder: RunFolder
    attempts: Attempts
    memory: MemoryRelease
    children: ChildrenWatch
    watch: DeviceWatch
    parking: LiveParking
    over: Callable[[str, int], None]
    tell: Callable[[Callable[..., Event]], None]

    def hear(self, message: Message) -> None:
        """Take a message of the supervisor."""
        match message:
            case Launched():
                self.tell(partial(Done, command=message.command))
            case NotLaunched():
                self.attempts.give_up(message.command)
                self.tell(partial(Refused, command=message.command, error=message.error))
            case NotMoved():
                self.attempts.moving.refused(message.command, message.error)
            case Ended():
                self.watch.ended(message, self.end)
            case Ready():
                pass

    def lost(self) -> None:
        """End all attempts in progress after the death of their server: as their records say, else as lost."""
        for own in list(self.attempts.live.values()):
            name = own.job.spec.name
            recorded = recorded_end(self.folder.job(name), own.attempt) if own.job.has_first_rank else None
            was_held = self.memory.give_up(name) is not None
            self.attempts.free(own)
            outcome = Outcome.MOVED_OUT if was_held else Outcome.LOST  # a start that was held has killed no process
            lost = Ended(name, own.attempt, outcome.value, None, "its supervisor died with it")
            self.end(recorded or lost)

    def end(self, ended: Ended) -> None:
        """Tell the core of the end of an attempt, unless it was told already."""
        own = self.attempts.live.get(ended.job)
        if own is not None:
            self.children.read_note(own)  # a short job ends before the first look
        usage = self.attempts.end(ended)
        if usage is None:
            return
        self.over(ended.job, ended.attempt)
        outcome, reason = self.watch.verdict(own, *self.parking.verdict(ended))
        self.tell(
            partial(
                JobExited,
                job=ended.job,
                attempt=ended.attempt,
                outcome=outcome,
                exit_code=ended.exit_code,
                reason=reason,
                usage=usage,
            )
        )
        self.attempts.moving.ended(ended.job)
