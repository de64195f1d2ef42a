"""Perfetto trace, read back with the format's own classes."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from ecoshare.core.events import JobExited
from ecoshare.lane.trace import Kind, Mark
from ecoshare.record.accounts.energy_account import EnergyInterval
from ecoshare.record.accounts.run_energy import RunEnergy
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.run_data import RunData
from ecoshare.reporting.perfetto import perfetto
from tests.reporting.made_run import HOSTILE, run


@dataclass
class Slice:
    name: str
    from_ns: int
    to_ns: int
    depth: int
    args: dict[str, Any] = field(default_factory=dict)


@dataclass
class Read:
    """Slices and values that a viewer shows, by the path of their track."""

    slices: dict[str, list[Slice]]
    counters: dict[str, list[tuple[int, float]]]


def read(content: bytes) -> Read:
    """Nest the slices of each track as the viewer does; an end without a beginning, or the reverse, fails."""
    trace = Trace.FromString(content)
    names: dict[int, str] = {}
    slices: dict[str, list[Slice]] = defaultdict(list)
    counters: dict[str, list[tuple[int, float]]] = defaultdict(list)
    open_slices: dict[int, list[Slice]] = defaultdict(list)
    last_ns: dict[int, int] = {}
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            above = names[track.parent_uuid] + "/" if track.parent_uuid else ""
            assert track.uuid not in names, "two tracks with one id would be shown as one"
            names[track.uuid] = above + (track.process.process_name or track.name)
        elif packet.HasField("track_event"):
            event = packet.track_event
            path, stack = names[event.track_uuid], open_slices[event.track_uuid]
            assert packet.timestamp >= last_ns.get(event.track_uuid, 0), f"{path} goes back in time"
            last_ns[event.track_uuid] = packet.timestamp
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                args = {each.name: getattr(each, each.WhichOneof("value")) for each in event.debug_annotations}
                stack.append(Slice(event.name, packet.timestamp, -1, len(stack), args))
                slices[path].append(stack[-1])
            elif event.type == TrackEvent.TYPE_SLICE_END:
                stack.pop().to_ns = packet.timestamp
            else:
                counters[path].append((packet.timestamp, event.double_counter_value))
    assert not any(open_slices.values()), "a slice that never ends covers the rest of its track"
    return Read(dict(slices), dict(counters))


def without(data: RunData, **fields: Any) -> RunData:
    return dataclasses.replace(data, **fields)


def test_turns_are_slices_of_their_lane_and_iterations_lie_in_them() -> None:
    data = run(jobs=2, failing=False)
    lane = read(perfetto(data)).slices["cuda:0 NVIDIA H200/lane 0"]
    turns = [each for each in lane if each.depth == 0]
    attempts = {attempt.job: data.turns(attempt) for attempt in data.history.attempts}
    assert sorted(turn.name for turn in turns) == sorted(job for job, held in attempts.items() for _ in held)
    inner = [each for each in lane if each.depth == 1]
    assert len(inner) == sum(mark.kind in (Kind.TRAIN, Kind.EVAL) for marks in data.traces.values() for mark in marks)
    assert {each.name for each in inner} == {"train", "eval"}
    assert all(each.to_ns - each.from_ns == pytest.approx(1.5e9) for each in inner)
    own = [each.args["index"] for each in inner if each.name == "train" and turns[0].from_ns <= each.from_ns]
    assert own[:3] == [1, 2, 3], "iterations are not counted from 1"


def test_a_life_shows_queue_start_turns_and_waits() -> None:
    data = run(jobs=2, failing=False)
    life = read(perfetto(data)).slices["cuda:0 NVIDIA H200/jobs/job0"]
    assert [(each.name, each.depth) for each in life[:5]] == [
        ("queued", 0),
        ("attempt 1", 0),
        ("starts", 1),
        ("has the turn", 1),
        ("waits for the turn", 1),
    ]
    assert (life[0].from_ns, life[0].to_ns) == (0, 4_000_000_000)


def test_an_attempt_that_failed_says_how() -> None:
    life = read(perfetto(run())).slices["cuda:0 NVIDIA H200/jobs/train-resnet50.lr01"]
    first, second = (each for each in life if each.name.startswith("attempt"))
    assert (first.name, second.name) == ("attempt 1: crashed", "attempt 2: crashed")
    assert first.args["reason"] == HOSTILE and first.args["exit_code"] == 1


def test_watts_of_jobs_and_idle_add_up_to_the_device() -> None:
    data = run(jobs=3, gap=False, failing=False)
    found = {path.rpartition("/")[2]: values for path, values in read(perfetto(data)).counters.items()}
    parts = [name for name in found if name.startswith(("power of", "idle power"))]
    assert "power, measured" in found and all(name.endswith("attributed") for name in parts)
    for at_ns, watts in found["power, measured"]:
        at = [next(v for t, v in reversed(found[name]) if t <= at_ns) for name in parts if found[name][0][0] <= at_ns]
        assert sum(at) == pytest.approx(watts), f"watts at {at_ns} ns do not add up"


@pytest.mark.slow
@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)), min_size=1, max_size=9))
def test_watts_of_jobs_that_come_and_go(jobs_j: list[dict[str, int]]) -> None:
    """A run of 10,000 trials has few of them in each interval, and one counter for each."""
    intervals = [
        EnergyInterval(at, at + 10.0, 30.0, 3.0, {job: float(value) for job, value in each.items()}, {})
        for at, each in zip(itertools.count(0.0, 10.0), jobs_j, strict=False)
    ]
    data = run()
    account = dataclasses.replace(data.energy.of("cuda:0"), intervals=intervals)
    counters = read(perfetto(without(data, energy=RunEnergy({"cuda:0": account})))).counters
    for job in "abc":
        values = counters.get(f"cuda:0 NVIDIA H200/power of {job}, attributed", [])
        assert bool(values) == any(job in each for each in jobs_j)
        assert all(one != other for (_, one), (_, other) in itertools.pairwise(values)), "a value that is no news"
        for interval in intervals if values else ():
            shown = next(value for at_ns, value in reversed(values) if at_ns <= interval.from_s * 1e9)
            assert shown == interval.jobs_j.get(job, 0.0) / 10.0


def test_modelled_watts_are_called_modelled() -> None:
    names = [path.rpartition("/")[2] for path in read(perfetto(run(source="modelled"))).counters]
    watts = [name for name in names if "power" in name]
    assert watts and all(name.endswith("modelled") for name in watts)
    assert not any("clock" in name for name in names), "a clock without readings is shown"


def test_what_is_not_known_is_said_and_never_zero() -> None:
    found = read(perfetto(run()))
    unknown = found.slices["cuda:0 NVIDIA H200/energy meter"]
    assert {each.name for each in unknown} == {"joules not known"}
    assert unknown[0].args["reason"] == "the driver did not answer"
    during = [
        v
        for t, v in found.counters["cuda:0 NVIDIA H200/power, measured"]
        if unknown[0].from_ns <= t < unknown[-1].to_ns
    ]
    assert during == []


def test_a_missing_trace_is_said() -> None:
    data = run(jobs=2, failing=False)
    life = read(perfetto(without(data, traces={}))).slices["cuda:0 NVIDIA H200/jobs/job0"]
    assert [each.name for each in life] == ["queued", "attempt 1", "turns not known"]


def test_a_trace_cut_off_inside_a_turn_ends_with_its_attempt() -> None:
    data = run(jobs=1, failing=False)
    begins = Mark(Kind.TURN_BEGINS, 12.0)
    exited = next(entry.at_s for entry in data.history.entries if isinstance(entry, JobExited))
    cut = without(data, traces={("job0", 1): [begins, Mark(Kind.TRAIN, 13.0)]})
    turn = read(perfetto(cut)).slices["cuda:0 NVIDIA H200/lane 0"][0]
    assert (turn.from_ns, turn.to_ns) == (12_000_000_000, round(exited * 1e9))


def test_turns_that_overlap_still_nest() -> None:
    data = run(jobs=2, failing=False)
    first, second = data.traces
    overlapping = {
        first: [Mark(Kind.TURN_BEGINS, 10.0), Mark(Kind.TRAIN, 11.0)],
        second: [Mark(Kind.TURN_BEGINS, 20.0), Mark(Kind.TRAIN, 21.0), Mark(Kind.TURN_ENDS, 30.0)],
    }
    lane = read(perfetto(without(data, traces=overlapping))).slices["cuda:0 NVIDIA H200/lane 0"]
    assert [each.to_ns for each in lane if each.depth == 0] == [20_000_000_000, 30_000_000_000]


def test_the_same_run_gives_the_same_bytes() -> None:
    assert perfetto(run()) == perfetto(run())


def test_a_run_of_which_nothing_is_known_yet_can_be_exported() -> None:
    data = run(jobs=1)
    found = read(perfetto(RunData(dataclasses.replace(data.summary, jobs=(JobSummary("job0", "c"),)))))
    assert found.slices == {} and found.counters == {}
