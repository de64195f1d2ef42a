"""Exports a run as a Perfetto trace, for ui.perfetto.dev.

::

    cuda:0                         each device is a process
      lane 0                       ▐ job-a            ▌▐ job-b           ▌   turns, with
                                   ▐train▌▐train▌▐eval▌▐train▌▐train     ▌   iterations inside
      jobs
        job-a                      ▐queued▌▐attempt 1                    ▌   lifetimes, with turns
                                           ▐starts▌▐has the turn▌▐waits  ▌   and waits inside
      services
        job-c                      ▐41 answered▌▐38 answered, 2 late ▌       seconds with requests
      p99 of job-c (ms)            ▁▁▁▂▁▇▇▂▁                                 counters
      power, measured (W)          ▁▂▇▇▆▇▇▅▁

Times are nanoseconds since the run was opened. A counter track cannot show that a value is unknown. A slice on the
track "energy meter" therefore marks each interval without known joules, with the reason.
"""

from __future__ import annotations

import io
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    CounterDescriptor,
    DebugAnnotation,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

from ecoshare.base.joules import ATTRIBUTED, MEASURED, MODELLED
from ecoshare.lane.serving.request_intervals import RequestInterval
from ecoshare.lane.trace import Kind
from ecoshare.record.accounts.energy_account import EnergyAccount, EnergyInterval
from ecoshare.record.accounts.run_energy import coarser
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.run_data import RunData, TurnSpan
from ecoshare.record.run_history import AttemptHistory, ParkedSpan, split_by_parking
from ecoshare.record.samples import Sample, job_of, shortest_s
from ecoshare.reporting.time_columns import request_columns

_SEQUENCE = 1
_MOST_COLUMNS = 5_000
"""Most seconds with requests of a service that are shown one by one. In a longer run, a slice has several."""
_WORDS = {Kind.TRAIN: "train", Kind.EVAL: "eval"}


def perfetto(data: RunData) -> bytes:
    """The trace, as the content of a `.pftrace` file."""
    trace = _Trace()
    lanes, attempts = data.history.lanes, data.history.attempts
    turns = {(attempt.job, attempt.number): data.turns(attempt) for attempt in attempts}
    models = {device.name: device.model for device in data.summary.devices}
    names = dict.fromkeys([*models, *(lane.device for lane in lanes.values())])
    devices = {name: trace.device(f"{name} {models.get(name, '')}".strip()) for name in names}
    for number, lane in sorted(lanes.items()):
        track = trace.track(f"lane {number}", devices[lane.device])
        _lane(trace, track, [attempt for attempt in attempts if number in attempt.lanes], turns)
    home = next(iter(devices.values()), None)
    if home is not None:
        group, end_s = trace.track("jobs", home), data.end_s()
        own: dict[str, list[AttemptHistory]] = defaultdict(list)
        for attempt in attempts:
            own[attempt.job].append(attempt)
        for job in data.summary.jobs:
            parked = data.history.jobs[job.name].parked if job.name in data.history.jobs else []
            _life(trace, trace.track(job.name, group), job, own[job.name], turns, parked, end_s)
        _services(trace, home, data.requests)
        for name in data.devices:
            _counters(trace, data.energy.of(name), data.samples_of(name), devices[name])
            if (failed := data.history.failures.get(name)) is not None:
                trace.slice(trace.track("health", devices[name]), failed.at_s, end_s, "failed", reason=failed.reason)
    return trace.content()


class _Trace:
    """Writes packets. Events of one track must come in order of time; different tracks may come in any order."""

    def __init__(self) -> None:
        self._file = io.BytesIO()
        self._builder = StreamingTraceProtoBuilder(self._file)
        self._ids = itertools.count(1)
        first = self._packet()
        first.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        self._write(first)

    def device(self, name: str) -> int:
        """Write a process track for a device, and return its id."""
        uuid = next(self._ids)
        packet = self._packet()
        packet.track_descriptor.uuid = uuid
        packet.track_descriptor.process.pid = uuid
        packet.track_descriptor.process.process_name = name
        packet.track_descriptor.child_ordering = TrackDescriptor.EXPLICIT
        self._write(packet)
        return uuid

    def track(self, name: str, parent: int, unit: str | None = None) -> int:
        """Write a track below `parent`, and return its id. Tracks keep the order of calls; `unit` makes a counter."""
        uuid = next(self._ids)
        packet = self._packet()
        descriptor = packet.track_descriptor
        descriptor.uuid, descriptor.parent_uuid, descriptor.name = uuid, parent, name
        descriptor.sibling_order_rank = uuid
        descriptor.child_ordering = TrackDescriptor.EXPLICIT
        if unit == "B":
            descriptor.counter.unit = CounterDescriptor.UNIT_SIZE_BYTES
        elif unit is not None:
            descriptor.counter.unit_name = unit
        self._write(packet)
        return uuid

    def begin(self, track: int, at_s: float, name: str, **args: Any) -> None:
        """Begin a slice; `args` that are None are left out."""
        packet = self._event(track, at_s, TrackEvent.TYPE_SLICE_BEGIN)
        packet.track_event.name = name
        for key, value in args.items():
            if value is not None:
                packet.track_event.debug_annotations.append(_annotation(key, value))
        self._write(packet)

    def end(self, track: int, at_s: float) -> None:
        """End the innermost slice of a track."""
        self._write(self._event(track, at_s, TrackEvent.TYPE_SLICE_END))

    def slice(self, track: int, from_s: float, to_s: float, name: str, **args: Any) -> None:
        """Write a slice that contains no other slices."""
        self.begin(track, from_s, name, **args)
        self.end(track, max(from_s, to_s))

    def count(self, track: int, at_s: float, value: float) -> None:
        """Set a counter to a value from `at_s` on."""
        packet = self._event(track, at_s, TrackEvent.TYPE_COUNTER)
        packet.track_event.double_counter_value = value
        self._write(packet)

    def content(self) -> bytes:
        """Everything that was written."""
        return self._file.getvalue()

    def _event(self, track: int, at_s: float, kind: int) -> Any:
        packet = self._packet()
        packet.timestamp = max(0, round(at_s * 1e9))
        packet.track_event.type = kind
        packet.track_event.track_uuid = track
        return packet

    def _packet(self) -> Any:
        packet = TracePacket()
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet

    def _write(self, packet: Any) -> None:
        self._builder.write_packet(packet)


def _annotation(key: str, value: Any) -> Any:
    if isinstance(value, int):
        return DebugAnnotation(name=key, int_value=value)
    if isinstance(value, float):
        return DebugAnnotation(name=key, double_value=value)
    return DebugAnnotation(name=key, string_value=str(value))


def _lane(
    trace: _Trace, track: int, attempts: list[AttemptHistory], turns: dict[tuple[str, int], list[TurnSpan]]
) -> None:
    held = [
        (turn.from_s, attempt.job, attempt.number, index, turn)
        for attempt in attempts
        for index, turn in enumerate(turns[attempt.job, attempt.number])
    ]
    held.sort(key=lambda each: each[:4])
    done: dict[tuple[str, int, Kind], int] = {}
    for position, (from_s, job, number, _, turn) in enumerate(held):
        # A killed holder keeps the turn until its death is noticed, and the next turn may have begun by then. Slices of
        # one track must nest, so a turn ends at the latest when the next one begins.
        to_s = min(turn.to_s, held[position + 1][0]) if position + 1 < len(held) else turn.to_s
        trace.begin(track, from_s, job, attempt=number, iterations=len(turn.marks))
        for kind, begin_s, end_s in turn.iterations():
            index = done[job, number, kind] = done.get((job, number, kind), 0) + 1
            trace.slice(track, min(begin_s, to_s), min(end_s, to_s), _WORDS[kind], index=index, kind=_WORDS[kind])
        trace.end(track, to_s)


def _life(
    trace: _Trace,
    track: int,
    job: JobSummary,
    attempts: list[AttemptHistory],
    turns: dict[tuple[str, int], list[TurnSpan]],
    parked: list[ParkedSpan],
    end_s: float,
) -> None:
    queued_s = job.arrival_s
    for attempt in attempts:
        began_s = attempt.asked_s if attempt.began_s is None else attempt.began_s
        to_s = end_s if attempt.ended_s is None else attempt.ended_s
        if queued_s is not None and queued_s < began_s:
            trace.slice(track, queued_s, began_s, "queued")
        outcome = attempt.outcome.value if attempt.outcome is not None else None
        trace.begin(
            track,
            began_s,
            f"attempt {attempt.number}" + ("" if outcome is None or attempt.completed else f": {outcome}"),
            outcome=outcome,
            exit_code=attempt.exit_code,
            reason=attempt.reason or None,
            peak_memory_bytes=attempt.peak_bytes,
            lanes=", ".join(map(str, attempt.lanes)),
        )
        own = [each for each in parked if each.attempt == attempt.number]
        _turns_of_life(trace, track, turns[attempt.job, attempt.number], own, began_s, to_s)
        trace.end(track, to_s)
        queued_s = to_s
    if not attempts and queued_s is not None:
        trace.slice(track, queued_s, job.finish_s if job.finish_s is not None else end_s, "queued")


def _turns_of_life(
    trace: _Trace, track: int, turns: list[TurnSpan], parked: list[ParkedSpan], began_s: float, ended_s: float
) -> None:
    if not turns:
        trace.slice(track, began_s, ended_s, "turns not known")
        return
    before_s, between = began_s, "starts"
    for turn in turns:
        from_s, to_s = (min(max(at_s, before_s), ended_s) for at_s in turn[:2])
        for wait_s, until_s, is_parked in split_by_parking(parked, before_s, from_s):
            trace.slice(track, wait_s, until_s, "parked" if is_parked else between)
        trace.slice(track, from_s, to_s, "has the turn", iterations=len(turn.marks))
        before_s, between = to_s, "waits for the turn"


def _services(trace: _Trace, device: int, requests: Mapping[str, Sequence[RequestInterval]]) -> None:
    """Slices for the times in which services had requests, and counters of their latencies and batches."""
    group = trace.track("services", device) if any(requests.values()) else None
    for name, intervals in requests.items():
        found = request_columns(intervals, _MOST_COLUMNS)
        if group is None or not found:
            continue
        track = trace.track(name, group)
        # Slices of one track must nest, and intervals of several processes overlap.
        ends_s = [min(one.to_s, other.from_s) for one, other in pairwise(found)] + [found[-1].to_s]
        for each, to_s in zip(found, ends_s, strict=True):
            words = f"{each.answered} answered" + (f", {each.late} late" if each.late else "")
            told = {"late": each.late, "unanswered": each.unanswered, "longest_queue": each.longest_queue}
            trace.slice(track, each.from_s, to_s, words, answered=each.answered, **told)
        for word in ("p50", "p99"):
            values_s = [(each.from_s, getattr(each, f"{word}_s")) for each in found]
            known = ((at_s, 1e3 * value_s) for at_s, value_s in values_s if not math.isnan(value_s))
            _counter(trace, device, f"{word} of {name}", "ms", known)
        batches = ((each.from_s, each.mean_batch) for each in found)
        _counter(trace, device, f"mean batch of {name}", "requests", batches)


def _counters(trace: _Trace, account: EnergyAccount, samples: Sequence[Sample], device: int) -> None:
    session = account.session
    if session is not None and account.intervals:
        part = MODELLED if session.source == MODELLED else ATTRIBUTED
        _watts(trace, account.intervals, device, session.source, part, shortest_s(session.period_s))
    _counter(trace, device, f"power now, {MEASURED}", "W", ((each.at_s, each.power_w) for each in samples))
    _counter(trace, device, "GPU clock", "MHz", ((each.at_s, each.gpu_clock_mhz) for each in samples))
    _counter(trace, device, "memory clock", "MHz", ((each.at_s, each.memory_clock_mhz) for each in samples))
    _counter(trace, device, "temperature", "°C", ((each.at_s, each.temperature_c) for each in samples))
    _counter(trace, device, "memory in use", "B", ((each.at_s, each.memory_bytes) for each in samples))
    seen: dict[str, list[tuple[float, int | None]]] = defaultdict(list)
    for sample in samples:
        for key, progress in sample.jobs.items():
            seen[key].append((sample.at_s, progress.memory_bytes))
    for key, known in seen.items():
        _counter(trace, device, f"memory of {job_of(key)}, attempt {key.rpartition('#')[2]}", "B", known)


def _watts(
    trace: _Trace, intervals: Sequence[EnergyInterval], device: int, source: str, part: str, least_s: float
) -> None:
    """Counters of mean watts over `least_s` or more: device, idle part and each job."""
    meter = trace.track("energy meter", device)
    for each in intervals:
        if each.energy_j is None:
            trace.slice(meter, each.from_s, each.to_s, "joules not known", reason=each.fault or None)
    means = coarser(intervals, least_s)
    known = [(each, each.to_s - each.from_s) for each in means if each.energy_j is not None]
    whole = ((each.from_s, (each.energy_j or 0.0) / wall_s) for each, wall_s in known)
    _counter(trace, device, f"power, {source}", "W", whole)
    _counter(trace, device, f"idle power, {part}", "W", ((each.from_s, each.idle_j / wall_s) for each, wall_s in known))
    for job, active in _active_w(known).items():
        _counter(trace, device, f"power of {job}, {part}", "W", active)


def _active_w(known: Sequence[tuple[EnergyInterval, float]]) -> dict[str, list[tuple[float, float]]]:
    """Power of each job: (time (s), watts) at each interval that has the job, and 0 W at the first one without it.

    Each interval of a run with many jobs has few of them, so this does not visit all jobs in each interval.

    Args:
        known: Intervals with known joules, each with its length in seconds.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    before: Iterable[str] = ()
    for each, wall_s in known:
        for job in before:
            if job not in each.jobs_j:
                found[job].append((each.from_s, 0.0))
        for job, value_j in each.jobs_j.items():
            if job not in found:
                found[job] = [(known[0][0].from_s, 0.0)] if each is not known[0][0] else []
            found[job].append((each.from_s, value_j / wall_s))
        before = each.jobs_j
    return found


def _counter(
    trace: _Trace, device: int, name: str, unit: str, values: Iterable[tuple[float, float | int | None]]
) -> None:
    """Write a counter track with the known values; no track if there are none."""
    track: int | None = None
    before: float | None = None
    for at_s, value in values:
        if value is None or value == before:
            continue
        if track is None:
            track = trace.track(name, device, unit)
        trace.count(track, at_s, float(value))
        before = value
