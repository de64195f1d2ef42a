"""Turn of a server that sleeps, in a lane's table."""

from __future__ import annotations

import time
from pathlib import Path

from ecoshare.lane.sleeping_job import AwakeTurn
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.tables.table_layout import NO_SLOT, SlotState
from ecoshare.lane.trace import Tracer
from ecoshare.lane.turn import LaneTurn


def test_answers_count_and_have_no_length(tmp_path: Path) -> None:
    """If it failed, answers of seconds would make the quanta of the lane 0, or a service that answers seem dead."""
    table = LaneTable.create(tmp_path / "lane")
    table.seat(0)
    events: list[str] = []
    turn = AwakeTurn(
        LaneTurn(table, 0),
        Tracer(tmp_path / "trace", 0.0),
        lambda: events.append("drained"),
        lambda: events.append("answered"),
    )
    slot, due_s = table.slots[0], time.monotonic() + 5.0
    turn.take(due_s, 2.0)
    assert (slot.due_s, slot.answer_s, table.header.holder) == (due_s, 2.0, 0)
    for _ in range(3):
        time.sleep(0.01)
        turn.answered()
    assert not turn.is_due
    assert (slot.eval_iterations, slot.iteration_s, slot.longest_iteration_s) == (3, 0.0, 0.0)
    assert slot.last_s - slot.first_s >= 0.02
    turn.leave()
    assert events == ["answered"] * 3 + ["drained"]
    assert (slot.seat, table.header.holder) == (SlotState.AWAY, NO_SLOT)


def test_the_turn_is_due_when_another_job_has_waited_for_its_quantum(tmp_path: Path) -> None:
    table = LaneTable.create(tmp_path / "lane")
    table.seat(0)
    table.seat(1)
    turn = AwakeTurn(LaneTurn(table, 0), Tracer(tmp_path / "trace", 0.0), lambda: None, lambda: None)
    turn.take(time.monotonic() + 5.0, 2.0)
    with table.locked():
        table.slots[1].seat = SlotState.WAITING
        table.slots[1].since_s = time.monotonic()
        table.refresh()
    time.sleep(table.header.quantum_s)
    assert turn.is_due
