"""Learns how long iterations take on each device, for a calibration of devices that differ.

::

    job      ─ warm-up ─┤■■■■■■■■│  waits  │·····│■■■■■■■■■│       ■  iterations that count
    beside              ┆        ╞══ turn ═╡     ┆         ┆
    setting             ┆                  ╞═════╡         ┆       another than the default

An iteration counts if the job had its device to itself and the device was at its default setting: no other job had a
turn there, started or ended. The traces of the jobs tell this to the iteration, while the reports of progress come once
a second. The memory of a job is watched in its profiling window, so that iterations of a window do not count here. The
profile that the window gave stands in for a class without enough other iterations.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from ecoshare.common.batch_means import relative_error
from ecoshare.errors import UnfitEnvironment
from ecoshare.lane.trace import MARK_BYTES, Kind, held, trace_path, whole_bytes
from ecoshare.profiling.calibration_store import CalibrationStore, IterationTime, identity
from ecoshare.profiling.profile import Profile
from ecoshare.record.job_history import AttemptHistory
from ecoshare.record.reading import with_traces
from ecoshare.record.run_data import RunData
from ecoshare.record.run_folder import RunFolder
from ecoshare.values.device import DeviceInfo

LEAST_S, FEWEST = 1.0, 5
"""Least time (s) and fewest iterations of a class on a device that count as a measurement."""

MOST_MARKS = 500_000
"""Most marks of all traces that are read at the end of a run, which takes about two seconds."""

WARM_UP = 10
"""First iterations of an attempt that do not count: they allocate memory, choose kernels and fill caches."""

_SAME_S = 1e-9
"""Tolerance (s) for the turn time of an iteration that was not interrupted: rounding of floats."""

Span = tuple[float, float]


def teach_speeds(
    devices: Sequence[DeviceInfo],
    folder: RunFolder,
    data: RunData,
    made: Mapping[str, Profile],
    store: CalibrationStore,
) -> list[str]:
    """Add the iteration times of a run to the calibration of its devices; return notes for the user.

    Times of the run replace those of an earlier session of it. A run with very long traces adds nothing.

    Args:
        devices: Devices of the run.
        folder: Folder of the run, with the traces.
        data: Data of the run, without traces.
        made: Profiles that the run has made, by class.
        store: Calibrations of all devices.
    """
    if all(identity(device) is None for device in devices):
        return []
    paths = (trace_path(folder.job(each.job), each.number) for each in data.history.attempts)
    if sum(map(whole_bytes, paths)) > MOST_MARKS * MARK_BYTES:
        return []
    measured = measured_times(with_traces(data, folder), made, folder.path.name)
    try:
        for device in devices:
            store.add(device, measured.get(device.name, {}))
    except UnfitEnvironment as error:
        return [*store.notes, f"the speeds of the devices are not kept: {error}"]
    return store.notes


def measured_times(data: RunData, made: Mapping[str, Profile], run: str) -> dict[str, dict[str, IterationTime]]:
    """Iteration time of each class alone, by device and class.

    Args:
        data: Data of the run, with traces.
        made: Profiles that the run has made, by class.
        run: Name of the run.
    """
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    on_device: dict[str, list[AttemptHistory]] = defaultdict(list)
    for attempt in data.history.attempts:
        for device in data.history.devices_of(attempt.lanes):
            on_device[device].append(attempt)
    for device, attempts in on_device.items():
        busy = [(each, list(_busy(each, data))) for each in attempts]
        apart = [(each.from_s, _end(each.to_s)) for each in data.history.settings if each.device == device]
        for attempt in attempts:
            job = data.history.jobs[attempt.job]
            if job.spec is None or len(attempt.lanes) != 1 or job.usage.keeps_lane:
                continue
            others = [span for each, spans in busy if _meet(each, attempt) for span in spans]
            windows = [(each.from_s, _end(each.to_s)) for each in data.history.windows if each.job == attempt.job]
            excluded = _merged([*others, *apart, *windows])
            found[device][job.spec.job_class] += _durations(attempt, data, excluded)
    doubted = {name for name, profile in made.items() if profile.doubt}
    times: dict[str, dict[str, IterationTime]] = {
        device: {
            job_class: _time(durations_s, run)
            for job_class, durations_s in classes.items()
            if len(durations_s) >= FEWEST and sum(durations_s) >= LEAST_S and job_class not in doubted
        }
        for device, classes in found.items()
    }
    for name, profile in made.items():
        own = times.get(profile.machine.device, {})
        if name not in own and (time := _profiled(profile, run)) is not None:
            times.setdefault(profile.machine.device, {})[name] = time
    return times


def _time(durations_s: Sequence[float], run: str) -> IterationTime:
    error = relative_error(durations_s)
    return IterationTime(seconds=median(durations_s), iterations=len(durations_s), relative_error=error, run=run)


def _profiled(profile: Profile, run: str) -> IterationTime | None:
    """Time from a profiling window; None if it is too short or doubted, or if the job has several devices."""
    train = profile.train
    if train is None or profile.doubt or train.count < FEWEST or train.count * train.median_s < LEAST_S:
        return None
    error = train.standard_error_s / train.mean_s if train.standard_error_s is not None else None
    return IterationTime(seconds=train.median_s, iterations=train.count, relative_error=error, run=run)


def _durations(attempt: AttemptHistory, data: RunData, excluded: Sequence[Span]) -> list[float]:
    """Times (s) of the warm training iterations of an attempt in one turn, outside the excluded spans."""
    marks = data.traces.get((attempt.job, attempt.number), [])
    found = []
    for number, (each, held_s) in enumerate(held(marks), start=1):
        lasts_s = each.to_s - each.from_s
        whole = each.kind is Kind.TRAIN and number >= WARM_UP and 0.0 < lasts_s <= held_s + _SAME_S
        if whole and not _touches(excluded, each.from_s, each.to_s):
            found.append(lasts_s)
    return found


def _busy(attempt: AttemptHistory, data: RunData) -> Iterator[Span]:
    """Times in which an attempt uses its device: its turns, its start before the first and its end after the last.

    The trace of a job of several devices, or of one with child processes on the device, does not tell all of its work.
    """
    end_s = _end(attempt.ended_s)
    turns = data.turns(attempt)
    if not turns or len(attempt.lanes) > 1 or data.history.jobs[attempt.job].usage.keeps_lane:
        yield attempt.asked_s, end_s
        return
    yield attempt.asked_s, turns[0].from_s
    for turn in turns:
        yield turn.from_s, turn.to_s
    yield turns[-1].to_s, end_s


def _meet(one: AttemptHistory, other: AttemptHistory) -> bool:
    """Whether two attempts were there at the same time. A long sweep has many that were not."""
    return one is not other and one.asked_s < _end(other.ended_s) and other.asked_s < _end(one.ended_s)


def _end(at_s: float | None) -> float:
    return float("inf") if at_s is None else at_s


def _merged(spans: Iterable[Span]) -> list[Span]:
    """The same spans in order, without overlaps."""
    merged: list[Span] = []
    for from_s, to_s in sorted(spans):
        if merged and from_s <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], to_s)
        else:
            merged.append((from_s, to_s))
    return merged


def _touches(spans: Sequence[Span], from_s: float, to_s: float) -> bool:
    """Whether any of some spans, which are in order and apart, overlaps a time."""
    place = bisect_left(spans, (to_s,))
    return place > 0 and spans[place - 1][1] > from_s
