"""Calls between a run and its agents come back as they were sent, and other lines are refused with a reason."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.cluster.agent_calls import (
    AgentCalls,
    Call,
    FilePart,
    NodeFound,
    NodeOpened,
    OpenNode,
    RunCalls,
    answer,
    call,
    read,
)
from ecoshare.core.commands import OpenLane, SetShares, Share
from ecoshare.core.events import Done, JobExited, Reported
from ecoshare.devices import registry
from ecoshare.devices.control.restore import KnobOutcome, Restored
from ecoshare.devices.knob import DeviceKnobs, KnobSpec
from ecoshare.jobs.from_values import given_jobs
from ecoshare.lane.messages import Ready
from ecoshare.lane.serving.request_intervals import RequestInterval, read_from
from ecoshare.lane.serving.request_record import RequestRecorder
from ecoshare.record.samples import AttemptProgress, Idle, Sample, Session
from ecoshare.runtime.measuring.profiling_window import Limits
from ecoshare.runtime.measuring.run_claims import ClaimReport, ClaimRequest
from ecoshare.runtime.nodes.run_node import AttemptReading, DeviceReading, LaneReading, NodePlan
from ecoshare.runtime.planning.planned_limits import ParkingHost
from tests.planning import planned

WISHES = ClaimRequest(may_set=True, searches=True, sets_known=False, with_processors=True, limits_power=False)
PROFILES = KnobSpec("power_profile", "", (), {"none": 0.0, "max_q": 1.0}, named={"none": (), "max_q": (1.0,)})
KNOBS = DeviceKnobs((KnobSpec("gpu_clock", "MHz", (210.0, 1980.0), {"unlocked": 1980.0}), PROFILES), {5001.0: (210.0,)})


def sent(folder: Path) -> list[tuple[Any, tuple[Any, ...]]]:
    """A call of each method with its values, but `profile_made`, which real runs call (`test_agents.py`)."""
    cpu = registry.find("cpu")
    (folder / "a.py").write_text("")
    [job] = planned(given_jobs([folder / "a.py"], ("--rate", "ä\n")), (cpu,)).jobs
    reading = DeviceReading((("power_limit", 200.0),), "", {3: LaneReading("a", (0, 2), 0.5)})
    sample = Sample(2.0, None, "gone", jobs={"a#1": AttemptProgress(3, 0.5, 7, 0, 0.4, None)}, device="n/cpu")
    lines = Session(0.0, "n/cpu", "model", "modelled", "cpu", "", 1.0, None), sample, Idle(3.0, 2.0, 0.1)
    opening = OpenNode(
        "/r", 1.5, NodePlan(4, serves=True), 2, ("n/cpu",), "/p", Limits(iterations=3), False, WISHES, 15.0
    )
    failed = Restored("key", "power_limit", KnobOutcome.FAILED, "not put back", "try it")
    return [
        (AgentCalls.found, ()),
        (AgentCalls.why_unfit, ()),
        (AgentCalls.limits_w, ()),
        (AgentCalls.parking, ()),
        (AgentCalls.open, (opening,)),
        (AgentCalls.take_job, (job.for_node(), 1 << 28)),
        (AgentCalls.most_times, (7, {"a": 0.5})),
        (AgentCalls.most_times, (8, None)),
        (AgentCalls.file_for_node, (FilePart("jobs/a/arrivals", 7, "cw=="),)),
        (AgentCalls.take_port, (9,)),
        (AgentCalls.release_devices, ()),
        (AgentCalls.beat, (True, 3)),
        (AgentCalls.keep_only, (("a", "b"),)),
        (AgentCalls.end_silent_server, ()),
        (AgentCalls.carry_out, (OpenLane(1, 0, "n/cpu", 1 << 30),)),
        (AgentCalls.carry_out, (SetShares(2, 0, (Share("a", 0, 1.0),)),)),
        (AgentCalls.finish, ()),
        (AgentCalls.close, ()),
        (RunCalls.knobs_left, ("n/cpu", KNOBS)),
        (RunCalls.port_taken, (9, 29500)),
        (RunCalls.server_ready, (Ready(7, "2.13.0", 1, 2.5),)),
        (RunCalls.sampled, ()),
        (RunCalls.samples, (lines,)),
        (RunCalls.requests, ("s", 2, (interval(folder),))),
        (RunCalls.attempt_over, ("a", 1)),
        (RunCalls.report, ({"a": AttemptReading(Usage(iterations=7), (3,), ())}, {"n/cpu": reading}, ("a note",))),
        (RunCalls.progress, ("a", Usage(iterations=7))),
        (RunCalls.file_for_run, (FilePart("jobs/a/stdout.log", 7, "cw=="),)),
        (RunCalls.told, (Done(1.0, 2),)),
        (RunCalls.told, (JobExited(1.0, "a", 1, Outcome.COMPLETED, 0, "", Usage(iterations=7)),)),
        (RunCalls.finished, ()),
        (RunCalls.closed, ((failed,), ("a note",))),
        (RunCalls.failed, ("the disk is full", "make room", False)),
    ]


def answers() -> list[tuple[Any, Any]]:
    """An answer of each method that has one."""
    cpu = registry.find("cpu")
    claims = ClaimReport(knobs={"n/cpu": KNOBS}, limits_w={"n/cpu": (100.0, 150.5)})
    return [
        (AgentCalls.found, NodeFound(1, "0.1.0", "ab", (cpu,), {"cpu": None}, False)),
        (AgentCalls.why_unfit, "torch 2.14.1 is built for CUDA 13.0"),
        (AgentCalls.limits_w, {"cpu": (100.0, 150.5)}),
        (AgentCalls.parking, ParkingHost(1 << 34, 0, refusal="the driver is too old", hint="update it")),
        (AgentCalls.open, NodeOpened(False, {"why": "no GPU"}, claims)),
    ]


def lines_of(calls: list[tuple[Any, tuple[Any, ...]]], answered: list[tuple[Any, Any]]) -> list[bytes]:
    lines = list[bytes]()
    for method, values in calls:
        call(lambda line, _: lines.append(line), method, *values)
    for method, value in answered:
        answer(lambda line, _: lines.append(line), method, value)
    return lines


def interval(folder: Path) -> RequestInterval:
    record = RequestRecorder(folder / "requests")
    record.arrived(1)
    record.called(2)
    record.answered(0.0, 0.05, 0.01)
    record.write()
    [found] = read_from(folder / "requests", 0)[0]
    return found


def test_calls_and_answers_come_back_as_they_were_sent(tmp_path: Path) -> None:
    calls, answered = sent(tmp_path), answers()
    methods = {name for kind in (AgentCalls, RunCalls) for name in vars(kind) if not name.startswith("_")}
    assert methods - {method.__name__ for method, _ in calls} == {"profile_made"}
    expected = [Call(method.__name__, values) for method, values in calls]
    expected += [Call(method.__name__, (value,), True) for method, value in answered]
    for line, found in zip(lines_of(calls, answered), expected, strict=True):
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        assert read(line) == found


def test_a_loss_that_is_no_number_comes_back() -> None:
    lines = list[bytes]()
    call(lambda line, _: lines.append(line), RunCalls.told, Reported(1.0, "a", 1, math.nan))
    assert math.isnan(read(lines[0]).values[0].value)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"hello\n",
        b"[1]\n",
        b'{"message": "NodeFound", "protocol": 8}\n',
        b'{"call": "nothing"}\n',
        b'{"call": "__init__"}\n',
        b'{"call": ["beat"]}\n',
        b'{"calls": "beat"}\n',
        b'{"call": "beat", "stopping": 3}\n',
        b'{"call": "told", "event": {}}\n',
        b'{"call": "beat"',
        b'{"answer": "failed"}\n',
        b'{"answer": "limits_w"}\n',
        b'{"answer": "limits_w", "value": 3}\n',
        b'{"record": "PackingChanged", "jobs": []}\n',
        b'{"event": "Nothing"}\n',
    ],
)
def test_other_lines_are_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read(line)


def test_only_what_decides_nothing_at_once_can_wait(tmp_path: Path) -> None:
    """If it failed, the end of a job would come to the run later, or each report at the cost of a call of its own."""
    said = list[bool]()
    for method, values in (calls := sent(tmp_path)):
        call(lambda _line, can_wait: said.append(can_wait), method, *values)
    waiting = {method.__name__ for (method, _), can_wait in zip(calls, said, strict=True) if can_wait}
    assert waiting == {"report", "samples", "progress"}
