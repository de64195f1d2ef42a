"""Caches of jobs that wait, with real processes on one pretended memory: no job has what another one was promised."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ecoshare.lane.tables.lane_table import LaneTable, lane_path
from ecoshare.lane.tables.table_layout import SlotState
from ecoshare.lane.turn import LaneTurn
from tests.driver.caching import CachingAllocator
from tests.driver.device_memory import DeviceMemory
from tests.lane.forked import ForkedJobs, succeed
from tests.warm import wait_for

MIB = 1 << 20
KEPT, WORK = 20 * MIB, 100 * MIB

Body = Callable[[LaneTurn, CachingAllocator], None]


class Processes:
    """Jobs in processes of their own, in the lanes of one device.

    Attributes:
        memory: Memory of the device.
    """

    def __init__(self, folder: Path, total_bytes: int) -> None:
        self._folder, self._jobs = folder, ForkedJobs()
        self.memory = DeviceMemory(folder / "memory", total_bytes)
        self.lanes = [LaneTable.create(lane_path(folder, number)) for number in range(2)]

    def start(self, lane: int, slot: int, body: Body) -> int:
        """Start a job in a slot of a lane; its allocator asks the device for all that it reserves."""
        self.lanes[lane].seat(slot)

        def run() -> None:
            memory = DeviceMemory(self._folder / "memory")
            allocator = CachingAllocator(memory.resize, MemoryError, 1 << 40)
            table = LaneTable(lane_path(self._folder, lane))
            body(LaneTurn(table, slot, empty=allocator.empty_cache), allocator)

        return self._jobs.start(run)

    def kill(self, lane: int, slot: int, pid: int) -> None:
        """Kill a process as its supervisor sees it."""
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.lanes[lane].free(slot)

    def end(self) -> None:
        """Kill what is left."""
        self._jobs.end()


def processes(total_bytes: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("jobs", [total_bytes], indirect=True, ids=[""])


@pytest.fixture
def jobs(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Processes]:
    started = Processes(tmp_path, request.param)
    yield started
    started.end()


def train(iterations: int, until: Callable[[], bool] = lambda: False, away_s: float = 0.0, together: int = 3) -> Body:
    """Body of a job that keeps `KEPT` and needs `WORK` more in each iteration; it may leave its turn in between.

    The first job begins when the lane has `together` jobs.
    """

    def body(turn: LaneTurn, allocator: CachingAllocator) -> None:
        table = turn._table
        turn.take()
        if table.header.handovers == 1:  # the first one: else it would have done its work before the others come
            wait_for(lambda: sum(slot.seat >= SlotState.WAITING for slot in table.slots) >= together)
        allocator.allocate(KEPT)
        for _ in range(iterations):
            allocator.allocate(WORK)
            allocator.free(WORK)
            turn.count(evaluating=False)
            table.header.quantum_s = 0.0
            turn.offer(lambda: None)
            if away_s:
                turn.leave()
                time.sleep(away_s)
                turn.take()
            if until():
                break
        turn.leave()

    return body


@pytest.mark.slow
@processes(3 * KEPT + WORK)
def test_one_ephemeral_region_serves_all_jobs_of_a_lane(jobs: Processes) -> None:
    """Fails if a job allocates before the one that had the turn has emptied its cache."""
    jobs.lanes[0].set_caching(False)
    succeed(*(jobs.start(0, slot, train(150)) for slot in range(3)))
    assert jobs.memory.refused == 0
    assert jobs.lanes[0].header.handovers > 30 and jobs.lanes[0].header.empty_s > 0.0


@processes(3 * KEPT + WORK)
def test_caches_that_are_kept_do_not_fit(jobs: Processes) -> None:
    """If this failed, the test above could not fail."""
    for slot in range(3):
        jobs.start(0, slot, train(10**6))
    wait_for(lambda: jobs.memory.refused > 0)


@pytest.mark.slow
@processes(3 * KEPT + WORK)
def test_one_that_is_away_has_no_cache(jobs: Processes) -> None:
    """Fails if a job that loads data keeps what the next holder of the turn needs."""
    jobs.lanes[0].set_caching(False)
    succeed(*(jobs.start(0, slot, train(60, away_s=0.001 * slot)) for slot in range(3)))
    assert jobs.memory.refused == 0


@processes(10 * WORK)
def test_where_caches_are_kept_no_job_empties_one(jobs: Processes) -> None:
    succeed(*(jobs.start(0, slot, train(50)) for slot in range(3)))
    assert jobs.lanes[0].header.handovers > 3
    assert jobs.lanes[0].header.empty_s == 0.0


@processes(10 * WORK)
def test_jobs_that_wait_with_a_cache_are_woken_to_empty_it(jobs: Processes) -> None:
    """Fails if the room for a newcomer is believed to be there while jobs that wait have caches."""
    over = jobs._folder / "over"
    pids = [jobs.start(0, slot, train(10**6, over.exists)) for slot in range(3)]
    table = jobs.lanes[0]
    wait_for(lambda: all(slot.iterations > 2 for slot in table.slots[:3]))
    table.reserve(0)  # the others wait for long
    wait_for(lambda: [table.slots[slot].seat for slot in range(3)] == [SlotState.HOLDING, *[SlotState.WAITING] * 2])
    assert min(jobs.memory.taken_bytes().values()) == KEPT + WORK and not table.caches_are_emptied
    table.set_caching(False)
    wait_for(lambda: table.caches_are_emptied)
    taken = jobs.memory.taken_bytes()
    assert sorted(taken.values())[:2] == [KEPT, KEPT]
    table.set_caching(True)
    table.reserve(-2)
    wait_for(lambda: min(jobs.memory.taken_bytes().values()) == KEPT + WORK)
    over.touch()
    succeed(*pids)


@processes(3 * KEPT + WORK)
def test_a_job_that_moves_leaves_no_cache_behind(jobs: Processes) -> None:
    """Fails if a job that was moved to another lane takes the ephemeral region of its old lane with it."""
    over = jobs._folder / "over"
    for table in jobs.lanes:
        table.set_caching(False)
    stays = [jobs.start(0, slot, train(10**6, over.exists)) for slot in range(2)]
    moves = jobs.start(0, 2, train(10**6, over.exists))
    wait_for(lambda: jobs.lanes[0].slots[2].iterations > 2)
    jobs.lanes[1].seat(0, 7)
    jobs.lanes[1].reserve(-1)  # no turn there, so one region must do
    jobs.lanes[0].send(2, 1, 0)
    wait_for(lambda: jobs.lanes[0].slots[2].seat == SlotState.EMPTY)
    assert jobs.memory.taken_bytes()[moves] == KEPT
    assert jobs.lanes[1].caches_are_emptied
    over.touch()
    succeed(*stays)
    jobs.lanes[1].reserve(-2)
    succeed(moves)
    assert jobs.memory.refused == 0


@pytest.mark.nightly
@processes(4 * KEPT + WORK)
@pytest.mark.parametrize("seed", range(3))
def test_kills_at_any_moment_take_no_room_from_the_others(jobs: Processes, seed: int) -> None:
    """Fails if the death of a job, while it empties its cache or has the turn, makes another one fail or wait."""
    draw, table = random.Random(seed), jobs.lanes[0]
    table.set_caching(False)
    lasting = jobs.start(0, 0, train(300, together=2))
    for _ in range(12):
        slot = draw.randrange(1, 4)
        victim = jobs.start(0, slot, train(10**6, together=2))
        time.sleep(0.03 * draw.random())
        jobs.kill(0, slot, victim)
    succeed(lasting)
    assert jobs.memory.refused == 0
