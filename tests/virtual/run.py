"""Runs in virtual time, through `run_opening.start` and `resume`, on devices that are not there."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from ecoshare.base.clock import Clock
from ecoshare.base.device import LOCAL, DeviceInfo
from ecoshare.core.commands import StartJob
from ecoshare.core.events import Done, JobExited, Refused
from ecoshare.devices.memory_transfer import TransferFault
from ecoshare.devices.meter import MeterInfo, PowerModel, Reading
from ecoshare.devices.vendor import ContextSharing, DeviceHealth, DeviceState
from ecoshare.jobs.load import load
from ecoshare.lane.messages import Message
from ecoshare.record import event_log, kept_file
from ecoshare.record.log_fold import LogEntry
from ecoshare.reporting.progress import Silent
from ecoshare.runtime import run_opening
from ecoshare.runtime.measuring.device_claim import ClaimedDevice, DriverCalls
from ecoshare.runtime.measuring.profiling_window import Limits
from ecoshare.runtime.measuring.run_claims import NodeClaims
from ecoshare.runtime.measuring.setting_searches import RunSearches
from ecoshare.runtime.nodes import node
from ecoshare.runtime.nodes.held_machines import FindDevices, HeldMachines
from ecoshare.runtime.nodes.node import Node
from ecoshare.runtime.nodes.node_opening import OpenedNode
from ecoshare.runtime.nodes.run_host import RunHost, WarmServer
from ecoshare.runtime.nodes.run_node import NodeMachine, NodeRun
from ecoshare.runtime.planning.planned_limits import ParkingHost
from ecoshare.runtime.run import Run
from ecoshare.runtime.run_lifecycle import FinishedRun
from ecoshare.runtime.signals import StopSignals
from tests.planning import planned
from tests.runtime.running import job_file
from tests.virtual.clock import VirtualClock
from tests.virtual.lanes import Fate, Span, VirtualLanes

IDLE_W, CONTEXT_W = 50.0, 20.0
"""Power (W) of an idle GPU, and of the context of each job."""

_TRANSFER_S = 0.3
"""Time (s) in which the memory of a job is moved."""

_write = kept_file._write


def gpu(number: int = 0, memory_bytes: int = 24 << 30) -> DeviceInfo:
    """GPU that is not there."""
    return DeviceInfo(
        f"cuda:{number}",
        "cuda",
        "nvidia",
        "Virtual",
        f"GPU-{number}",
        memory_bytes,
        2,
        total_bytes=memory_bytes,
        free_bytes=memory_bytes,
    )


class InLoop(DriverCalls):
    """Calls of a driver, which takes its time."""

    def __init__(self, takes_s: float) -> None:
        super().__init__(5.0)
        self._takes_s = takes_s

    async def apart(self, call: Callable[[], Any]) -> Any:
        return await self.answer(call)

    async def answer(self, call: Callable[[], Any]) -> Any:
        if self._takes_s:
            await asyncio.sleep(self._takes_s)
        return call()


@dataclass(slots=True)
class _OpenGpu:
    """Meter of constant power and of contexts, and a driver that finds nothing amiss until the device fails."""

    world: World
    device: DeviceInfo

    @property
    def info(self) -> MeterInfo:
        return MeterInfo("virtual", "measured", "gpu", "constant power", 0.1)

    def read(self) -> Reading:
        now_s = self.world.clock.monotonic_s()
        contexts_s = sum(min(each.to_s, now_s) - each.from_s for each in self.world.spans)
        return Reading(now_s, IDLE_W * now_s + CONTEXT_W * contexts_s)

    def open_meter(self) -> _OpenGpu:
        return self

    def state(self) -> DeviceState | None:
        return None

    def processes(self) -> dict[int, int]:
        return {}

    def health(self) -> DeviceHealth:
        fails_s = self.world.fails_s.get(self.device.name)
        return DeviceHealth(
            "it fell off the bus" if fails_s is not None and self.world.clock.monotonic_s() >= fails_s else ""
        )

    def power_limit_w(self) -> float | None:
        return None

    def close(self) -> None:
        pass


class Guard:
    """Guard of processes that there are not."""

    async def keep(self) -> None:
        await asyncio.Event().wait()

    beat = keep


@dataclass(slots=True)
class _Transfer:
    """Transfer of device memory to the host and back, which takes its time and may fail."""

    world: World
    parks: int = 0
    resumes: int = 0

    async def park(self, pid: int) -> None:
        number, self.parks = self.parks, self.parks + 1
        await asyncio.sleep(_TRANSFER_S)
        if number < len(self.world.parks_fail) and (fault := self.world.parks_fail[number]) is not None:
            raise fault

    async def resume(self, pid: int) -> None:
        number, self.resumes = self.resumes, self.resumes + 1
        await asyncio.sleep(_TRANSFER_S)
        if number in self.world.resumes_fail:
            raise TransferFault("no memory", runs_on=False)


@dataclass(slots=True)
class World:
    """Surroundings of a run: time, the fates of its jobs, and the faults of its servers and devices.

    Attributes:
        folder: Folder of the world: job file, runs and tables.
        fates: Fate of an attempt by (job, number); the others have that of `Fate()`.
        server_dies_s: Times (s) at which the server of the lanes that runs then is killed.
        stops_s: Times (s) at which the user asks for the end.
        fails_s: Time (s) at which a device fails, by its name.
        latency_s: Time (s) that a message takes on its way; None if it is lost.
        devices: Number of devices.
        memory_bytes: Memory of each.
        spans: Time of each attempt, in the order of their begins.
        image_s: Time (s) at which the disk is copied, as it is after a kill -9; None for never.
        image: The copy of the folder of runs; None before.
        full_s: Begin and end (s) of each time in which the disk has no room for a log.
        at_begin: Called in the loop of the run, at its begin.
        parks_fail: Faults of the transfers of memory to the host, in their order; None for one that does not fail.
        resumes_fail: Numbers of the transfers back that fail, from 0.
        driver_s: Time (s) that the driver of a device takes to answer.
    """

    folder: Path
    fates: Mapping[tuple[str, int], Fate] = field(default_factory=dict)
    server_dies_s: Sequence[float] = ()
    stops_s: Sequence[float] = ()
    fails_s: Mapping[str, float] = field(default_factory=dict)
    latency_s: Callable[[Message], float | None] = lambda message: 0.001
    devices: int = 1
    memory_bytes: int = 24 << 30
    clock: Clock = field(default_factory=VirtualClock)
    spans: list[Span] = field(default_factory=list)
    image_s: float | None = None
    image: Path | None = None
    full_s: Sequence[tuple[float, float]] = ()
    at_begin: list[Callable[[], None]] = field(default_factory=list)
    parks_fail: Sequence[TransferFault | None] = ()
    resumes_fail: Collection[int] = ()
    driver_s: float = 0.0
    _servers: list[VirtualLanes] = field(default_factory=list)

    @property
    def started(self) -> list[tuple[str, int]]:
        """Job and number of each attempt that was launched, in order."""
        return [(each.job, each.attempt) for each in self.spans]

    @property
    def completed(self) -> list[tuple[str, int]]:
        """Job and number of each attempt that did all its work."""
        return [(each.job, each.attempt) for each in self.spans if each.is_completed]

    # The host of the run

    @contextlib.contextmanager
    def heard(self, asked_to_stop: Callable[[], None]) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for act in self.at_begin:
            act()
        for at_s in self.stops_s:
            loop.call_at(max(at_s, loop.time()), asked_to_stop)
        for at_s in self.server_dies_s:
            loop.call_at(max(at_s, loop.time()), self._kill_server)
        if self.image_s is not None:
            loop.call_at(max(self.image_s, loop.time()), self._copy)
        with patch.object(kept_file, "_write", self._write):
            yield

    async def server(self, token: str, log: Path) -> WarmServer:
        return self.new_server()

    def new_server(self) -> VirtualLanes:
        own = VirtualLanes(
            self.clock,
            lambda job, attempt: self.fates.get((job, attempt), Fate()),
            self.spans,
            self.latency_s,
        )
        self._servers.append(own)
        return own

    def over(self) -> None:
        pass

    def _write(self, file: FileIO, data: bytes) -> None:
        if any(from_s <= self.clock.monotonic_s() < to_s for from_s, to_s in self.full_s):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        _write(file, data)

    def _kill_server(self) -> None:
        if self._servers:
            self._servers[-1].kill()

    def _copy(self) -> None:
        self.image = self.folder / "image"
        shutil.copytree(self.disk, self.image, symlinks=True)

    @property
    def disk(self) -> Path:
        """Folder of all that a controller leaves."""
        return self.folder / "disk"

    # The machines of the run

    @property
    def found(self) -> tuple[DeviceInfo, ...]:
        """The devices."""
        return tuple(gpu(number, self.memory_bytes) for number in range(self.devices))

    @property
    def machines(self) -> Machines:
        """The machines, held."""
        return Machines(self)

    @contextlib.contextmanager
    def hold(self, _find: FindDevices, _names: str | None) -> Iterator[HeldMachines]:
        yield self.machines


@dataclass(frozen=True, slots=True)
class Machines:
    """Machines that a run holds; see `HeldMachines`."""

    world: World

    @property
    def devices(self) -> tuple[DeviceInfo, ...]:
        return self.world.found

    @property
    def is_shared(self) -> bool:
        return False

    def power_models(self, devices: Sequence[DeviceInfo]) -> Mapping[str, PowerModel | None]:
        return {each.name: None for each in devices}

    def power_limits_w(self) -> Mapping[str, tuple[float, ...]]:
        return {}

    def parking_hosts(self) -> Mapping[str, ParkingHost]:
        return {LOCAL: ParkingHost(64 << 30, 0)}

    def tell(self, run: Path) -> None:
        pass

    @contextlib.contextmanager
    def host(self, token: str, log: Path, signals: StopSignals) -> Iterator[RunHost]:
        yield self.world

    @contextlib.contextmanager
    def open_node(self, run: Run) -> Iterator[OpenedNode]:
        plan, shared = run.plan, self.world.folder / f"shared-{run.token}"
        shared.mkdir()
        searches, claims = RunSearches(), NodeClaims()
        searches.begin(run.profiler, run.jobs)
        devices = [virtual_device(self.world, each) for each in plan.devices]
        machine = NodeMachine(shared, devices, ContextSharing("virtual"), cast(Any, Guard()))
        transfers = {each.name: _Transfer(self.world) for each in plan.devices} if plan.host_bytes else {}

        def opened(run: NodeRun) -> Node:
            with patch.object(node, "transfers", lambda sessions, token: transfers):
                return Node(machine, run)

        yield OpenedNode(plan, opened, {}, claims, searches)


def virtual_device(world: World, device: DeviceInfo) -> ClaimedDevice:
    """Device of a world, as its node has it."""
    return ClaimedDevice(device, open=partial(_OpenGpu, world, device), calls=InLoop(world.driver_s))


def jobs_of(folder: Path, jobs: Sequence[Mapping[str, Any]]) -> Path:
    """Job file of these jobs. Their script is never run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text("raise AssertionError('no real process here')\n")
    return job_file(folder, *({"script": "train.py", **job} for job in jobs))


def run(
    world: World,
    jobs: Sequence[Mapping[str, Any]],
    policy: str = "fifo",
    window: Limits | None = None,
    **options: Any,
) -> FinishedRun:
    """Run jobs, given by their keys in a job file.

    Args:
        world: The surroundings.
        jobs: The jobs.
        policy: Name of the policy.
        window: Limits on the profiling windows; None for the default.
        options: Options of the plan.
    """
    loaded = load(jobs_of(world.folder, jobs))
    plan = planned(loaded, world.machines, policy=policy, **options)
    return run_opening.start(plan, loaded.text, world.disk, Silent(), window, machines=world.machines, host=world)


def resume(world: World, runs: Path) -> FinishedRun:
    """Go on with the only run in a folder of runs."""
    return run_opening.resume(run_in(runs), Silent(), hold=world.hold)


def run_in(runs: Path) -> Path:
    """The only run in a folder of runs."""
    (run,) = (each for each in runs.iterdir() if each.is_dir() and not each.is_symlink())
    return run


def check_spans(world: World) -> None:
    """Check that no job was in two places at once."""
    for one, other in pairwise(sorted(world.spans, key=lambda each: (each.job, each.from_s))):
        assert one.job != other.job or one.to_s <= other.from_s, f"{one.job} ran twice at {other.from_s} s"


def states(finished: FinishedRun) -> dict[str, str]:
    """State of each job at the end."""
    return {job.name: job.state for job in finished.data.summary.jobs}


def entries(folder: Path) -> list[LogEntry]:
    """Events and commands of a run."""
    return list(event_log.read(folder / "events.jsonl"))


def check(finished: FinishedRun) -> None:
    """Check what holds of every run: its log replays, each command has an answer, and each job one end."""
    log = entries(finished.folder.path)
    told = list(event_log.replay(log))
    assert all(now[: len(logged)] == logged for _, logged, now in told), "it does not replay"
    sessions = event_log.sessions(log)
    last = sessions[-1]
    answered = {each.command for each in last if isinstance(each, Done | Refused)}
    exited = Counter((each.job, each.attempt) for each in log if isinstance(each, JobExited))
    begun = {each.id: (each.job, each.attempt) for each in last if isinstance(each, StartJob)}
    assert all(each in answered or job in exited for each, job in begun.items()), "a start without an answer"
    assert max(exited.values(), default=1) == 1, "an attempt has ended twice"
