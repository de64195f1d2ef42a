"""Jobs that are asked to rest in their lane, so that their memory can be moved, with real processes and tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.tables.table_layout import NO_SLOT, ParkRequest, SlotState
from ecoshare.lane.turn import LaneTurn
from tests.lane.forked import ForkedJobs, succeed
from tests.warm import wait_for


class Lane:
    """One lane and its jobs, each in a process of its own.

    Attributes:
        table: Table of the lane.
    """

    def __init__(self, folder: Path) -> None:
        self.table = LaneTable.create(folder / "lane0")
        self._folder, self._jobs = folder, ForkedJobs()

    def train(self, slot: int, away_s: float = 0.0) -> int:
        """Start a job that iterates until `end`, and leaves its turn for a while after each iteration."""
        self.table.seat(slot)

        def run() -> None:
            table = LaneTable(self.table.path)
            turn = LaneTurn(table, slot, empty=self._note("emptied", slot), page_out=self._note("paged out", slot))
            turn.take()
            while not (self._folder / "over").exists():
                turn.count(evaluating=False)
                table.header.quantum_s = 0.0
                turn.offer(lambda: None)
                if away_s:
                    turn.leave()
                    time.sleep(away_s)
                    turn.take()
                time.sleep(0.001)
            turn.leave()

        return self._jobs.start(run)

    def _note(self, what: str, slot: int) -> Callable[[], None]:
        return lambda: (self._folder / f"{what} {slot}").touch()

    def has(self, what: str, slot: int) -> bool:
        """Whether a job has emptied its cache, or has paged itself out."""
        return (self._folder / f"{what} {slot}").exists()

    def is_ready(self, slot: int) -> bool:
        """Whether a job rests."""
        return bool(self.table.slots[slot].parked == ParkRequest.READY)

    def works(self, slot: int) -> None:
        """Wait until a job has done some iterations from now on."""
        before = self.table.slots[slot].iterations
        wait_for(lambda: self.table.slots[slot].iterations > before + 5)

    def end(self, *pids: int) -> None:
        """Let all jobs end."""
        (self._folder / "over").touch()
        succeed(*pids)

    def close(self) -> None:
        """Kill what is left."""
        self._jobs.end()


@pytest.fixture
def lane(tmp_path: Path) -> Iterator[Lane]:
    made = Lane(tmp_path)
    yield made
    made.close()


def test_a_job_rests_and_the_other_one_has_the_turn_alone(lane: Lane) -> None:
    pids = [lane.train(slot) for slot in range(2)]
    for slot in range(2):
        lane.works(slot)
    lane.table.park(0)
    wait_for(lambda: lane.is_ready(0))
    assert lane.has("emptied", 0) and lane.has("paged out", 0)
    assert not lane.has("emptied", 1), "only the job that is parked gives memory back"
    done = lane.table.slots[0].iterations
    lane.works(1)
    assert lane.table.slots[0].iterations == done and lane.table.slots[0].seat == SlotState.WAITING
    lane.table.unpark(0)
    lane.works(0)
    lane.works(1)
    lane.end(*pids)


def test_the_only_job_of_a_lane_rests_too(lane: Lane) -> None:
    """No job has the turn meanwhile, and the job gets it back at once."""
    pid = lane.train(0)
    lane.works(0)
    lane.table.park(0)
    wait_for(lambda: lane.is_ready(0))
    assert lane.table.header.holder == NO_SLOT
    lane.table.unpark(0)
    lane.works(0)
    lane.end(pid)


@pytest.mark.nightly
def test_a_job_that_loads_data_rests_when_it_comes_back(lane: Lane) -> None:
    pids = [lane.train(0, away_s=0.05), lane.train(1)]
    lane.works(1)
    lane.works(0)
    wait_for(lambda: lane.table.slots[0].seat == SlotState.AWAY)
    lane.table.park(0)
    wait_for(lambda: lane.is_ready(0))
    assert lane.table.slots[0].seat == SlotState.WAITING
    lane.table.unpark(0)
    lane.works(0)
    lane.end(*pids)


@pytest.mark.slow
def test_the_time_at_rest_is_waited_but_is_no_long_wait(lane: Lane) -> None:
    """An iteration does not seem to take that time, and the bound of the waits is not hurt."""
    pids = [lane.train(slot) for slot in range(2)]
    for slot in range(2):
        lane.works(slot)
    resting = lane.table.slots[0]
    lane.table.park(0)
    wait_for(lambda: lane.is_ready(0))
    waited_s, began_s = resting.waited_s, time.monotonic()
    time.sleep(0.7)
    rested_s = time.monotonic() - began_s
    lane.table.unpark(0)
    lane.works(0)
    assert resting.waited_s - waited_s > 0.9 * rested_s
    assert resting.longest_wait_s < rested_s and resting.longest_iteration_s < rested_s
    lane.end(*pids)


def test_a_job_that_is_asked_no_more_goes_on(lane: Lane) -> None:
    pid = lane.train(0)
    lane.works(0)
    for _ in range(20):
        lane.table.park(0)
        lane.table.unpark(0)
    lane.works(0)
    lane.end(pid)


def test_a_late_request_for_an_earlier_job_of_the_slot_has_no_effect(lane: Lane) -> None:
    pid = lane.train(0)
    lane.works(0)
    lane.table.park(0, owner=7)
    lane.works(0)
    assert lane.table.slots[0].parked == ParkRequest.NOTHING
    lane.end(pid)


def test_resting_jobs_shorten_no_quantum(lane: Lane) -> None:
    """The bound of the longest wait is divided among the jobs that take turns."""
    for slot in range(4):
        lane.table.seat(slot)
        lane.table.slots[slot].longest_iteration_s = 0.05
    lane.table.claim({})
    shared_s = lane.table.header.quantum_s
    for slot in (1, 2, 3):
        lane.table.park(slot)
    assert lane.table.header.quantum_s > 1.5 * shared_s


def test_a_stop_ends_a_job_at_rest(lane: Lane) -> None:
    pid = lane.train(0)
    lane.works(0)
    lane.table.park(0)
    wait_for(lambda: lane.is_ready(0))
    lane.table.stop(0)
    wait_for(lambda: lane.table.slots[0].stop == 2)
    assert pid
