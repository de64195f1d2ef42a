"""Trace of a recorded run: the times of its jobs alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.commands import Command, OpenLane, ProfileJob, StartJob
from ecoshare.core.events import Config, Done, Event, IterationsDone, JobArrived, JobExited, Profiled, RunOpened
from ecoshare.errors import UsageError
from ecoshare.lane.trace import Kind, Tracer, trace_path
from ecoshare.record.event_log import EventLog
from ecoshare.simulation.traces.any_trace import read
from ecoshare.simulation.traces.job_trace import Phase
from tests.runtime import running


def recorded(folder: Path, device: str = "cpu") -> Path:
    """Log of a run with three jobs in one lane: two share it, the third fails.

    ::

        a  launch 0-1, turn 1.0-4.0: start 1 s, 2 iterations of 1 s; turn 6-7: 1 iteration; exit 7.5
        b  launch 0-1, waits until 4.0, turn 4.0-6.0: start 0.5 s, 1 iteration of 1.5 s; turn 7-10: 2 of 1.5; exit 10.25
    """
    log = EventLog(folder / "events.jsonl")
    specs = {name: JobSpec(name, f"class-{name}", priority=2) for name in "abc"}
    exits: list[tuple[Event, Sequence[Command]]] = [
        (RunOpened(0.0, 1, Config("fair"), (Device(device, "local", 1 << 30),)), [OpenLane(9, 0, device, 1 << 30)]),
        *(
            (JobArrived(0.0, spec), [StartJob(number, name, 1, (0,), 1)])
            for number, (name, spec) in enumerate(specs.items())
        ),
        *((Done(1.0, number), []) for number in range(3)),
        (IterationsDone(2.0, "a", Usage()), [ProfileJob(7, "a", 1)]),
        (Profiled(3.0, 7, MemoryDemand(10, 20)), []),
        (JobExited(3.5, "c", 1, Outcome.FAILED, 1, "no", Usage()), []),
        (JobExited(7.5, "a", 1, Outcome.COMPLETED, 0, "", Usage(3, 0, 4.0, 2.0, 4.0)), []),
        (JobExited(10.25, "b", 1, Outcome.COMPLETED, 0, "", Usage(3, 0, 5.0, 1.0, 4.0)), []),
    ]
    for event, commands in exits:
        log.write(event, list(commands))
    log.close()
    begins, ends, train = Kind.TURN_BEGINS, Kind.TURN_ENDS, Kind.TRAIN
    for name, marks in {
        "a": [(begins, 1.0), (train, 3.0), (train, 4.0), (ends, 4.0), (begins, 6.0), (train, 7.0), (ends, 7.0)],
        "b": [(begins, 4.0), (train, 6.0), (ends, 6.0), (begins, 7.0), (train, 8.5), (train, 10.0), (ends, 10.0)],
    }.items():
        (folder / "jobs" / name).mkdir(parents=True)
        tracer = Tracer(trace_path(folder / "jobs" / name, 1), 0.0)
        for kind, at_s in marks:
            (tracer.turn if kind in (begins, ends) else tracer.iteration)(kind, at_s)
    return folder


def test_a_recorded_run_tells_what_its_jobs_take_alone(tmp_path: Path) -> None:
    trace = read(recorded(tmp_path))
    a, b = trace.jobs
    assert a.phases == (Phase(3, 1.0),) and b.phases == (Phase(3, 1.5),)
    assert a.startup_s == pytest.approx(1.0 + 0.5), "start of the script, end"
    assert a.launch_s == b.launch_s == pytest.approx(1.0)
    assert b.startup_s == pytest.approx(0.5 + 0.25), "that it waited for its first turn is no part of it"
    assert a.memory == MemoryDemand(10, 20) and b.memory is None and a.priority == 2
    assert "c did not complete" in trace.note and a.job_class == "class-a"


def test_on_a_gpu_a_script_starts_before_it_asks_for_the_turn(tmp_path: Path) -> None:
    """Log in which the first wait of a job cannot be told from its start."""
    _, b = read(recorded(tmp_path, "cuda:0")).jobs
    assert b.startup_s == pytest.approx(3.0 + 0.5 + 0.25)


def test_a_turn_that_is_lost_before_the_first_boundary_is_no_start(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    trace_path(folder / "jobs" / "b", 1).unlink()
    tracer = Tracer(trace_path(folder / "jobs" / "b", 1), 0.0)
    for kind, at_s in ((Kind.TURN_BEGINS, 4.0), (Kind.TURN_ENDS, 4.5), (Kind.TURN_BEGINS, 5.25)):
        tracer.turn(kind, at_s)
    for at_s in (7.0, 8.5):
        tracer.iteration(Kind.TRAIN, at_s)
    tracer.turn(Kind.TURN_ENDS, 8.5)
    _, b = read(folder).jobs
    assert b.startup_s == pytest.approx((3.0 - 0.75 - 1.5) + (10.25 - 8.5))


def test_times_that_cannot_be_are_told_and_marks_that_cannot_be_count_as_none(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    tracer = Tracer(trace_path(folder / "jobs" / "a", 1), 0.0)
    tracer.turn(Kind.TURN_ENDS, float("nan"))
    assert "a left no trace of iterations" in read(folder).note
    text = (folder / "events.jsonl").read_text()
    (folder / "events.jsonl").write_text(text.replace('"held_s": 4.0', '"held_s": NaN'))
    with pytest.raises(UsageError, match=r"events\.jsonl:\d+: .* NaN is no number"):
        read(folder)


def test_a_run_without_traces_goes_by_what_was_counted(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    for path in folder.glob("jobs/*/trace.bin"):
        path.unlink()
    trace = read(folder)
    assert [job.phases for job in trace.jobs] == [(Phase(3, 4.0 / 3),), (Phase(3, 5.0 / 3),)]
    assert "a, b left no trace of iterations" in trace.note
    assert all(job.startup_s == 0.0 for job in trace.jobs)


def test_a_log_that_is_damaged_is_told(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    lines = (folder / "events.jsonl").read_text().splitlines(keepends=True)
    (folder / "events.jsonl").write_text("".join(line for line in lines if '"JobArrived"' not in line))
    with pytest.raises(UsageError, match=r"events\.jsonl:\d+: .* there is no job 'a' above it"):
        read(folder)
    (folder / "events.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match=r"events\.jsonl:1"):
        read(folder)


@pytest.mark.nightly
def test_a_real_run_is_read_back_as_long_as_it_was(tmp_path: Path) -> None:
    """A job that had a lane to itself has its own time as the time alone."""
    alone = running.run(tmp_path, running.slow_steps("a", 30), options=("--policy", "fifo", "--lanes", "1"))
    (job,) = read(alone.folder).jobs
    jct_s = alone.job("a")["jct_s"]
    assert job.iterations == 30
    assert job.launch_s is not None and job.launch_s + job.service_s == pytest.approx(jct_s, rel=0.01)
    assert 0.0 < job.startup_s < jct_s - 20 * job.phases[0].iteration_s
