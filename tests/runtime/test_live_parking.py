"""Parking of a live attempt that moves to another lane meanwhile, or ends, with a real process and real tables."""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ecoshare.core.commands import MoveJob, OpenLane, ParkJob, ResumeJob, StartJob
from ecoshare.core.events import Done, Event, Parked, Resumed
from ecoshare.devices import registry
from ecoshare.devices.memory_transfer import CudaMemoryTransfer, MemoryTransfer, NoMemoryTransfer
from ecoshare.lane.messages import Ended, MoveAttempt, StopAttempt
from ecoshare.lane.own_memory import is_devices, is_reserved, mappings
from ecoshare.lane.tables.lane_table import LaneTable, lane_path
from ecoshare.lane.turn import LaneTurn
from ecoshare.record.samples import SampleFile
from ecoshare.runtime.measuring.device_claim import ClaimedDevice
from ecoshare.runtime.measuring.meter_sampler import MeterSampler
from ecoshare.runtime.nodes.attempts import Attempts
from ecoshare.runtime.nodes.live_memory import LiveParking
from tests.driver import COMPILER, FakeDriver, presets
from tests.driver.cuda_processes import OwnCudaProcess
from tests.lane.forked import ForkedJobs
from tests.warm import wait_for

GIB = 1 << 30


class Live:
    """An attempt that iterates in lane 0 of two lanes.

    Attributes:
        told: Events for the core so far.
        sent: Messages to the supervisor so far.
        attempts: Attempts in progress: this one.
    """

    def __init__(
        self,
        folder: Path,
        begin: Callable[[], object] = lambda: None,
        transfer: MemoryTransfer | None = None,
    ) -> None:
        """Start an attempt.

        Args:
            folder: Folder of the lanes.
            begin: Called in its process first.
            transfer: Transfer of its memory; None for that of processors.
        """
        self.told: list[Event] = []
        self.sent: list[object] = []
        self._transfer = transfer or NoMemoryTransfer()
        self.attempts = Attempts(folder, 2, self._send, self._tell)
        for number in range(2):
            self.attempts.open_lane(OpenLane(number + 1, number, "cpu", GIB), lambda pid: None)
        job = cast(
            Any, SimpleNamespace(spec=SimpleNamespace(name="a"), has_ranks=False, part=None, has_first_rank=True)
        )
        own = self.attempts.start(StartJob(10, "a", 1, (0,), GIB, False), job)
        self._jobs = ForkedJobs()
        self.pid = self._jobs.start(partial(_iterate, begin, lane_path(folder, 0), own.places[0][1]))
        wait_for(lambda: self.attempts.slot("a").iterations > 2)

    def _tell(self, make: Callable[..., Event]) -> None:
        self.told.append(make(at_s=0.0))

    def _send(self, message: object) -> None:
        """Ask the job to move, as the supervisor does."""
        self.sent.append(message)
        if isinstance(message, MoveAttempt):
            own = self.attempts.live[message.job]
            lane, slot = own.places[0]
            self.attempts.tables[lane].send(slot, message.lane, message.slot, own.owner)

    @asynccontextmanager
    async def parking(self) -> AsyncIterator[tuple[LiveParking, asyncio.TaskGroup]]:
        """Parking of the attempt, and the group of its tasks."""
        file = SampleFile(Path(os.devnull))
        sampler = MeterSampler(file, ClaimedDevice(registry.processors(), None), lambda _on_device: {})
        async with asyncio.TaskGroup() as tasks:
            yield (
                LiveParking(
                    attempts=self.attempts,
                    sessions=cast(Any, {"cpu": SimpleNamespace(sampler=sampler)}),
                    transfers={"cpu": self._transfer},
                    is_releasing=lambda device: False,
                    send=self._send,
                    tell=self._tell,
                    begin=lambda work: cast(None, tasks.create_task(work)),
                ),
                tasks,
            )

    def close(self) -> None:
        """Kill what is left."""
        self._jobs.end()


def _iterate(begin: Callable[[], object], path: Path, slot: int) -> None:
    begin()
    turn = LaneTurn(LaneTable(path), slot)
    turn.take()
    while True:
        time.sleep(0.05)
        turn.count(evaluating=False)
        turn.offer(lambda: None)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    made = Live(tmp_path)
    yield made
    made.close()


def test_a_job_that_is_about_to_move_is_parked_where_it_arrives(live: Live) -> None:
    """Before, the request stayed in the slot that the job had left, and the command never got an answer."""

    async def run() -> None:
        async with live.parking() as (parking, tasks):
            live.attempts.moving.start(MoveJob(11, "a", 1, 1), tasks.create_task)
            parking.park(ParkJob(12, "a", 1))
        async with live.parking() as (parking, _):
            parking.resume(ResumeJob(13, "a", 1, 1))

    asyncio.run(run())
    assert [type(event) for event in live.told] == [Done, Parked, Resumed]
    done = live.attempts.slot("a").iterations
    wait_for(lambda: live.attempts.slot("a").iterations > done)
    assert live.attempts.live["a"].places[0][0] == 1


def test_a_job_that_ends_instead_has_no_other_answer(live: Live) -> None:
    async def run() -> None:
        async with live.parking() as (parking, _):
            parking.park(ParkJob(12, "a", 1))
            os.kill(live.pid, signal.SIGKILL)
            live.attempts.end(Ended("a", 1, "crashed", 137, "killed"))

    asyncio.run(run())
    assert not live.told


def _map_memory(folder: Path) -> None:
    """Let a thread of this process map memory all the time, count that, and watch what it has written there."""

    def maps() -> None:
        kept: list[mmap.mmap] = []
        while True:
            kept = kept[-100:]
            kept.append(mmap.mmap(-1, 2 << 20))
            kept[-1][:4] = b"mine"
            (folder / "maps").write_text(str(int((folder / "maps").read_text()) + 1))
            if any(each[:4] != b"mine" for each in kept):
                (folder / "spoiled").touch()

    (folder / "maps").write_text("0")
    threading.Thread(target=maps, daemon=True).start()


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    if COMPILER is None:
        pytest.skip("the fake driver is written in C, and there is no compiler")
    with FakeDriver(tmp_path, [presets.A4000], virtual=True) as entered:
        yield entered


def _on_gpu(folder: Path, driver: FakeDriver) -> Live:
    def begin() -> None:
        _map_memory(folder)
        OwnCudaProcess(driver.state_path)

    return Live(folder, begin, CudaMemoryTransfer({**os.environ, **driver.environment}))


@pytest.mark.slow
def test_threads_keep_what_they_map_while_their_process_is_parked(driver: FakeDriver, tmp_path: Path) -> None:
    """The driver unmaps its memory, and maps it at the old addresses again, over whatever is there by then."""
    live = _on_gpu(tmp_path, driver)
    maps = tmp_path / "maps"

    async def run() -> None:
        for number in range(3):
            async with live.parking() as (parking, _):
                parking.park(ParkJob(12 + number, "a", 1))
            assert type(live.told[-1]) is Parked
            while_parked = maps.read_text()
            wait_for(lambda: int(maps.read_text() or "0") > int(while_parked or "0") + 50)  # noqa: B023
            async with live.parking() as (parking, _):
                parking.resume(ResumeJob(22 + number, "a", 1, 1))

    try:
        asyncio.run(run())
        assert [type(event) for event in live.told] == [Parked, Resumed] * 3
        done = live.attempts.slot("a").iterations
        wait_for(lambda: live.attempts.slot("a").iterations > done + 2)
        assert not (tmp_path / "spoiled").exists()
        kept = list(mappings(live.pid))
        assert any(map(is_devices, kept)) and not any(map(is_reserved, kept))
    finally:
        live.close()


def test_a_process_is_not_resumed_over_the_memory_of_a_library(
    driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that runs no Python cannot be made to wait. The attempt begins again."""
    monkeypatch.setenv("FAKE_CUDA_INTRUDER", "1")
    live = _on_gpu(tmp_path, driver)

    async def run() -> None:
        async with live.parking() as (parking, _):
            parking.park(ParkJob(12, "a", 1))

    try:
        asyncio.run(run())
        (stop,) = live.sent
        assert isinstance(stop, StopAttempt) and "has mapped memory" in stop.reason and not live.told
    finally:
        live.close()
