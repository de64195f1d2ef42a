"""A job that keeps its lane, with real processes: each way to that, and the moments at which it must not happen."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ecoshare.lane import child_processes, processes
from ecoshare.lane.child_processes import KEEP_LANE, KeptLane, kept_lane_reason, note_path
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.tables.table_layout import SlotState
from ecoshare.lane.turn import LaneTurn
from tests.lane.forked import ForkedJobs, succeed
from tests.warm import wait_for

Body = Callable[[KeptLane, LaneTurn], None]


@pytest.fixture
def table(tmp_path: Path) -> LaneTable:
    made = LaneTable.create(tmp_path / "lane")
    made.header.wait_per_job_s = 0.0
    return made


@pytest.fixture
def fork(table: LaneTable, tmp_path: Path) -> Iterator[Callable[[int, Body], int]]:
    """Function that starts a process as the job of a slot; attempts are numbered by slot, from 1."""
    jobs = ForkedJobs()

    def start(slot: int, body: Body) -> int:
        table.seat(slot)

        def run() -> None:
            turn = LaneTurn(LaneTable(table.path), slot)
            kept = KeptLane(note_path(tmp_path, slot + 1), turn.take)
            kept.listen()
            body(kept, turn)

        return jobs.start(run)

    yield start
    jobs.end()


Fork = Callable[[int, Body], int]


def holds_until(path: Path) -> Body:
    """Body of a job that has the turn until a file exists."""

    def body(_kept: KeptLane, turn: LaneTurn) -> None:
        turn.take()
        wait_for(path.exists)
        turn.leave()

    return body


def test_a_signal_reaches_a_job_that_waits_for_a_program(table: LaneTable, fork: Fork, tmp_path: Path) -> None:
    def body(kept: KeptLane, turn: LaneTurn) -> None:
        subprocess.run(["sh", "-c", f"until [ -e {tmp_path}/over ]; do sleep 0.02; done"], check=True)
        assert kept.is_kept and turn.holding

    pid = fork(0, body)
    wait_for(lambda: processes.catches(pid, KEEP_LANE))
    assert not kept_lane_reason(tmp_path, 1)
    os.kill(pid, KEEP_LANE)
    wait_for(lambda: bool(kept_lane_reason(tmp_path, 1)))
    assert table.header.holder == 0, "the note stands only when the job has its turn"
    (tmp_path / "over").touch()
    succeed(pid)


def test_a_request_in_the_midst_of_a_hand_over_is_met_after_it(fork: Fork) -> None:
    """If it were met at once, two calls would change one turn at once."""

    def body(kept: KeptLane, turn: LaneTurn) -> None:
        seen = []

        def use() -> None:
            turn.take()
            os.kill(os.getpid(), KEEP_LANE)
            seen.append(kept.is_kept)
            turn.leave()
            seen.append(turn.holding)

        kept.during(use)
        assert seen == [False, False] and kept.is_kept and turn.holding

    succeed(fork(0, body))


@pytest.mark.parametrize("how", ["process", "thread"])
def test_a_child_works_only_when_its_job_has_the_turn(how: str, table: LaneTable, fork: Fork, tmp_path: Path) -> None:
    free = tmp_path / "free"

    def begin(kept: KeptLane, turn: LaneTurn) -> None:
        kept.begin("it does so")
        assert turn.holding
        (tmp_path / "works").touch()

    def body(kept: KeptLane, turn: LaneTurn) -> None:
        if how == "thread":
            child = threading.Thread(target=begin, args=(kept, turn))
            child.start()
            child.join()
        elif (pid := os.fork()) == 0:
            code = 1
            try:
                begin(kept, turn)
                code = 0
            finally:
                os._exit(code)
        else:
            succeed(pid)

    other = fork(1, holds_until(free))
    wait_for(lambda: table.header.holder == 1)
    own = fork(0, body)
    wait_for(lambda: table.slots[0].seat == SlotState.WAITING)
    assert not (tmp_path / "works").exists() and not kept_lane_reason(tmp_path, 1)
    free.touch()
    succeed(other)
    succeed(own)
    assert (tmp_path / "works").exists()
    assert kept_lane_reason(tmp_path, 1) == (
        "it does so" if how == "thread" else "a process that it has started uses the device"
    )


def test_a_request_that_does_not_wake_the_main_thread_is_repeated(fork: Fork, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first signal comes to nothing, as one does that meets the main thread right before it waits for a lock."""

    def body(kept: KeptLane, turn: LaneTurn) -> None:
        real, sent = os.kill, []

        def kill(pid: int, number: int) -> None:
            sent.append(number)
            if len(sent) > 1:
                real(pid, number)

        monkeypatch.setattr(os, "kill", kill)
        child = threading.Thread(target=kept.begin)
        child.start()
        child.join()
        assert len(sent) >= 2 and kept.is_kept and turn.holding

    succeed(fork(0, body))


def test_a_child_does_not_wait_for_a_job_that_cannot_hear(fork: Fork) -> None:
    """The script has set a handler of its own, which is its right."""

    def body(kept: KeptLane, _turn: LaneTurn) -> None:
        signal.signal(KEEP_LANE, signal.SIG_IGN)
        child = threading.Thread(target=kept.begin)
        child.start()
        child.join(20.0)
        assert not child.is_alive() and not kept.is_kept

    succeed(fork(0, body))


def test_a_child_does_not_wait_for_ever_for_a_job_that_waits_inside_of_a_library(
    fork: Fork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it did, both would wait for each other. A blocked signal is not heard either."""
    monkeypatch.setattr(child_processes, "_HEARS_WITHIN_S", 0.1)

    def body(kept: KeptLane, turn: LaneTurn) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [KEEP_LANE])
        child = threading.Thread(target=kept.begin)
        child.start()
        child.join(20.0)
        assert not child.is_alive() and not kept.is_kept
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [KEEP_LANE])
        assert kept.is_kept and turn.holding, "it is late, not lost"

    succeed(fork(0, body))


def test_the_first_reason_is_kept(fork: Fork, tmp_path: Path) -> None:
    def body(kept: KeptLane, _turn: LaneTurn) -> None:
        kept.begin("the first")
        kept.begin("the second")

    succeed(fork(0, body))
    assert note_path(tmp_path, 1).read_text() == "the first\n"
