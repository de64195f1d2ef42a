"""Jobs that move to another lane, with real processes and the real parts of controller and supervisor."""

from __future__ import annotations

import asyncio
import math
import os
import random
import signal
import time
from pathlib import Path

import pytest

from ecoshare.core.commands import MoveJob
from ecoshare.core.events import Refused
from ecoshare.lane.messages import StopAttempt
from ecoshare.lane.supervisor.attempt_process import usage
from ecoshare.lane.tables.lane_table import LaneTable, lane_path
from ecoshare.lane.tables.table_layout import ANY_SLOT, SlotState
from ecoshare.lane.turn import LaneTurn
from ecoshare.runtime.nodes import attempts
from tests.lane.moving import Body, Lanes, moves, train, until_then
from tests.warm import wait_for


def mark(number: int, iterations: int, folder: Path, dice: random.Random) -> Body:
    """Body that writes its number twice in each iteration to a file of its lane, and sometimes loads data.

    The job ends only after it has been in both lanes: on a busy machine there may be few moves.
    """

    def body(turn: LaneTurn) -> None:
        turn.take()
        been = {turn._table.path}
        for done in range(iterations):
            while done == iterations - 1 and len(been) < 2:
                turn.leave()
                time.sleep(0.001)
                turn.take()
                been.add(turn._table.path)
            been.add(turn._table.path)
            with (folder / f"marks-{Path(turn._table.path).name}").open("ab", buffering=0) as file:
                file.write(b"<%d>" % number)
                if dice.random() < 0.1:
                    time.sleep(0.001)
                file.write(b"</%d>" % number)
            turn.count(evaluating=False)
            turn._table.header.quantum_s = 0.0
            turn.offer(lambda: None)
            if number % 2 and dice.random() < 0.05:
                turn.leave()
                time.sleep(0.002)
                turn.take()
        turn.leave()

    return body


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 6))])
def test_random_moves_lose_and_repeat_nothing(
    lanes: Lanes, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each iteration runs once, one job at a time in each lane, counters only grow, and every job ends.

    With even seeds moves are taken back as soon as they are looked at, so often just as the job goes.
    """
    if seed % 2 == 0:
        monkeypatch.setattr(attempts, "_LOOK_S", 0.0005)
        monkeypatch.setattr(attempts, "_GOES_WITHIN_S", 0.0)
    dice, jobs, iterations = random.Random(seed), 5, 1500
    seen: dict[str, dict[str, float]] = {}

    def compare(name: str, now: dict[str, float]) -> None:
        # Between the end of a turn and the word that tells of it a few microseconds pass, in which it still counts.
        # On a busy machine the process may be without a processor just then.
        # The longest of late decays, and a turn may come to be cut.
        slack = {"held_s": 0.1, "longest_iteration_s": math.inf, "never_cut": math.inf}
        for key, before in seen.get(name, {}).items():
            assert now[key] >= before - slack.get(key, 0.0), (name, key, seen[name], now)

    def look(name: str) -> None:
        slot = lanes.slot(name)
        used = usage(slot)
        if slot.seat != SlotState.EMPTY:
            compare(name, used)
            seen[name] = used

    async def scene(tasks: asyncio.TaskGroup) -> None:
        for number in range(jobs):
            lanes.start(str(number), number % 2, mark(number, iterations, tmp_path, random.Random(seed + number)))
        moved = 0
        ended: set[str] = set()
        deadline_s = time.monotonic() + 60.0
        while len(ended) < jobs:
            assert time.monotonic() < deadline_s, "a job has stopped"
            for name in set(lanes.known) - ended:
                look(name)
                if os.waitid(os.P_PIDFD, lanes.attempts[name].pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    ended.add(name)
                    look(name)
                    code, used = lanes.reap(name)
                    assert (code, used["iterations"]) == (0, iterations)
                    compare(name, used)
                elif name not in lanes.moving.pending and dice.random() < 0.3:
                    lanes.move(name, 1 - lanes.place(name)[0], tasks)
                    moved += 1
            await asyncio.sleep(0)
        assert moved > 50, "too few moves to show anything"

    moves(scene)
    assert lanes.is_empty
    contents = [(tmp_path / f"marks-lane{lane}").read_bytes() for lane in range(2)]
    for number in range(jobs):
        pair = b"<%d></%d>" % (number, number)
        assert sum(content.count(pair) for content in contents) == iterations, "another mark stands inside, or is lost"
        assert all(pair in content for content in contents), "it was never in one of the lanes"


def test_a_holder_passes_its_turn_on_and_is_a_newcomer_there(lanes: Lanes) -> None:
    def veteran(turn: LaneTurn) -> None:
        turn._slot.service_s = 1000.0
        train()(turn)

    lanes.start("moves", 0, veteran)
    wait_for(lambda: lanes.slot("moves").iterations > 3)
    lanes.start("stays", 0, train(quantum_s=None), rank=1)
    lanes.start("there", 1, train())
    wait_for(lambda: lanes.slot("there").iterations > 3)
    with lanes.tables[1].locked():
        level_s = lanes.slot("there").service_s
    assert lanes.slot("stays").iterations == 0, "it is less urgent"

    async def scene(tasks: asyncio.TaskGroup) -> None:
        before = lanes.slot("moves").iterations
        command = lanes.move("moves", 1, tasks)
        await until_then(lambda: lanes.has_moved(command))
        assert lanes.place("moves")[0] == 1 and lanes.slot("moves").iterations >= before
        await until_then(lambda: lanes.slot("stays").iterations > 3)
        await until_then(lambda: lanes.slot("moves").iterations > before + 20)
        assert level_s <= lanes.slot("moves").service_s < 900.0, "it would wait for those there to have had as much"
        there = lanes.slot("there").iterations
        await until_then(lambda: lanes.slot("there").iterations > there + 20)

    moves(scene)


def test_one_that_waits_moves_without_having_had_its_turn(lanes: Lanes) -> None:
    lanes.start("holds", 0, train(each_s=3.0, quantum_s=1000.0))
    wait_for(lambda: lanes.tables[0].header.holder == 0)
    lanes.start("waits", 0, train(40))
    wait_for(lambda: lanes.slot("waits").seat == SlotState.WAITING)
    time.sleep(0.2)

    async def scene(tasks: asyncio.TaskGroup) -> None:
        command = lanes.move("waits", 1, tasks)
        await until_then(lambda: lanes.has_moved(command), 1.0)

    moves(scene)
    code, used = lanes.reap("waits")
    assert (code, used["iterations"]) == (0, 40)
    assert used["longest_wait_s"] >= 0.2, "the wait in the lane that it left is forgotten"
    assert lanes.slot("holds").seat == SlotState.HOLDING and lanes.slot("holds").iterations == 0


def test_one_that_is_away_moves_when_it_comes_back(lanes: Lanes) -> None:
    def load(turn: LaneTurn) -> None:
        train(5)(turn)
        wait_for(lambda: turn._slot.goal != 0)
        time.sleep(0.1)
        assert Path(turn._table.path).name == "lane0", "the turn was never looked at"
        turn.take()
        assert Path(turn._table.path).name == "lane1" and turn.holding
        turn.leave()

    lanes.start("loads", 0, load)
    wait_for(lambda: lanes.slot("loads").iterations == 5 and lanes.slot("loads").seat == SlotState.AWAY)

    async def scene(tasks: asyncio.TaskGroup) -> None:
        command = lanes.move("loads", 1, tasks)
        await until_then(lambda: lanes.has_moved(command))

    moves(scene)
    code, used = lanes.reap("loads")
    assert (code, used["iterations"], used["handovers"]) == (0, 5, 2)


def test_one_that_comes_to_no_boundary_stays_until_it_is_asked_again(
    lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an answer no other job could be moved: it may wait for a process until its end."""
    monkeypatch.setattr(attempts, "_GOES_WITHIN_S", 0.1)

    def body(turn: LaneTurn) -> None:
        turn.take()
        while turn._table.header.presses == 0:  # set by the test, as a sign
            time.sleep(0.001)
        turn.leave()
        train(20)(turn)

    lanes.start("waits", 0, body)
    wait_for(lambda: lanes.slot("waits").seat == SlotState.HOLDING)

    async def scene(tasks: asyncio.TaskGroup) -> None:
        command = lanes.move("waits", 1, tasks)
        await until_then(lambda: bool(lanes.told))
        assert isinstance(lanes.told[0], Refused) and lanes.told[0].command == command
        assert lanes.tables[1].slots[0].seat == SlotState.EMPTY and lanes.place("waits")[0] == 0
        again = lanes.move("waits", 1, tasks)
        lanes.tables[0].header.presses = 1
        await until_then(lambda: lanes.has_moved(again))

    moves(scene)
    assert lanes.reap("waits")[1]["iterations"] == 20
    assert lanes.is_empty


@pytest.mark.parametrize("order", ["stop first", "move first", "arrived first"])
def test_a_stop_wins_over_a_move(lanes: Lanes, order: str) -> None:
    lanes.start("holds", 0, train(each_s=0.5, quantum_s=1000.0))
    wait_for(lambda: lanes.tables[0].header.holder == 0)
    lanes.start("stays", 1, train())
    attempt = lanes.start("ends", 0, train())
    wait_for(lambda: lanes.slot("ends").seat == SlotState.WAITING)
    stop = StopAttempt("ends", 1, False, "for this test", 10.0)

    async def scene(tasks: asyncio.TaskGroup) -> None:
        if order == "stop first":
            attempt.ask_to_end(stop)
        command = lanes.move("ends", 1, tasks)
        if order == "arrived first":
            await until_then(lambda: lanes.has_moved(command))
        if order != "stop first":
            attempt.ask_to_end(stop)
        code, used = lanes.reap("ends")
        assert code == -signal.SIGTERM
        assert lanes.has_moved(command) == (order == "arrived first")
        if order == "stop first":
            assert used["iterations"] == 0

    moves(scene)
    assert sum(slot.seat != SlotState.EMPTY for table in lanes.tables.values() for slot in table.slots) == 2


def test_a_stop_wins_where_it_is_seen_together_with_a_move(lanes: Lanes) -> None:
    """The job sees both requests at once when it comes back from loading data."""

    def load(turn: LaneTurn) -> None:
        train(5)(turn)
        wait_for(lambda: turn._slot.stop == 1 and turn._slot.goal != 0)
        train(5)(turn)

    attempt = lanes.start("ends", 0, load)
    wait_for(lambda: lanes.slot("ends").iterations == 5 and lanes.slot("ends").seat == SlotState.AWAY)

    async def scene(tasks: asyncio.TaskGroup) -> None:
        command = lanes.move("ends", 1, tasks)
        attempt.ask_to_end(StopAttempt("ends", 1, False, "for this test", 10.0))
        os.waitid(os.P_PIDFD, attempt.pidfd, os.WEXITED | os.WNOWAIT)
        lanes.moving.follow("ends")
        code, used = lanes.reap("ends")
        assert (code, used["iterations"]) == (-signal.SIGTERM, 6)
        assert not lanes.has_moved(command)

    moves(scene)
    assert lanes.is_empty


def test_one_that_died_before_its_move_is_not_taken_to_have_moved(
    lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is killed after the copy, and the driver looks at the slots between any two that the supervisor frees."""
    attempt = lanes.start("dies", 0, train(each_s=60.0))
    wait_for(lambda: lanes.slot("dies").seat == SlotState.HOLDING)
    free = LaneTable.free

    def free_and_look(table: LaneTable, index: int, owner: int = 0) -> None:
        free(table, index, owner)
        lanes.moving.follow("dies")

    async def scene(tasks: asyncio.TaskGroup) -> None:
        lanes.move("dies", 1, tasks)
        monkeypatch.setattr(LaneTable, "free", free_and_look)
        os.kill(attempt.pid, signal.SIGKILL)
        os.waitid(os.P_PIDFD, attempt.pidfd, os.WEXITED | os.WNOWAIT)
        lanes.tables[0].copy(0, lanes.tables[1].slots[0])
        attempt.free()
        assert not lanes.told, "it was said to have moved"
        monkeypatch.undo()
        lanes.reap("dies")
        assert not lanes.told and not lanes.moving.pending

    moves(scene)
    assert lanes.is_empty


def test_a_turn_that_is_reserved_there_is_waited_for(lanes: Lanes) -> None:
    lanes.start("moves", 0, train())
    lanes.start("measured", 1, train())
    wait_for(lambda: lanes.slot("moves").iterations > 3 and lanes.slot("measured").iterations > 3)
    lanes.tables[1].reserve(0)

    async def scene(tasks: asyncio.TaskGroup) -> None:
        command = lanes.move("moves", 1, tasks)
        await until_then(lambda: lanes.has_moved(command))
        await until_then(lambda: lanes.slot("moves").seat == SlotState.WAITING)
        done, others = lanes.slot("moves").iterations, lanes.slot("measured").iterations
        await until_then(lambda: lanes.slot("measured").iterations > others + 100)
        assert lanes.slot("moves").iterations == done, "it ran in the window of another job"
        assert lanes.slot("moves").back == 0, "it would come in before the end of a quantum, as one that loads data"
        lanes.tables[1].reserve(ANY_SLOT)
        await until_then(lambda: lanes.slot("moves").iterations > done + 10)

    moves(scene)


def test_a_reservation_does_not_outlast_the_one_that_it_was_for(lanes: Lanes) -> None:
    lanes.start("moves", 0, train())
    wait_for(lambda: lanes.slot("moves").iterations > 3)
    lanes.start("waits", 0, train())
    lanes.tables[0].reserve(0)
    wait_for(lambda: lanes.slot("waits").seat == SlotState.WAITING)

    async def scene(tasks: asyncio.TaskGroup) -> None:
        lanes.move("moves", 1, tasks)
        done = lanes.slot("waits").iterations
        await until_then(lambda: lanes.slot("waits").iterations > done + 3)

    moves(scene)


def test_no_job_leaves_a_pinned_lane(lanes: Lanes) -> None:
    lanes.start("runs", 0, train())
    lanes.start("waits", 0, train(), rank=1)
    wait_for(lambda: lanes.slot("runs").iterations > 3 and lanes.slot("waits").seat == SlotState.WAITING)

    async def scene(tasks: asyncio.TaskGroup) -> None:
        lanes.moving.pin([0, 1])
        lanes.moving.pin([0, 1])
        commands = [lanes.move(name, 1, tasks) for name in ("runs", "waits")]
        done = lanes.slot("runs").iterations
        await until_then(lambda: lanes.slot("runs").iterations > done + 50)
        lanes.moving.unpin([0, 1])
        await asyncio.sleep(0.05)
        assert not lanes.told and {lanes.place(name)[0] for name in ("runs", "waits")} == {0}
        lanes.moving.unpin([0, 1])
        await until_then(lambda: all(map(lanes.has_moved, commands)), 0.9)

    moves(scene)
    assert lanes.slot("waits").rank == 1, "its claim was left behind"


def test_jobs_of_lanes_that_are_not_pinned_move_on(lanes: Lanes) -> None:
    """A window of one device must not hold up the jobs of another."""
    lanes.start("stays", 0, train())
    lanes.start("moves", 1, train())
    wait_for(lambda: lanes.slot("stays").iterations > 3 and lanes.slot("moves").iterations > 3)

    async def scene(tasks: asyncio.TaskGroup) -> None:
        lanes.moving.pin([0])
        held, free = lanes.move("stays", 1, tasks), lanes.move("moves", 0, tasks)
        await until_then(lambda: lanes.has_moved(free))
        assert not lanes.has_moved(held) and lanes.place("stays")[0] == 0
        lanes.moving.unpin([0])
        await until_then(lambda: lanes.has_moved(held))

    moves(scene)


def test_a_lane_without_a_table_is_told_and_the_job_stays(lanes: Lanes) -> None:
    lanes.start("stays", 0, train())
    lane_path(lanes.folder, 1).unlink()

    async def scene(tasks: asyncio.TaskGroup) -> None:
        command = lanes.move("stays", 1, tasks)
        await until_then(lambda: bool(lanes.told))
        assert isinstance(lanes.told[0], Refused) and lanes.told[0].command == command
        done = lanes.slot("stays").iterations
        await until_then(lambda: lanes.slot("stays").iterations > done + 10)

    moves(scene)
    assert all(slot.seat == SlotState.EMPTY for slot in lanes.tables[1].slots)


def test_what_cannot_be_is_refused(lanes: Lanes) -> None:
    lanes.start("here", 0, train(each_s=1.0))

    async def scene(tasks: asyncio.TaskGroup) -> None:
        lanes.moving.start(MoveJob(100, "gone", 1, 1), tasks.create_task)
        lanes.moving.start(MoveJob(101, "here", 2, 1), tasks.create_task)
        lanes.moving.start(MoveJob(102, "here", 1, 0), tasks.create_task)
        lanes.moving.start(MoveJob(103, "here", 1, 2), tasks.create_task)
        for slot in range(64):
            lanes.tables[1].seat(slot)
        lanes.moving.start(MoveJob(104, "here", 1, 1), tasks.create_task)
        lanes.tables[1].free(5)
        lanes.moving.start(MoveJob(105, "here", 1, 1), tasks.create_task)
        lanes.moving.start(MoveJob(106, "here", 1, 1), tasks.create_task)
        assert [(type(event), getattr(event, "command", None)) for event in lanes.told] == [
            (Refused, command) for command in (102, 103, 104, 106)
        ], "the ends of those that have ended answer for them"
        lanes.kill("here")
        assert len(lanes.told) == 4 and not lanes.moving.pending
        assert lanes.tables[1].slots[5].seat == SlotState.EMPTY

    moves(scene)


def test_slots_that_the_core_may_fill_are_left_to_it(lanes: Lanes) -> None:
    lanes.start("here", 0, train())

    async def scene(tasks: asyncio.TaskGroup) -> None:
        for slot in range(63):
            lanes.tables[1].seat(slot)
        lanes.moving.places = 1
        lanes.moving.start(MoveJob(100, "here", 1, 1), tasks.create_task)
        assert isinstance(lanes.told[0], Refused)

    moves(scene)


def test_a_late_free_or_stop_touches_no_other_job(lanes: Lanes) -> None:
    table = lanes.tables[0]
    table.seat(0, 7)
    table.free(0, 6)
    table.stop(0, 6)
    table.send(0, 1, 0, 6)
    assert (table.slots[0].seat, table.slots[0].stop, table.slots[0].goal) == (SlotState.AWAY, 0, 0)
    table.free(0, 7)
    assert table.slots[0].seat == SlotState.EMPTY


def test_a_job_that_keeps_its_lane_is_not_waited_for(lanes: Lanes) -> None:
    """It never looks at its goal, so a move without an answer would leave the core with a wrong lane."""

    def body(turn: LaneTurn) -> None:
        turn.take()
        time.sleep(60.0)

    async def scene(tasks: asyncio.TaskGroup) -> None:
        lanes.start("ranks", 0, body)
        await until_then(lambda: lanes.slot("ranks").seat == SlotState.HOLDING)
        before = lanes.move("ranks", 1, tasks)
        lanes.known["ranks"].keeps_lane = "its ranks use the device"
        await until_then(lambda: bool(lanes.told))
        after = lanes.move("ranks", 1, tasks)
        expected = "the job keeps its lane: its ranks use the device"
        assert lanes.told == [Refused(0.0, command, expected) for command in (before, after)]
        assert lanes.place("ranks") == (0, 0) and lanes.tables[1].slots[0].seat == SlotState.EMPTY
        lanes.kill("ranks")

    moves(scene)
    assert lanes.is_empty
