"""Jobs that die while they move to another lane, or are interrupted: both lanes go on."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ecoshare.lane.supervisor.attempt_process import usage
from ecoshare.lane.tables.table_layout import ANY_SLOT, SlotState
from ecoshare.lane.turn import LaneTurn
from tests.lane.moving import Body, Lanes, moves, train, until_then
from tests.rounds import night, rounds
from tests.warm import wait_for


class Broken(Exception):
    """Exception that a signal handler of a script may raise."""


def at_step(number: int, what: str, do: Callable[[], None]) -> Callable[[FrameType, str, Any], Any]:
    """Trace function that calls `do` at the n-th step, `opcode` or `line`, of a pending move.

    Steps are inside `LaneTurn._move` and its callees, from a boundary or a wait.
    """
    steps = count(1)

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "call":
            back: FrameType | None = frame
            while back is not None and back.f_code is not LaneTurn._move.__code__:
                back = back.f_back
            if back is None or (back.f_back is not None and back.f_back.f_code is LaneTurn.take.__code__):
                return None
            frame.f_trace_opcodes = what == "opcode"
            return trace
        if event == what and next(steps) == number:
            do()
        return trace

    return trace


def cut_off(
    number: int,
    what: str,
    do: Callable[[], None],
    waits: bool,
    goes_on: Callable[[LaneTurn, bool], None] = lambda _turn, _was_broken: None,
) -> Body:
    """Body of three iterations, 20 ms in all, that is cut off in its move, or ends well after the move."""

    def body(turn: LaneTurn) -> None:
        if not waits:
            turn.take()
            time.sleep(0.02)
            for _ in range(3):
                turn.count(evaluating=False)
            wait_for(lambda: turn._slot.goal != 0)
        was_broken = False
        sys.settrace(at_step(number, what, do))
        try:
            if waits:
                turn.take()
            else:
                turn.offer(lambda: None)
        except Broken:
            was_broken = True
        finally:
            sys.settrace(None)
        goes_on(turn, was_broken)

    return body


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def cut_moves(lanes: Lanes, what: str, steps: Iterator[int], waits: bool) -> int:
    """Move jobs that SIGKILL cuts off, each at a later step; returns the number of moves until one was completed."""
    tried = 0

    async def scene(tasks: asyncio.TaskGroup) -> None:
        nonlocal tried
        for name, lane in (("here", 0), ("there", 1)):
            lanes.start(name, lane, train())
        seat = SlotState.WAITING if waits else SlotState.HOLDING
        for step in steps:
            began_s = time.monotonic()
            lanes.tables[0].reserve(0 if waits else 1)
            attempt = lanes.start("moves", 0, cut_off(step, what, die, waits))
            await until_then(lambda: lanes.slot("moves").seat == seat)
            lanes.tables[0].reserve(0 if waits else ANY_SLOT)
            before = usage(lanes.slot("moves"))
            lanes.move("moves", 1, tasks)
            await until_then(
                lambda: os.waitid(os.P_PIDFD, attempt.pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None  # noqa: B023
            )
            if step % 2:  # else the supervisor is the first to know of its end
                lanes.moving.follow("moves")
            code, used = lanes.reap("moves")
            wall_s = time.monotonic() - began_s
            lanes.tables[0].reserve(ANY_SLOT)
            assert used["iterations"] == (0 if waits else 3)
            assert before["held_s"] <= used["held_s"] <= wall_s, (step, "a turn is lost, or counted twice")
            assert waits or used["held_s"] >= 0.02
            here, there = (lanes.slot(name).iterations for name in ("here", "there"))
            await until_then(lambda: lanes.slot("here").iterations > here + 3)  # noqa: B023
            await until_then(lambda: lanes.slot("there").iterations > there + 3)  # noqa: B023
            seats = [[slot.seat != SlotState.EMPTY for slot in table.slots] for table in lanes.tables.values()]
            assert seats == [[True] + [False] * 63] * 2, (step, "a slot of the dead is left")
            if code == 0:
                return
            tried += 1

    moves(scene)
    return tried


@pytest.mark.slow
@pytest.mark.parametrize("waits", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_death_at_a_line_of_a_move_leaves_both_lanes_going(lanes: Lanes, waits: bool) -> None:
    assert cut_moves(lanes, "line", count(1, 17), waits) > 5


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("what", "stride"), [("line", 3), ("opcode", 7)])
@pytest.mark.parametrize("waits", [False, True])
def test_death_at_any_instruction_of_a_move_leaves_both_lanes_going(
    lanes: Lanes, what: str, stride: int, waits: bool
) -> None:
    """Each night has the next of these instructions."""
    assert cut_moves(lanes, what, count(1 + night() % stride, stride), waits) > 8


@pytest.mark.nightly
def test_death_at_any_moment_leaves_both_lanes_going(lanes: Lanes) -> None:
    tries = 50
    dice = random.Random(tries)

    async def scene(tasks: asyncio.TaskGroup) -> None:
        for name, lane in (("here", 0), ("there", 1)):
            lanes.start(name, lane, train())
        for _ in range(tries):
            lanes.start("moves", 0, train(each_s=0.0001))
            await until_then(lambda: lanes.slot("moves").iterations > 3)
            end_s = time.monotonic() + dice.uniform(0.0, 0.05)
            while time.monotonic() < end_s:
                if "moves" not in lanes.moving.pending:
                    lanes.move("moves", 1 - lanes.place("moves")[0], tasks)
                await asyncio.sleep(dice.uniform(0.0, 0.002))
            lane, index = lanes.place("moves")
            with lanes.tables[lane].locked():  # not between the job's look at the clock and its account of it
                seen = usage(lanes.tables[lane].slots[index])
            used = lanes.kill("moves")
            assert used["iterations"] >= seen["iterations"] and used["held_s"] >= seen["held_s"]
            for name in ("here", "there"):
                done = lanes.slot(name).iterations
                await until_then(lambda: lanes.slot(name).iterations > done + 3)  # noqa: B023
        assert not lanes.moving.pending

    moves(scene)
    for name in ("here", "there"):
        lanes.kill(name)
    assert lanes.is_empty


@pytest.mark.nightly
@pytest.mark.parametrize("stride", [29, rounds(4, nightly=1)])
def test_a_move_that_a_signal_handler_breaks_off_is_gone_on_with(lanes: Lanes, stride: int) -> None:
    """The handler raises at every line at which one may run; none runs between two lines without a call."""
    source, first = (
        Path(LaneTurn._move.__code__.co_filename).read_text().splitlines(),
        LaneTurn._move.__code__.co_firstlineno,
    )
    commit = next(number for number, line in enumerate(source, 1) if number > first and "slot.seat = empty" in line)
    is_over, may_not = 3, 4

    def raise_it() -> None:
        frame = sys._getframe(2)  # the traced one
        if frame.f_code is LaneTurn._move.__code__ and frame.f_lineno == commit + 1:
            os._exit(may_not)
        raise Broken

    def go_on(turn: LaneTurn, was_broken: bool) -> None:
        if not was_broken:
            os._exit(is_over)
        turn.offer(lambda: None)
        turn.offer(lambda: None)
        assert turn.holding and Path(turn._table.path).name == "lane1"
        turn.count(evaluating=False)
        turn.leave()

    async def scene(tasks: asyncio.TaskGroup) -> None:
        for name, lane in (("here", 0), ("there", 1)):
            lanes.start(name, lane, train())
        for step in count(1, stride):
            lanes.tables[0].reserve(1)
            attempt = lanes.start("moves", 0, cut_off(step, "line", raise_it, False, go_on))
            await until_then(lambda: lanes.slot("moves").seat == SlotState.HOLDING)
            lanes.tables[0].reserve(ANY_SLOT)
            command = lanes.move("moves", 1, tasks)
            await until_then(
                lambda: os.waitid(os.P_PIDFD, attempt.pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None  # noqa: B023
            )
            lanes.moving.follow("moves")
            code, used = lanes.reap("moves")
            if code == is_over and step > 50:
                return
            if code == is_over:  # on a busy machine the turn went to `here` first, and the job moved while it waited
                continue
            assert code == may_not or (code, used["iterations"], lanes.has_moved(command)) == (0, 4, True), step

    moves(scene)
