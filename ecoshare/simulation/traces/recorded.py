"""Trace of the completed jobs of a recorded run, so that a simulation can be compared with the run.

::

    StartJob ──► Done ──── first turn ── first boundary ═══ boundaries ═══ last boundary ──► JobExited
       launch          (wait)        script                 iterations                 end
    ╰─ launch_s ─╯          ╰─ startup_s ╯╰─ n x iteration_s, waits left out ─╯╰── startup_s ──╯

A service answers requests in place of iterations (`recorded_service.py`). It ends with the last one, or with the run.

If a job left a trace of its boundaries, the iteration time is the mean turn time held between two of them. Otherwise it
is the job's whole turn time / its iterations, and includes the start, which has no time of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf, log
from pathlib import Path
from statistics import pvariance

import numpy as np

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.joules import MEASURED
from ecoshare.base.plural import counted
from ecoshare.base.segment import CarriedJob
from ecoshare.base.service import ARRIVALS, REQUESTS, RequestSource, ServiceSpec
from ecoshare.core.commands import Command, ProfileJob, StartJob
from ecoshare.core.events import Done, JobArrived, JobExited, Profiled, RunOpened
from ecoshare.devices.meter import PowerModel
from ecoshare.errors import UsageError
from ecoshare.lane import trace as marks_file
from ecoshare.lane.files import of_attempt
from ecoshare.lane.serving.request_intervals import CallTimes, RequestInterval, call_times
from ecoshare.lane.serving.request_intervals import read as read_intervals
from ecoshare.lane.serving.request_source import arrival_times, read_arrivals
from ecoshare.lane.trace import Kind, Mark
from ecoshare.record import event_log
from ecoshare.record.log_fold import LogFold
from ecoshare.record.run_data import RunData
from ecoshare.record.run_data import read as read_run
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.samples import Session
from ecoshare.simulation.cluster import GpuModel, Watts
from ecoshare.simulation.traces.job_trace import AnswerTime, Phase, Trace, TraceJob, in_order


@dataclass(frozen=True, slots=True)
class Recorded:
    """Device with its recorded power.

    Power of a class = joules attributed to its completed jobs / time of these jobs in the trace. So a simulated job
    uses the joules of the recorded job.

    Attributes:
        gpu: Model of the device, with its recorded power.
        active_w: Power (W) above idle, keyed by job class.
        about: Source of the power values, in words.
    """

    gpu: GpuModel
    active_w: Mapping[str, float]
    about: str


@dataclass(slots=True)
class _Spent:
    """Energy (J) above idle of some jobs, and their time (s) in the trace."""

    energy_j: float = 0.0
    time_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NotRecorded:
    """Result for a run folder without the power of its device.

    Attributes:
        model: Name that the maker gives the device; empty if unknown, too.
    """

    model: str = ""


def read_power(path: Path, trace: Trace) -> Recorded | NotRecorded:
    """Power of the device that the run in the folder at `path` used.

    Args:
        trace: Trace of the jobs of this run.

    Raises:
        UsageError: The run folder is damaged.
    """
    folder = RunFolder(path)
    if not (folder.environment.is_file() and folder.plan.is_file()):
        return NotRecorded()
    data = read_run(folder)
    try:
        return _power(data, trace)
    except (KeyError, TypeError) as error:
        raise UsageError(f"{folder.environment} does not describe a device", "the run folder is damaged") from error


def _power(data: RunData, trace: Trace) -> Recorded | NotRecorded:
    device = data.environment["devices"][0]  # the others are of the same model
    fields = data.environment["power_models"].get(device["name"])
    model = PowerModel(**fields) if fields else None
    session, classes = data.energy.session, _spent(data, trace)
    if session is not None and classes:
        idle_w, about = session.idle_w or 0.0, _about(session)
        active_w = {job_class: spent.energy_j / spent.time_s for job_class, spent in classes.items()}
        mean_w = sum(each.energy_j for each in classes.values()) / sum(each.time_s for each in classes.values())
    elif model is not None:
        active_w, idle_w, mean_w = {}, model.idle_w, model.busy_w - model.idle_w
        about = "its power model at full load; the run has no joules of completed jobs"
    else:
        return NotRecorded(device["model"])
    name = f"{device['model']}, {counted(device['cores'], 'core')}" if device["kind"] == "cpu" else device["model"]
    busy_w = 0.0 if model is None else model.busy_w
    most_w = max(device["power_limit_w"] or 0.0, busy_w, idle_w + max(active_w.values(), default=0.0))
    gpu = GpuModel(name, most_w, device["memory_bytes"], Watts(idle_w, mean_w))
    return Recorded(gpu, active_w, about)


def _spent(data: RunData, trace: Trace) -> dict[str, _Spent]:
    """Energy and time of the jobs in the trace for each class; classes without energy are left out."""
    classes: dict[str, _Spent] = {}
    for job in trace.jobs:
        energy = data.energy.job(job.name)
        if energy is None:
            continue
        # If the meter missed a part of a job, the missed iterations count like the metered ones.
        metered = data.energy.iterations(job.name)
        missed = job.iterations / metered if 0 < metered < job.iterations else 1.0
        spent = classes.setdefault(job.job_class, _Spent())
        spent.energy_j += energy.value_j * missed
        spent.time_s += job.service_s
    return classes


def _about(session: Session) -> str:
    """Source of the joules, in words."""
    idle = "" if session.idle_w is not None else "; its draw at rest is not known and counts as work"
    by = f" by {session.meter}" if session.source == MEASURED else ""
    return f"joules {session.source}{by}{idle}"


_WARM = 1
"""Intervals at the beginning that are left out, if others are there: first calls load code."""


def intervals(folder: Path, attempt: int) -> list[RequestInterval]:
    """Record of an attempt, from the folder of its job; empty if there is none."""
    return read_intervals(of_attempt(folder, REQUESTS, attempt))


def answer_time(found: Sequence[RequestInterval]) -> tuple[AnswerTime, float] | None:
    """Line through the mean times of the batch sizes, weighted by their numbers, and their spread; None without times.

    With batches of one size alone, the time grows in proportion, as a live service assumes.
    """
    sizes = call_times(found[_WARM:]) or call_times(found)
    if not sizes:
        return None
    answer = AnswerTime(*_line(sizes), _wake_up_s(found[_WARM:]))
    variance = np.average([each.log_variance for each in sizes], weights=[each.calls for each in sizes])
    return answer, spread_of(float(variance))


def _wake_up_s(found: Iterable[RequestInterval]) -> float:
    """Mean time (s) until the idle service asked for its turn; 0 if it is not known."""
    counts, sums_s = [each.woke[0] for each in found], [each.woke[1] for each in found]
    return sum(sums_s) / sum(counts) if sum(counts) else 0.0


def spread_of(log_variance: float) -> float:
    """Standard deviation / mean of a log-normal time, from the variance of its logarithm."""
    return math.sqrt(math.expm1(log_variance))


def _line(times: Sequence[CallTimes]) -> tuple[float, float]:
    """Fixed time (s) and time (s) for each request; neither is below 0."""
    sizes, counts, means_s = np.array([(each.size, each.calls, each.mean_s) for each in times], float).T
    if len(times) == 1:
        return 0.0, float(means_s[0] / sizes[0])
    each_s, fixed_s = np.polyfit(sizes, means_s, 1, w=np.sqrt(counts))
    if each_s < 0.0:
        return float(np.average(means_s, weights=counts)), 0.0
    if fixed_s < 0.0:
        return 0.0, float(np.sum(counts * sizes * means_s) / np.sum(counts * sizes**2))
    return float(fixed_s), float(each_s)


def with_requests(service: ServiceSpec, folder: Path, found: Sequence[RequestInterval]) -> ServiceSpec:
    """Service with the batch sizes that it used, and with a source that can be simulated.

    Requests from outside become a Poisson process with their mean rate: no record has the time of each.

    Args:
        service: Service as the run knew it.
        folder: Folder of its job.
        found: Record of its requests.

    Raises:
        OSError: The file of arrivals cannot be read.
        ValueError: It is damaged.
    """
    sizes = service.batch_sizes or tuple(sorted({size for each in found for size in each.batches}))
    requests = service.requests
    if requests is None:
        span_s = found[-1].at_s - found[0].from_s if found else 0.0
        rate = sum(each.arrived for each in found) / span_s if span_s > 0.0 else 0.0
        requests = RequestSource(rate_per_s=rate) if rate else None
    elif requests.arrivals:
        read_arrivals(folder / ARRIVALS)
        requests = replace(requests, arrivals=str(folder / ARRIVALS))
    return replace(service, batch_sizes=sizes, requests=requests)


KIND = "run"
"""Kind of a trace that was read from a run folder."""

_MOST_NAMED = 5
_MANY = 50
"""Iterations beside a service that tell the times of a job better than all of its iterations."""

_MUCH = 0.05
"""Share of a job's time spent away from its turn, for example to load data, above which the note mentions it."""


@dataclass(slots=True)
class _Story:
    """Facts about a job from the log, for its last attempt."""

    spec: JobSpec
    arrival_s: float
    started_s: float = 0.0
    launched_s: float = 0.0
    exited_s: float = 0.0
    outcome: Outcome | None = None
    attempt: int = 0
    usage: Usage = field(default_factory=Usage)
    lanes: tuple[int, ...] = ()
    marks: list[Mark] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether the job completed, or was a service that served until its run stopped it."""
        served = self.spec.is_open_ended and self.outcome is Outcome.STOPPED
        return served or self.outcome is Outcome.COMPLETED

    @property
    def ends_s(self) -> list[float]:
        """Times (s) at which iterations ended, as far as the job left a trace."""
        return [mark.at_s for mark in self.marks if mark.kind in (Kind.TRAIN, Kind.EVAL)]

    @property
    def is_away(self) -> bool:
        """Whether the job worked for long without its turn: it neither held the turn nor waited for it."""
        worked_s = self.usage.span_s - self.usage.waited_s
        held_s = sum(each_s for _, each_s in marks_file.held(self.marks))
        return len(self.ends_s) > 1 and worked_s - held_s > _MUCH * worked_s


def read(path: Path) -> Trace:
    """Trace of the completed jobs of the run in the folder at `path`, with measured times.

    Raises:
        UsageError: The run folder is damaged.
    """
    folder = RunFolder(path)
    log = _Stories(folder)
    stories, memory, on_cpu = list(log.jobs.values()), log.memory, log.on_cpu
    for story in stories:
        story.marks = _marks(marks_file.trace_path(folder.job(story.spec.name), story.attempt))
    completed = [story for story in stories if story.is_over]
    jobs = []
    for story in completed:
        if story.spec.service is not None:
            jobs.append(_service(story, folder.job(story.spec.name), memory.get(story.spec.job_class)))
            continue
        others = [each for each in stories if each is not story and set(each.lanes) & set(story.lanes)]
        served = [each for each in stories if each.spec.service is not None and set(each.lanes) & set(story.lanes)]
        job = _job(story, others if on_cpu else [], served, memory.get(story.spec.job_class))
        if not (0.0 < job.service_s < inf and 0.0 <= job.arrival_s < inf and job.gpus > 0):
            raise UsageError(f"{folder.events} is damaged: {job.name!r} has times that cannot be")
        jobs.append(job)
    notes = ["iterations of both kinds count, and take what they took while the job held its turn"]
    others = [story for story in completed if story.spec.service is None]
    from_outside = [story for story in completed if story.spec.service is not None and not story.spec.service.requests]
    for what, these in (
        ("did not complete: left out", [story for story in stories if not story.is_over]),
        (
            "left no trace of iterations: the start is part of them",
            [story for story in others if story.usage.done and len(story.ends_s) < 2],
        ),
        ("did no iteration: the whole run counts as one", [story for story in others if not story.usage.done]),
        (
            "loaded data for long without the turn: that time is left out",
            [story for story in others if story.is_away],
        ),
        ("had requests from outside: their mean rate is known alone, and they are drawn", from_outside),
    ):
        if these:
            notes.append(f"{_listed([story.spec.name for story in these])} {what}")
    return Trace(str(path), KIND, in_order(jobs), "; ".join(notes))


class _Stories:
    """Follows the log of a run.

    Attributes:
        jobs: Jobs by name, in the order of their arrivals.
        memory: Measured memory demand of each class.
        on_cpu: Whether the jobs ran on processors.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.jobs: dict[str, _Story] = {}
        self.memory: dict[str, MemoryDemand] = {}
        self.on_cpu = False
        fold = LogFold(self)
        for entry in event_log.read(folder.events):
            fold.take(entry)

    def on_run_opened(self, event: RunOpened) -> None:
        self.on_cpu = all(device.name == "cpu" for device in event.devices)
        for job in event.segment.jobs if event.segment is not None else ():
            if job.spec.name not in self.jobs:  # the log has no earlier segments any more
                self.jobs[job.spec.name] = _carried(job, event.at_s)
            if job.spec.memory is not None:
                self.memory[job.spec.job_class] = job.spec.memory

    def on_job_arrived(self, event: JobArrived) -> None:
        self.jobs.setdefault(event.job.name, _Story(event.job, event.at_s))
        if event.job.memory is not None:
            self.memory[event.job.job_class] = event.job.memory

    def on_start_job(self, command: StartJob, at_s: float) -> None:
        story = self.jobs[command.job]
        story.started_s = story.launched_s = at_s
        story.lanes, story.attempt, story.outcome = command.lanes, command.attempt, None

    def on_done(self, event: Done, command: Command | None) -> None:
        if isinstance(command, StartJob):
            self.jobs[command.job].launched_s = event.at_s

    def on_profiled(self, event: Profiled, command: Command | None) -> None:
        if event.memory is not None and isinstance(command, ProfileJob):
            self.memory[self.jobs[command.job].spec.job_class] = event.memory

    def on_job_exited(self, event: JobExited) -> None:
        story = self.jobs[event.job]
        story.exited_s, story.outcome, story.usage = event.at_s, event.outcome, event.usage


def _carried(job: CarriedJob, at_s: float) -> _Story:
    """Story of a job that goes on at the beginning of the log."""
    story = _Story(job.spec, job.arrival_s)
    if job.lanes:
        story.lanes, story.attempt = job.lanes, job.attempt
        story.started_s = story.launched_s = at_s if job.first_start_s is None else job.first_start_s
    return story


def _marks(path: Path) -> list[Mark]:
    """Marks of a job's trace; empty if a mark is damaged, since times between the rest say too little then."""
    marks = marks_file.read(path)
    return marks if len(marks) * marks_file.MARK_BYTES == marks_file.whole_bytes(path) else []


def _job(story: _Story, others: Sequence[_Story], served: Sequence[_Story], memory: MemoryDemand | None) -> TraceJob:
    """Trace job of a completed job.

    Args:
        others: Jobs that may have kept this job waiting for its first turn.
        served: Services of the lane of this job. If it did many iterations beside them, these alone tell their times.
    """
    spec, usage, ends_s = story.spec, story.usage, story.ends_s
    startup_s = spread = 0.0
    if len(ends_s) > 1:
        held_s = _iterations_s(story, served)
        iteration_s = sum(held_s) / len(held_s)
        spread = spread_of(pvariance([log(max(each_s, 1e-9)) for each_s in held_s]))
        before_s = ends_s[0] - story.launched_s - iteration_s - _waited_s(story, ends_s[0], others)
        startup_s = max(0.0, before_s) + max(0.0, story.exited_s - ends_s[-1])
    else:
        whole_s = usage.held_s or story.exited_s - story.launched_s
        iteration_s = max(whole_s, 1e-9) / max(1, usage.done)
    return TraceJob(
        name=spec.name,
        job_class=spec.job_class,
        arrival_s=story.arrival_s,
        phases=(Phase(max(1, usage.done), iteration_s),),
        gpus=spec.gpus,
        priority=spec.priority,
        memory=memory or spec.memory,
        startup_s=startup_s,
        announced=spec.service_s is not None,
        spread=spread,
        launch_s=max(0.0, story.launched_s - story.started_s),
    )


def _service(story: _Story, folder: Path, memory: MemoryDemand | None) -> TraceJob:
    """Trace job of a service. The start, without the turn, lasts until the first request could come."""
    spec = story.spec
    assert spec.service is not None, "the job is a service"
    found = intervals(folder, story.attempt)
    mean_s = story.usage.held_s / max(1, story.usage.done)
    answer, spread = answer_time(found) or (AnswerTime(mean_s or 1e-9), 0.0)
    try:
        service = with_requests(spec.service, folder, found)
    except (OSError, ValueError) as error:
        raise UsageError(f"the arrivals of {spec.name!r} cannot be read: {error}") from error
    ready_s = story.launched_s
    if story.marks and service.requests is not None:
        first_s = 0.0 if service.requests.clients else next(arrival_times(service.requests), 0.0)
        ready_s = max(ready_s, story.marks[0].at_s - first_s)
    return TraceJob(
        name=spec.name,
        job_class=spec.job_class,
        arrival_s=story.arrival_s,
        phases=(Phase(1, answer.mean_s(1)),),
        gpus=spec.gpus,
        priority=spec.priority,
        memory=memory or spec.memory,
        startup_s=ready_s - story.launched_s,
        announced=False,
        launch_s=max(0.0, story.launched_s - story.started_s),
        service=service,
        answer=answer,
        spread=spread,
    )


def _iterations_s(story: _Story, served: Sequence[_Story]) -> list[float]:
    """Turn time (s) of each iteration: of those beside services, if they are many, else of all."""
    held = list(marks_file.held(story.marks))
    spans = [(each.marks[0].at_s, each.marks[-1].at_s) for each in served if each.marks]
    beside_s = [each_s for of, each_s in held if any(from_s <= of.from_s < to_s for from_s, to_s in spans)]
    return beside_s if len(beside_s) >= _MANY else [each_s for _, each_s in held]


def _waited_s(story: _Story, until_s: float, others: Sequence[_Story]) -> float:
    """Time (s) for which a job waited for turns before its first boundary.

    On processors, a script begins with the turn, so the job waited while `others` held it. On other devices, the script
    asks for the turn when it first uses the device, and no log holds that time. There `others` is empty, and a first
    wait counts as part of the script's start.
    """
    turns = [mark for mark in story.marks if mark.kind in (Kind.TURN_BEGINS, Kind.TURN_ENDS) and mark.at_s <= until_s]
    between_s = sum(
        begins.at_s - ends.at_s
        for ends, begins in pairwise(turns)
        if (ends.kind, begins.kind) == (Kind.TURN_ENDS, Kind.TURN_BEGINS)
    )
    first_s = turns[0].at_s if turns else until_s
    return between_s + sum(
        max(0.0, min(to_s, first_s) - max(from_s, story.launched_s)) for each in others for from_s, to_s in _turns(each)
    )


def _turns(story: _Story) -> Iterator[tuple[float, float]]:
    """Begin and end (s) of each turn of a job; the last turn ends with the job at the latest."""
    from_s: float | None = None
    for mark in story.marks:
        if mark.kind is Kind.TURN_BEGINS:
            from_s = mark.at_s
        elif mark.kind is Kind.TURN_ENDS and from_s is not None:
            yield from_s, mark.at_s
            from_s = None
    if from_s is not None:
        yield from_s, story.exited_s


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
