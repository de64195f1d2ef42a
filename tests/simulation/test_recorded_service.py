"""Services of a recorded run: what their record tells of the times of batches and of requests."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.service import ARRIVALS, REQUESTS, RequestSource, ServiceSpec
from ecoshare.core.commands import OpenLane, StartJob
from ecoshare.core.events import Config, Done, JobArrived, JobExited, RunOpened
from ecoshare.errors import UsageError
from ecoshare.lane.serving.request_intervals import RequestInterval, read
from ecoshare.lane.serving.request_record import RequestRecorder
from ecoshare.lane.trace import Kind, Tracer, trace_path
from ecoshare.record.event_log import EventLog
from ecoshare.simulation.traces import any_trace
from ecoshare.simulation.traces.job_trace import drawn_ratio
from ecoshare.simulation.traces.recorded import answer_time, with_requests


def record(path: Path, batches: list[tuple[int, float]], seconds: int = 1) -> list[RequestInterval]:
    """Record of these batches (size and time), spread evenly over some seconds."""
    clock = [0.0]
    recorder = RequestRecorder(path, clock=lambda: clock[0])
    for number, (size, took_s) in enumerate(batches):
        clock[0] = seconds * number / len(batches)
        if recorder.left_s() <= 0.0:
            recorder.write()
        for _ in range(size):
            recorder.arrived(1)
        recorder.called(size)
        recorder.took(size, took_s)
        for _ in range(size):
            recorder.answered(clock[0], clock[0] + 1.0, clock[0] + took_s)
    clock[0] = float(seconds)
    recorder.write()
    return read(path)


def test_the_line_and_the_spread_are_found_again(tmp_path: Path) -> None:
    draws = random.Random(1)
    sizes = [draws.choice([1, 2, 4, 8]) for _ in range(2000)]
    found = record(tmp_path / "r", [(size, (0.002 + 0.0005 * size) * drawn_ratio(0.3, draws)) for size in sizes], 20)
    told = answer_time(found)
    assert told is not None
    answer, spread = told
    assert answer.fixed_s == pytest.approx(0.002, rel=0.1) and answer.each_s == pytest.approx(0.0005, rel=0.1)
    assert spread == pytest.approx(0.3, rel=0.05)


def test_the_mean_wake_up_is_found_again(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path / "r", clock=lambda: 0.0)
    for after_s in (0.001, 0.003):
        recorder.called(1)
        recorder.took(1, 0.01)
        recorder.woke(after_s)
    recorder.write()
    found = read(tmp_path / "r")
    assert len(found) == 1 and found[0].woke[0] == 2
    told = answer_time([found[0], *found])
    assert told is not None and told[0].wake_up_s == pytest.approx(0.002)
    silent = [replace(each, woke=(0, 0.0)) for each in found * 2]
    assert answer_time(silent) == (replace(told[0], wake_up_s=0.0), told[1])


def test_one_size_alone_grows_in_proportion(tmp_path: Path) -> None:
    told = answer_time(record(tmp_path / "r", [(2, 0.01)] * 10))
    assert told is not None and told[0].mean_s(4) == pytest.approx(0.02) and told[1] == pytest.approx(0.0, abs=1e-6)


def test_times_never_fall_with_the_size_and_never_begin_below_0(tmp_path: Path) -> None:
    falls = answer_time(record(tmp_path / "falls", [(1, 0.02), (4, 0.01)] * 5))
    steep = answer_time(record(tmp_path / "steep", [(1, 0.001), (4, 0.01)] * 5))
    assert falls is not None and falls[0].each_s == 0.0 and falls[0].fixed_s == pytest.approx(0.015)
    assert steep is not None and steep[0].fixed_s == 0.0 and steep[0].each_s > 0.0


def test_a_first_second_of_slow_batches_is_left_out(tmp_path: Path) -> None:
    told = answer_time(record(tmp_path / "r", [(1, 0.5)] * 10 + [(1, 0.01)] * 30, 4))
    assert told is not None and told[0].mean_s(1) == pytest.approx(0.01)


def test_a_record_of_an_earlier_version_has_no_times(tmp_path: Path) -> None:
    record(tmp_path / "r", [(1, 0.01)])
    old = (tmp_path / "r").read_text().replace('"took"', '"unknown"')
    (tmp_path / "r").write_text(old)
    assert len(read(tmp_path / "r")) == 1 and answer_time(read(tmp_path / "r")) is None


def test_requests_from_outside_become_a_process_of_their_mean_rate(tmp_path: Path) -> None:
    found = record(tmp_path / "r", [(1, 0.01)] * 40, 4)
    service = with_requests(ServiceSpec(0.1), tmp_path, found)
    assert service.requests is not None and service.requests.rate_per_s == pytest.approx(10.0, rel=0.1)
    assert service.batch_sizes == (1,) and service.is_open_ended


def recorded(folder: Path, source: RequestSource, outcome: Outcome) -> Path:
    """Run with a job until second 12, and a service that serves from second 3 on; the folder of the service."""
    specs = JobSpec("s", "s", service=ServiceSpec(0.1, (1, 2), requests=source)), JobSpec("a", "a")
    log = EventLog(folder / "events.jsonl")
    log.write(RunOpened(0.0, 1, Config("fair"), (Device("cpu", "local", 1 << 30),)), [OpenLane(9, 0, "cpu", 1 << 30)])
    for number, spec in enumerate(specs):
        log.write(JobArrived(0.0, spec), [StartJob(number, spec.name, 1, (0,), 1)])
    for number in range(2):
        log.write(Done(1.0, number), [])
    log.write(JobExited(12.0, "a", 1, Outcome.COMPLETED, 0, "", Usage(10, 0, 10.0, 0.0, 10.0)), [])
    log.write(JobExited(12.1, "s", 1, outcome, 0, "", Usage(0, 20, 0.2)), [])
    log.close()
    own = folder / "jobs" / "s"
    own.mkdir(parents=True)
    record(own / REQUESTS, [(1, 0.01)] * 20, 4)
    tracer = Tracer(trace_path(own, 1), 0.0)
    tracer.turn(Kind.TURN_BEGINS, 3.5)
    tracer.close()
    return own


def test_arrivals_are_those_of_the_run(tmp_path: Path) -> None:
    own = recorded(tmp_path, RequestSource(arrivals="of another machine"), Outcome.COMPLETED)
    with pytest.raises(UsageError, match="the arrivals of 's' cannot be read"):
        any_trace.read(tmp_path)
    (own / ARRIVALS).write_text("0.5\n0.75\n")
    job = next(job for job in any_trace.read(tmp_path).jobs if job.name == "s")
    assert job.service is not None and job.service.requests == RequestSource(arrivals=str(own / ARRIVALS))
    assert job.answer is not None and job.answer.mean_s(1) == pytest.approx(0.01)
    assert job.startup_s == pytest.approx(2.0), "its first request came 0.5 s after it was ready"


@pytest.mark.parametrize("outcome", [Outcome.STOPPED, Outcome.FAILED])
def test_a_service_that_its_run_stopped_is_simulated(tmp_path: Path, outcome: Outcome) -> None:
    recorded(tmp_path, RequestSource(clients=2), outcome)
    trace = any_trace.read(tmp_path)
    assert ("s" in {job.name for job in trace.jobs}) == (outcome is Outcome.STOPPED)
    assert ("s did not complete" in trace.note) == (outcome is Outcome.FAILED)
