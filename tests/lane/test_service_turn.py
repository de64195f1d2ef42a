"""Turn of a service beside a job that trains, with real processes and threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ecoshare.lane.service_job import ServiceTurn
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.tables.table_layout import NO_SLOT, SlotState
from ecoshare.lane.turn import LaneTurn
from tests.lane.forked import ForkedJobs, succeed
from tests.warm import wait_for

ITERATION_S = 0.01


@pytest.fixture
def table(tmp_path: Path) -> LaneTable:
    table = LaneTable.create(tmp_path / "lane")
    table.seat(0)
    table.seat(1)
    return table


@pytest.fixture
def trains(table: LaneTable) -> Iterator[int]:
    """Process that trains in slot 1 until it is told to end."""
    jobs = ForkedJobs()

    def train() -> None:
        own = LaneTable(table.path)
        turn = LaneTurn(own, 1)
        turn.take()
        while own.slots[1].weight != 2.0:
            time.sleep(ITERATION_S)
            turn.count(evaluating=False)
            turn.offer(lambda: None)
        turn.leave()

    pid = jobs.start(train)
    wait_for(lambda: table.slots[1].iterations > 3)
    yield pid
    table.slots[1].weight = 2.0
    succeed(pid)
    jobs.end()


def service(table: LaneTable, target_s: float = 0.1) -> ServiceTurn:
    return ServiceTurn(LaneTurn(table, 0), target_s, lambda: None)


@contextmanager
def answering(turn: ServiceTurn, due_s: float | None = None, answer_s: float | None = None) -> Iterator[None]:
    turn.begin(due_s, answer_s)
    try:
        yield
    finally:
        turn.end()


def test_requests_are_answered_within_an_iteration_of_the_neighbour(table: LaneTable, trains: int) -> None:
    """The service is due at once, and has had more than its share."""
    turn = service(table)
    for _ in range(20):
        table.slots[0].service_s = 1e6
        before = table.slots[1].iterations
        with answering(turn, time.monotonic() + 0.001, 0.001):
            assert table.header.holder == 0
            # One may end before the neighbour sees that the service waits.
            assert table.slots[1].iterations - before <= 2
        time.sleep(0.003)
    assert table.slots[0].eval_iterations == 20


def test_a_service_that_can_wait_lets_the_neighbour_go_on(table: LaneTable, trains: int) -> None:
    turn = service(table)
    table.slots[0].service_s = 1e6
    before = table.slots[1].iterations
    began_s = time.monotonic()
    with answering(turn, began_s + 0.3, 0.01):
        waited_s = time.monotonic() - began_s
        neighbour, header = table.slots[1], table.header
        # The quantum ends sooner, but then fair shares give the neighbour the turn again, until the service would come
        # too late after another iteration, or have to wait beyond the bound after another turn of each.
        is_due = waited_s + neighbour.longest_iteration_s > 0.3 - 0.01
        assert is_due or waited_s + 2 * header.turn_s > header.bound_s
        assert neighbour.iterations > before


def test_threads_share_one_turn(table: LaneTable) -> None:
    turn, inside = service(table), threading.Barrier(3)

    def answer() -> None:
        with answering(turn):
            inside.wait(10)
            assert table.header.holder == 0

    threads = [threading.Thread(target=answer) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(20)
    assert not inside.broken and table.header.holder == NO_SLOT
    assert table.slots[0].handovers == 1


@pytest.mark.slow
def test_threads_that_never_stop_together_still_let_the_neighbour_in(table: LaneTable, trains: int) -> None:
    """At any time one of them is inside, so the turn would never end if each could join at once."""
    turn = service(table)
    ends_s = time.monotonic() + 1.0

    def answer(delay_s: float) -> None:
        time.sleep(delay_s)
        while time.monotonic() < ends_s:
            with answering(turn):
                time.sleep(0.008)

    before = table.slots[1].iterations
    threads = [threading.Thread(target=answer, args=(place * 0.003,)) for place in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(20)
    assert table.slots[1].iterations - before > 10


def test_a_service_with_more_to_answer_keeps_its_turn_until_its_share_is_used(table: LaneTable, trains: int) -> None:
    turn, handovers = service(table), []
    now_s = time.monotonic()
    for _ in range(10):
        turn.begin(now_s + 0.5, 0.001)
        time.sleep(0.001)
        turn.end(now_s + 0.5, 0.001)
        handovers.append(table.slots[0].handovers)
    assert handovers[-1] < 10, "the turn went back and forth for each batch"
    turn.begin()
    turn.end()
    wait_for(lambda: table.slots[0].seat == SlotState.AWAY)


def test_a_service_that_is_kept_never_gives_up_its_turn(table: LaneTable) -> None:
    turn = service(table)
    turn.keep()
    with answering(turn):
        pass
    assert table.header.holder == 0


def test_an_error_in_the_wait_leaves_no_claim(table: LaneTable) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(_use: object) -> None:
        raise Interrupted

    turn = ServiceTurn(LaneTurn(table, 0), 0.1, lambda: None, within=interrupt)
    with pytest.raises(Interrupted):
        turn.begin()
    assert table.slots[0].seat == SlotState.AWAY
