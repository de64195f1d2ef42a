"""Messages of agents come back as they were sent, and other lines are refused with a reason."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, get_args

import pytest

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.cluster import agent_messages
from ecoshare.cluster.agent_messages import (
    PATIENT,
    AgentFailed,
    AgentMessage,
    AskLimits,
    AskParking,
    AskPort,
    AskTorch,
    AttemptOver,
    CloseNode,
    EndSilentServer,
    FilePart,
    FinishNode,
    FirstSamples,
    JobForNode,
    KeepOnly,
    KnobsLeft,
    LimitsTold,
    MostTimes,
    NodeClosed,
    NodeFinished,
    NodeFound,
    NodeOpened,
    NodeReport,
    OpenNode,
    ParkingTold,
    PortTaken,
    ReleaseDevices,
    RunBeat,
    SampleLines,
    ServerReady,
    ServiceRequests,
    ToAgent,
    TorchTold,
    ToRun,
    decoded,
    encoded,
)
from ecoshare.core.commands import OpenLane, SetShares, Share
from ecoshare.core.events import Done, IterationsDone, JobExited, Reported
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


def messages(folder: Path) -> list[AgentMessage]:
    """A message of each kind, but `ProfileMade`, which real runs send (`test_agents.py`)."""
    cpu = registry.find("cpu")
    (folder / "a.py").write_text("")
    [job] = planned(given_jobs([folder / "a.py"], ("--rate", "ä\n")), (cpu,)).jobs
    reading = DeviceReading((("power_limit", 200.0),), "", {3: LaneReading("a", (0, 2), 0.5)})
    sample = Sample(2.0, None, "gone", jobs={"a#1": AttemptProgress(3, 0.5, 7, 0, 0.4, None)}, device="n/cpu")
    return [
        OpenNode("/r", 1.5, NodePlan(4, serves=True), 2, ("n/cpu",), "/p", Limits(iterations=3), False, WISHES, 15.0),
        JobForNode(job.for_node(), 1 << 28),
        MostTimes(7, {"a": 0.5}),
        MostTimes(8, None),
        FilePart("jobs/a/stdout.log", 7, "cw=="),
        AskPort(9),
        AskTorch(),
        AskLimits(),
        AskParking(),
        ReleaseDevices(),
        RunBeat(True, 3),
        KeepOnly(("a", "b")),
        EndSilentServer(),
        FinishNode(),
        CloseNode(),
        NodeFound(1, "0.1.0", "ab", (cpu,), {"cpu": None}, False),
        TorchTold("torch 2.14.1 is built for CUDA 13.0"),
        LimitsTold({"cpu": (100.0, 150.5)}),
        ParkingTold(ParkingHost(1 << 34, 0, refusal="the driver is too old", hint="update it")),
        NodeOpened(False, {"why": "no GPU"}, ClaimReport(knobs={"n/cpu": KNOBS}, limits_w={"n/cpu": (100.0, 150.5)})),
        KnobsLeft("n/cpu", KNOBS),
        PortTaken(9, 29500),
        ServerReady(Ready(7, "2.13.0", 1, 2.5)),
        FirstSamples(),
        SampleLines((Session(0.0, "n/cpu", "model", "modelled", "cpu", "", 1.0, None), sample, Idle(3.0, 2.0, 0.1))),
        ServiceRequests("s", 2, (interval(folder),)),
        AttemptOver("a", 1),
        NodeReport({"a": AttemptReading(Usage(iterations=7), (3,), ())}, {"n/cpu": reading}, ("a note",)),
        NodeFinished(),
        NodeClosed((Restored("key", "power_limit", KnobOutcome.FAILED, "not put back", "try it"),), ("a note",)),
        AgentFailed("the disk is full", "make room"),
        OpenLane(1, 0, "n/cpu", 1 << 30),
        SetShares(2, 0, (Share("a", 0, 1.0),)),
        Done(1.0, 2),
        JobExited(1.0, "a", 1, Outcome.COMPLETED, 0, "", Usage(iterations=7)),
    ]


def interval(folder: Path) -> RequestInterval:
    record = RequestRecorder(folder / "requests")
    record.arrived(1)
    record.called(2)
    record.answered(0.0, 0.05, 0.01)
    record.write()
    [found] = read_from(folder / "requests", 0)[0]
    return found


def test_messages_come_back_as_they_were_sent(tmp_path: Path) -> None:
    sent = messages(tmp_path)
    kinds = {*get_args(ToAgent), *get_args(ToRun)}
    assert kinds - {type(each) for each in sent} == {agent_messages.ProfileMade}
    for message in sent:
        line = encoded(message)
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        assert decoded(line) == message


def test_a_loss_that_is_no_number_comes_back() -> None:
    found: Any = decoded(encoded(Reported(1.0, "a", 1, math.nan)))
    assert math.isnan(found.value)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"hello\n",
        b"[1]\n",
        b'{"message": "Nothing"}\n',
        b'{"message": ["RunBeat"]}\n',
        b'{"messages": "RunBeat"}\n',
        b'{"message": "RunBeat", "stopping": 3}\n',
        b'{"message": "RunBeat"',
        b'{"record": "PackingChanged", "jobs": []}\n',
        b'{"event": "Nothing"}\n',
    ],
)
def test_other_lines_are_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decoded(line)


def test_lines_that_can_wait_are_known_by_their_beginnings(tmp_path: Path) -> None:
    """If it failed, the end of a job would come to the run later, or each report at the cost of a call of its own."""
    patient = {type(each).__name__ for each in messages(tmp_path) if encoded(each).startswith(PATIENT)}
    assert patient == {"NodeReport", "SampleLines", "FilePart"}
    assert encoded(IterationsDone(1.0, "a", Usage())).startswith(PATIENT)
