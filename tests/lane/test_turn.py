"""Turns of a lane with real processes."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ecoshare.lane.hooked_job import BoundaryAnswers
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.tables.table_layout import (
    ANY_SLOT,
    NO_RANK,
    NO_SLOT,
    WAIT_BOUNDS_S,
    BoundaryRequest,
    Slot,
    SlotState,
)
from ecoshare.lane.turn import LaneTurn
from tests.lane.forked import ForkedJobs, meet, succeed
from tests.warm import wait_for


@pytest.fixture
def table(tmp_path: Path) -> LaneTable:
    return LaneTable.create(tmp_path / "lane")


@pytest.fixture
def fork(table: LaneTable) -> Iterator[Callable[..., int]]:
    """Function that starts a process with a body and its turn, in a slot that is prepared before."""
    jobs = ForkedJobs()

    def start(slot: int, body: Callable[[LaneTurn, LaneTable], None], rank: int = 0) -> int:
        table.seat(slot)
        table.claim({slot: (rank, 1.0)})

        def run() -> None:
            own = LaneTable(table.path)
            body(LaneTurn(own, slot), own)

        return jobs.start(run)

    yield start
    jobs.end()


Fork = Callable[..., int]
"""Function that starts a body in a process of its own, at a slot; it returns the process number."""


def iterate(
    count: int, marks: Path | None = None, each_s: float = 0.0, beside: bool = False
) -> Callable[[LaneTurn, LaneTable], None]:
    """Body of `count` iterations.

    Args:
        marks: File that gets the slot before and after each iteration, so that overlaps show.
        each_s: Time (s) of each.
        beside: Whether the first one begins only when another process waits for the turn.
    """

    def body(turn: LaneTurn, table: LaneTable) -> None:
        turn.take()
        if beside:
            meet(table)
        for _ in range(count):
            if marks is not None:
                with marks.open("ab", buffering=0) as file:
                    file.write(b"<%d>" % turn._index)
                    file.write(b"</%d>" % turn._index)
            time.sleep(each_s)
            turn.count(evaluating=False)
            table.header.quantum_s = 0.0
            turn.offer(lambda: None)
        turn.leave()

    return body


@pytest.mark.slow
def test_one_job_at_a_time_has_the_turn(table: LaneTable, fork: Fork, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    succeed(*(fork(slot, iterate(800, marks)) for slot in range(4)))
    content = marks.read_bytes()
    for slot in range(4):
        pair = b"<%d></%d>" % (slot, slot)
        assert content.count(pair) == 800, "another job's mark stands inside an iteration"
    assert [table.slots[slot].iterations for slot in range(4)] == [800] * 4
    assert table.header.holder == NO_SLOT


@pytest.mark.slow
def test_turns_alternate_while_others_wait(table: LaneTable, fork: Fork) -> None:
    succeed(fork(0, iterate(1000, beside=True)), fork(1, iterate(1000, beside=True)))
    assert table.header.handovers > 100


def test_without_competition_nothing_is_handed_over(table: LaneTable, fork: Fork) -> None:
    succeed(fork(0, iterate(500)))
    assert table.slots[0].handovers == 1


def test_each_turn_has_its_wait_in_a_bucket_and_the_ends_of_jobs_take_none_away(table: LaneTable, fork: Fork) -> None:
    """If it failed, the histogram of waits would lose what an ended job had waited."""
    body = iterate(30, each_s=0.003, beside=True)
    succeed(fork(0, body), fork(1, body))
    counted, waited_s = sum(table.slots[slot].handovers for slot in (0, 1)), table.header.waited_s
    assert sum(table.header.waits) == counted > 20
    assert waited_s == pytest.approx(sum(table.slots[slot].waited_s for slot in (0, 1)))
    below = [0.0, *WAIT_BOUNDS_S]
    assert sum(count * bound for count, bound in zip(table.header.waits, below, strict=True)) <= waited_s
    assert sum(table.header.waits[2:]) > 10, "waits of 3 ms and more"
    table.free(0)
    assert sum(table.header.waits) == counted


def hold_until_killed(turn: LaneTurn, table: LaneTable) -> None:
    turn.take()
    time.sleep(60)


def test_the_turn_of_a_killed_holder_is_granted_again(table: LaneTable, fork: Fork) -> None:
    holder = fork(0, hold_until_killed)
    wait_for(lambda: table.header.holder == 0)
    waiter = fork(1, iterate(3))
    wait_for(lambda: table.header.waiting_rank != NO_RANK)
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    table.free(0)
    succeed(waiter)
    assert table.slots[0].seat == SlotState.EMPTY


def test_a_killed_waiter_is_passed_over(table: LaneTable, fork: Fork) -> None:
    def hold_for_a_word(turn: LaneTurn, own: LaneTable) -> None:
        turn.take()
        wait_for(lambda: own.slots[2].weight == 2.0)
        turn.leave()

    holder = fork(0, hold_for_a_word)
    wait_for(lambda: table.header.holder == 0)
    victim = fork(1, iterate(3))
    wait_for(lambda: table.slots[1].seat == SlotState.WAITING)
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    table.free(1)
    last = fork(2, iterate(3))
    table.claim({2: (0, 2.0)})
    succeed(holder, last)


def outlived_by_a_waiter(table: LaneTable, fork: Fork, die: Callable[[LaneTurn, LaneTable], None]) -> None:
    """The holder in slot 0 dies while slot 1 waits, which then gets the turn."""
    holder = fork(0, die)
    wait_for(lambda: table.header.holder == 0)
    waiter = fork(1, iterate(3))
    os.waitpid(holder, 0)
    table.free(0)
    succeed(waiter)


def test_death_between_choosing_and_granting_loses_nothing(table: LaneTable, fork: Fork) -> None:
    """If it is killed before the holder's word is written, the old holder still has the turn."""

    def die_half_way(turn: LaneTurn, own: LaneTable) -> None:
        turn.take()
        wait_for(lambda: own.header.waiting_rank != NO_RANK)
        with own.locked():
            own.slots[1].grant += 1
            os.kill(os.getpid(), signal.SIGKILL)

    outlived_by_a_waiter(table, fork, die_half_way)


def test_death_between_granting_and_waking_loses_nothing(table: LaneTable, fork: Fork) -> None:
    def die_before_waking(turn: LaneTurn, own: LaneTable) -> None:
        turn.take()
        wait_for(lambda: own.header.waiting_rank != NO_RANK)
        with own.locked():
            own.grant(1)
            os.kill(os.getpid(), signal.SIGKILL)

    outlived_by_a_waiter(table, fork, die_before_waking)


@pytest.mark.slow
def test_a_wait_that_a_signal_handler_breaks_off_is_taken_up_again(table: LaneTable, fork: Fork) -> None:
    def with_alarm(turn: LaneTurn, own: LaneTable) -> None:
        class Alarm(Exception):
            pass

        def ring(number: int, frame: object) -> None:
            raise Alarm

        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            turn.take()
        except Alarm:
            pass
        else:
            raise AssertionError("it was not interrupted")
        turn.offer(lambda: None)
        assert turn.holding
        turn.leave()
        assert not turn.holding

    def hold(turn: LaneTurn, own: LaneTable) -> None:
        turn.take()
        time.sleep(0.6)
        turn.leave()

    holder = fork(0, hold)
    wait_for(lambda: table.header.holder == 0)
    succeed(holder, fork(1, with_alarm))
    assert table.header.holder == NO_SLOT


@pytest.mark.slow
def test_a_newcomer_does_not_catch_up_on_one_that_is_away(table: LaneTable, fork: Fork) -> None:
    def old(turn: LaneTurn, own: LaneTable) -> None:
        own.slots[0].service_s = 3600.0
        turn.take()
        time.sleep(0.05)
        turn.leave()
        wait_for(lambda: own.slots[1].handovers > 0)
        iterate(20, each_s=0.005)(turn, own)

    veteran = fork(0, old)
    wait_for(lambda: table.header.virtual_s > 3600.0)
    newcomer = fork(1, iterate(200, each_s=0.005))
    succeed(veteran)
    assert table.slots[1].iterations < 150, "the newcomer kept the turn to itself"
    succeed(newcomer)


@pytest.mark.slow
def test_a_more_urgent_job_gets_in_at_the_next_boundary(table: LaneTable, fork: Fork) -> None:
    def slow(turn: LaneTurn, own: LaneTable) -> None:
        turn.take()
        for _ in range(200):
            time.sleep(0.005)
            turn.count(evaluating=False)
            own.header.quantum_s = 1000.0
            turn.offer(lambda: None)
        turn.leave()

    patient = fork(0, slow, rank=1)
    wait_for(lambda: table.slots[0].iterations > 3)
    urgent = fork(1, iterate(5), rank=0)
    succeed(urgent)
    assert table.slots[0].iterations < 150, "the urgent job waited for the other to end"
    assert table.slots[1].longest_wait_s < 0.5
    succeed(patient)


@pytest.mark.nightly
def test_a_less_urgent_job_waits_for_the_end(table: LaneTable, fork: Fork) -> None:
    urgent = fork(0, iterate(200, each_s=0.002), rank=0)
    wait_for(lambda: table.header.holder == 0)
    patient = fork(1, iterate(5), rank=1)
    succeed(urgent, patient)
    assert table.slots[0].handovers == 1


def test_a_stopped_job_ends_at_its_boundary(table: LaneTable, fork: Fork) -> None:
    holder = fork(0, hold_until_killed)
    wait_for(lambda: table.header.holder == 0)
    waiter = fork(1, iterate(10**9))
    wait_for(lambda: table.slots[1].seat == SlotState.WAITING)
    table.stop(1)
    assert os.waitstatus_to_exitcode(os.waitpid(waiter, 0)[1]) == -signal.SIGTERM
    table.free(1)
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    table.free(0)
    runner = fork(2, iterate(10**9))
    wait_for(lambda: table.slots[2].iterations > 10)
    table.stop(2)
    assert os.waitstatus_to_exitcode(os.waitpid(runner, 0)[1]) == -signal.SIGTERM


@pytest.mark.slow
def test_time_is_shared_by_time_and_not_by_turns(table: LaneTable, fork: Fork) -> None:
    """Jobs with long and with short iterations hold the turn for equally long."""

    def working(step_s: float) -> Callable[[LaneTurn, LaneTable], None]:
        def body(turn: LaneTurn, own: LaneTable) -> None:
            turn.take()
            until_s = time.monotonic() + 1.5
            while time.monotonic() < until_s:
                time.sleep(step_s)
                turn.count(evaluating=False)
                own.header.quantum_s = 0.01
                turn.offer(lambda: None)
            turn.leave()

        return body

    table.header.wait_per_job_s = 5.0  # else turns this short are handed out oldest first
    succeed(fork(0, working(0.03)), fork(1, working(0.003)))
    held = [table.slots[slot].held_s for slot in range(2)]
    assert 0.6 < held[0] / held[1] < 1.6


def load_data(count: int, away_s: float = 0.01) -> Callable[[LaneTurn, LaneTable], None]:
    """Body with iterations of 5 ms that leaves its turn after each to load data."""

    def body(turn: LaneTurn, own: LaneTable) -> None:
        turn.take()
        for _ in range(count):
            time.sleep(0.005)
            turn.count(evaluating=False)
            turn.offer(lambda: None)
            turn.leave()
            time.sleep(away_s)
            turn.take()
        turn.leave()

    return body


def train(turn: LaneTurn, own: LaneTable) -> None:
    """Body with iterations of 5 ms that does not end by itself."""
    turn.take()
    while True:
        time.sleep(0.005)
        turn.count(evaluating=False)
        turn.offer(lambda: None)


@pytest.mark.slow
def test_one_that_loads_data_does_not_wait_for_whole_quanta(table: LaneTable, fork: Fork) -> None:
    fork(0, train)
    wait_for(lambda: table.slots[0].iterations > 3)
    loads = fork(1, load_data(60))
    wait_for(lambda: table.slots[1].iterations > 0)
    before = table.slots[0].iterations
    succeed(loads)
    assert table.header.quantum_s > 0.1, "no quantum would be long enough to show anything"
    assert 40 < table.slots[0].iterations - before < 60 * 8, "one gets next to nothing"
    assert table.slots[1].waited_s < 60 * 0.05


@pytest.mark.nightly
def test_one_that_was_away_for_a_moment_waits_until_the_other_has_had_as_much(table: LaneTable, fork: Fork) -> None:
    fork(0, train)
    wait_for(lambda: table.slots[0].iterations > 3)
    succeed(fork(1, load_data(60, away_s=0.0)))
    held_s = [table.slots[0].service_s, 60 * 0.005]
    assert held_s[0] > 0.7 * held_s[1], "it came back before it was its turn"


@pytest.mark.slow
def test_absences_of_a_less_urgent_job_do_not_interrupt_a_more_urgent_one(table: LaneTable, fork: Fork) -> None:
    urgent = fork(0, iterate(150, each_s=0.004), rank=0)
    wait_for(lambda: table.header.holder == 0)

    def come_back(turn: LaneTurn, own: LaneTable) -> None:
        own.slots[1].handovers = 1
        load_data(5)(turn, own)

    patient = fork(1, come_back, rank=1)
    wait_for(lambda: table.slots[1].back == 1)
    succeed(urgent, patient)
    assert table.slots[0].handovers == 1


def test_deaths_of_one_that_loads_data_and_of_one_in_between_lose_nothing(table: LaneTable, fork: Fork) -> None:
    def come_back(turn: LaneTurn, own: LaneTable) -> None:
        turn.take()
        turn.leave()
        wait_for(lambda: own.header.holder == 0)
        turn.take()
        turn.leave()

    def let_in(turn: LaneTurn, own: LaneTable) -> None:
        wait_for(lambda: own.slots[1].handovers == 1 and own.slots[1].seat == SlotState.AWAY)
        hold_until_killed(turn, own)

    for dies in (1, 0):
        pids = [fork(0, let_in), fork(1, come_back)]
        wait_for(lambda: table.header.early_at_s < math.inf)
        os.kill(pids[dies], signal.SIGKILL)
        os.waitpid(pids[dies], 0)
        table.free(dies)
        if dies == 0:
            succeed(pids[1])
        else:
            assert table.header.early_at_s == math.inf, "the holder would make room for the dead"
            os.kill(pids[0], signal.SIGKILL)
            os.waitpid(pids[0], 0)
            table.free(0)
    assert table.header.holder == NO_SLOT


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(bytes(1 << 16))
    with pytest.raises(ValueError, match="not a lane table"):
        LaneTable(other)


@pytest.mark.slow
def test_a_reserved_turn_goes_to_its_slot_alone_and_to_all_again_after(table: LaneTable, fork: Fork) -> None:
    pids = [fork(slot, iterate(100_000, each_s=0.0005)) for slot in range(3)]
    wait_for(lambda: all(table.slots[slot].iterations > 20 for slot in range(3)))
    table.reserve(1)
    wait_for(lambda: table.header.holder == 1)
    others = [table.slots[slot].iterations for slot in (0, 2)]
    own = table.slots[1].iterations
    wait_for(lambda: table.slots[1].iterations > own + 200)
    assert [table.slots[slot].iterations for slot in (0, 2)] == others, "another job ran in the window"
    table.reserve(ANY_SLOT)
    wait_for(lambda: all(table.slots[slot].iterations > others[0] + 50 for slot in (0, 2)))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_lane_that_is_reserved_for_no_slot_pauses_and_goes_on(table: LaneTable, fork: Fork) -> None:
    pid = fork(0, iterate(400, each_s=0.001))
    wait_for(lambda: table.slots[0].iterations > 10)
    table.reserve(NO_SLOT)
    wait_for(lambda: table.header.holder == NO_SLOT and table.slots[0].seat == SlotState.WAITING)
    done = table.slots[0].iterations
    newcomer = fork(1, iterate(10))
    wait_for(lambda: table.slots[1].seat == SlotState.WAITING)
    time.sleep(0.05)
    assert (table.slots[0].iterations, table.slots[1].iterations) == (done, 0)
    table.reserve(ANY_SLOT)
    succeed(pid, newcomer)
    assert (table.slots[0].iterations, table.slots[1].iterations) == (400, 10)


def test_a_reservation_ends_with_the_job_that_it_was_for(table: LaneTable, fork: Fork) -> None:
    holder = fork(0, hold_until_killed)
    wait_for(lambda: table.header.holder == 0)
    table.reserve(0)
    waiting = fork(1, iterate(10))
    wait_for(lambda: table.slots[1].seat == SlotState.WAITING)
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    table.free(0)
    succeed(waiting)


def test_a_job_stays_until_it_was_looked_at_but_not_for_ever(table: LaneTable) -> None:
    table.seat(0)
    turn = LaneTurn(table, 0)
    answers = BoundaryAnswers(lambda: turn.slot)
    answers.give(BoundaryRequest.OBSERVED)
    began_s = time.monotonic()
    answers.stay(0.05)
    assert 0.05 <= time.monotonic() - began_s < 1.0 and turn.asked == BoundaryRequest.NOTHING
    answers.give(BoundaryRequest.FLUSH)
    answers.stay(5.0)
    assert turn.asked == BoundaryRequest.FLUSH, "what the controller asks meanwhile was lost"


class EndsMeanwhile(Slot):
    """Slot of a fused job that is cleared as soon as its process has been read."""

    def __getattribute__(self, name: str) -> object:
        value = super().__getattribute__(name)
        if name == "pid":
            ctypes.memset(ctypes.addressof(self), 0, ctypes.sizeof(Slot))
        return value


def test_a_fused_job_that_ends_never_passes_for_the_only_one_of_its_process() -> None:
    """Else the sampler would count the processor time of the whole process as the job's own."""
    assert EndsMeanwhile(pid=4711, fused=1).process() == (0, False)
    assert Slot(pid=4711, fused=1).process() == (4711, True)
    assert Slot(pid=4711, fused=0).process() == (4711, False)
