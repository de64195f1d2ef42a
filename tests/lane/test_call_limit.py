"""A call of a service that hangs does not keep its neighbours waiting for ever, and a busy service is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.service import CALL_LIMIT_S
from ecoshare.lane.messages import LaunchAttempt
from ecoshare.lane.supervisor.attempt_process import AttemptProcess, PreparedSlot
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.tables.table_layout import SlotState

FROM_S = 1000.0
"""Time (s) at which the call has begun."""


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as sleeps:
        yield sleeps
        sleeps.kill()


@pytest.fixture
def table(tmp_path: Path) -> LaneTable:
    """Lane with a service that has had the turn since `FROM_S`, and a neighbour that neither has nor wants it."""
    made = LaneTable.create(tmp_path / "lane0")
    made.seat(0, owner=1)
    made.seat(1, owner=2)
    service = made.slots[0]
    service.seat, service.since_s = SlotState.HOLDING, FROM_S
    return made


def verdict(table: LaneTable, process: subprocess.Popen[bytes], at_s: float, **more: Any) -> tuple[str, str] | None:
    """Verdict on the service at a time (s)."""
    fields: dict[str, Any] = {
        "command": 1,
        "job": "service",
        "attempt": 1,
        "tables": [],
        "script": None,
        "module": None,
        "args": [],
        "cwd": "",
        "env": {},
        "python": None,
        "fresh": False,
        "device": "cpu",
        "cap_bytes": 0,
        "timeout_s": None,
        "startup_timeout_s": None,
        "folder": "",
        "opened_s": 0.0,
        "service": {"p99_s": 0.1},
    }
    launch = LaunchAttempt(**{**fields, **more})
    attempt = AttemptProcess(launch, process.pid, os.pidfd_open(process.pid), [PreparedSlot(table, 0, 1)])
    try:
        attempt.watch(at_s)
    finally:
        os.close(attempt.pidfd)
    return attempt.verdict


def test_a_call_behind_which_a_job_waits_for_too_long_is_ended(
    table: LaneTable, process: subprocess.Popen[bytes]
) -> None:
    table.slots[1].seat, table.slots[1].since_s = SlotState.WAITING, FROM_S + 5.0
    assert verdict(table, process, FROM_S + 5.0 + CALL_LIMIT_S) is None
    told = verdict(table, process, FROM_S + 6.0 + CALL_LIMIT_S)
    assert told is not None and told[0] == "timed out"
    assert "inside a call while another job waited" in told[1]
    assert process.wait(10) == -signal.SIGTERM


def test_a_job_says_how_long_its_calls_may_take(table: LaneTable, process: subprocess.Popen[bytes]) -> None:
    table.slots[1].seat, table.slots[1].since_s = SlotState.WAITING, FROM_S
    assert verdict(table, process, FROM_S + 299.0, timeout_s=300.0) is None
    assert verdict(table, process, FROM_S + 3.0, timeout_s=2.0) is not None


@pytest.mark.parametrize("last_s", [0.0, FROM_S + 3500.0])
def test_a_service_without_a_neighbour_that_waits_may_take_its_time(
    last_s: float, table: LaneTable, process: subprocess.Popen[bytes]
) -> None:
    table.slots[0].last_s = last_s
    assert verdict(table, process, FROM_S + 3600.0) is None


def test_a_busy_service_is_not_ended_for_calls_that_overlapped_before_a_job_waited(
    table: LaneTable, process: subprocess.Popen[bytes]
) -> None:
    table.slots[1].seat, table.slots[1].since_s = SlotState.WAITING, FROM_S + 3599.0
    assert verdict(table, process, FROM_S + 3600.0) is None


def test_a_server_that_must_be_woken_has_no_limit_of_its_own(
    table: LaneTable, process: subprocess.Popen[bytes]
) -> None:
    table.slots[1].seat, table.slots[1].since_s = SlotState.WAITING, FROM_S
    service = {"p99_s": 0.1, "sleep": "http://127.0.0.1:8000/sleep"}
    assert verdict(table, process, FROM_S + 600.0, service=service) is None
    assert verdict(table, process, FROM_S + 600.0, service=service, timeout_s=300.0) is not None
