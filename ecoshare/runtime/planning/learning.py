"""Lessons of a run for later ones: lengths of jobs, times on each device and over machines, responses to power limits.

::

    run ──► RunHistory ──┬► teach_iterations ──► IterationStore ──► learned_iterations ──► Plan: `iterations` of jobs
                         ├► teach_speeds, AloneIterations ──► CalibrationStore ──► speeds of devices that differ
                         ├► teach_gangs ──► GangTimeStore ──► machines of a gang
                         └► teach_limits ──► TuningStore: a result without a best setting ──► responses of packings

Trials of a sweep neither teach their length nor learn it: their values may decide it, and values rarely come twice. Nor
do services: requests decide their length. The profile that a window gave stands in for a class with too few iterations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING

from ecoshare.base.attempt import Outcome
from ecoshare.base.batch_means import relative_error
from ecoshare.base.class_profile import MOST_MEASUREMENTS, NEAR, POWER_LIMIT
from ecoshare.base.device import DeviceInfo
from ecoshare.base.measurement import Measurement, MeasurementStatus, Packing
from ecoshare.base.printable import utc_text
from ecoshare.errors import UnfitEnvironment
from ecoshare.knowledge.calibration_store import CalibrationStore, IterationTime, identity
from ecoshare.knowledge.gang_time_store import GangTimeStore
from ecoshare.knowledge.iteration_store import IterationCount, IterationStore, JobArguments
from ecoshare.knowledge.profile import Profile, ProfileOrigin
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.knowledge.tuning_store import KnobRange, MeasurementRecord, TunedDevice, TuningResult, TuningStore
from ecoshare.lane.trace import Kind
from ecoshare.record.accounts.alone_time import WARM_UP
from ecoshare.record.accounts.turn_account import (
    AttemptTimes,
    TurnAccount,
    as_spans,
    covered_within_s,
    end_s_of,
    history_spans,
    union,
    works_beyond_turns,
)
from ecoshare.record.run_data import RunData
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.run_history import AttemptHistory, JobHistory, RunHistory
from ecoshare.runtime.planning.planned_job import PlannedJob
from ecoshare.runtime.planning.planned_knowledge import OBJECTIVE, TUNING_LIMIT, arguments_of, limit_w_of, teach_memory

if TYPE_CHECKING:
    import numpy as np

    from ecoshare.record.packing_timeline import PackingPeriod
    from ecoshare.record.run_history import RunHistory


_SAME_S = 1e-9
"""Tolerance (s) for the turn time of an iteration that was not interrupted: rounding of floats."""


class AloneIterations:
    """Iterations of the attempts of a run that count.

    ::

        job      ─ warm-up ─┤■■■■■■■■│  waits  │·····│■■■■■■■■■│       ■  iterations that count
        beside              ┆        ╞══ turn ═╡     ┆         ┆
        setting             ┆                  ╞═════╡         ┆       another than the default

    An iteration counts if the device was at its default setting, and if no other job had a turn there, started or
    ended. The traces of the jobs tell this to the iteration, while the reports of progress come once a second. The
    memory of a job is watched in its profiling window, so that iterations of a window do not count here.

    Attributes:
        history: History of the run.
    """

    def __init__(self, account: TurnAccount, history: RunHistory) -> None:
        """Look at all attempts."""
        self._account, self.history = account, history
        self._on_device: dict[str, list[tuple[AttemptHistory, np.ndarray]]] = defaultdict(list)
        for times in account.times.values():
            for device in history.devices_of(times.attempt.lanes):
                self._on_device[device].append((times.attempt, self._uses(times)))

    def durations_s(self, attempt: AttemptHistory) -> list[float]:
        """Times (s) of the training iterations of an attempt that count, in their order: warm ones, in one turn."""
        import numpy as np

        times = self._account.times.get((attempt.job, attempt.number))
        if times is None or len(times.ends_s) < 2:
            return []
        from_s, to_s = times.ends_s[:-1], times.ends_s[1:]
        lasts_s = to_s - from_s
        is_warm = np.arange(1, len(to_s) + 1) >= WARM_UP
        is_whole = (lasts_s > 0.0) & (lasts_s <= covered_within_s(times.turns, from_s, to_s) + _SAME_S)
        is_alone = covered_within_s(self._excluded(attempt), from_s, to_s) <= 0.0
        found: list[float] = lasts_s[is_warm & is_whole & is_alone & (times.kinds[1:] == Kind.TRAIN)].tolist()
        return found

    def _excluded(self, attempt: AttemptHistory) -> np.ndarray:
        """Times of other jobs, of settings and of windows."""
        history, sets = self.history, []
        for device in history.devices_of(attempt.lanes):
            sets += [uses for other, uses in self._on_device[device] if self._meet(other, attempt)]
            sets.append(history_spans(history, (each for each in history.settings if each.device == device)))
        sets.append(history_spans(history, (each for each in history.windows if each.job == attempt.job)))
        return union(sets)

    def _uses(self, times: AttemptTimes) -> np.ndarray:
        """Times in which an attempt uses its devices: its turns, its start before them and its end after them."""
        attempt, turns = times.attempt, times.turns
        end_s = end_s_of(attempt, self.history)
        if not len(turns) or works_beyond_turns(attempt, self.history):
            return as_spans([(attempt.asked_s, end_s)])
        return union([as_spans([(attempt.asked_s, turns[0, 0])]), turns, as_spans([(turns[-1, 1], end_s)])])

    def _meet(self, one: AttemptHistory, other: AttemptHistory) -> bool:
        """Whether two attempts were there at the same time. A long sweep has many that were not."""
        first, last = (end_s_of(each, self.history) for each in (one, other))
        return one is not other and one.asked_s < last and other.asked_s < first


LEAST_S, FEWEST = 1.0, 5
"""Least time (s) and fewest iterations of a class on a device that count as a measurement."""


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
        folder: Folder of the run.
        data: Data of the run.
        made: Profiles that the run has made, by class.
        store: Calibrations of all devices.
    """
    if all(identity(device) is None for device in devices):
        return []
    if data.account is None:
        return []
    measured = measured_times(AloneIterations(data.account, data.history), made, folder.path.name)
    try:
        for device in devices:
            store.add(device, measured.get(device.name, {}))
    except UnfitEnvironment as error:
        return [*store.notes, f"the speeds of the devices are not kept: {error}"]
    return store.notes


def measured_times(
    alone: AloneIterations, made: Mapping[str, Profile], run: str
) -> dict[str, dict[str, IterationTime]]:
    """Iteration time of each class alone, by device and class.

    Args:
        alone: Iterations of the run that count.
        made: Profiles that the run has made, by class.
        run: Name of the run.
    """
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for attempt in alone.history.attempts:
        job, devices = alone.history.jobs[attempt.job], alone.history.devices_of(attempt.lanes)
        if job.spec is not None and len(attempt.lanes) == 1 and not job.usage.keeps_lane:
            found[devices[0]][job.spec.job_class] += alone.durations_s(attempt)
    doubted = {name for name, profile in made.items() if profile.doubt}
    times: dict[str, dict[str, IterationTime]] = {
        device: {
            job_class: iteration_time(durations_s, run)
            for job_class, durations_s in classes.items()
            if is_enough(durations_s) and job_class not in doubted
        }
        for device, classes in found.items()
    }
    for name, profile in made.items():
        own = times.get(profile.machine.device, {})
        if name not in own and (time := _profiled(profile, run)) is not None:
            times.setdefault(profile.machine.device, {})[name] = time
    return times


def is_enough(durations_s: Sequence[float]) -> bool:
    """Whether so many iterations count as a measurement."""
    return len(durations_s) >= FEWEST and sum(durations_s) >= LEAST_S


def iteration_time(durations_s: Sequence[float], run: str) -> IterationTime:
    """Time of an iteration of these, in a run of this name."""
    error = relative_error(durations_s)
    return IterationTime(seconds=median(durations_s), iterations=len(durations_s), relative_error=error, run=run)


def _profiled(profile: Profile, run: str) -> IterationTime | None:
    """Time from a profiling window; None if it is too short or doubted, or if the job has several devices."""
    train = profile.train
    if train is None or profile.doubt or train.count < FEWEST or train.count * train.median_s < LEAST_S:
        return None
    error = train.standard_error_s / train.mean_s if train.standard_error_s is not None else None
    return IterationTime(seconds=train.median_s, iterations=train.count, relative_error=error, run=run)


def teach_gangs(folder: RunFolder, data: RunData, store: GangTimeStore) -> list[str]:
    """Keep the iteration times of the gangs of a run that may be on several machines; return notes for the user.

    A run with very long traces adds nothing.

    Args:
        folder: Folder of the run.
        data: Data of the run.
        store: Times of gangs.
    """
    if not any(_may_span(attempt, data.history) for attempt in data.history.attempts):
        return []
    if data.account is None:
        return []
    alone = AloneIterations(data.account, data.history)
    try:
        for (job_class, nodes), time in gang_times(alone, folder.path.name).items():
            store.add(job_class, nodes, time)
    except (UnfitEnvironment, ValueError) as error:
        return [*store.notes, f"the times of gangs are not kept: {error}"]
    return store.notes


def gang_times(alone: AloneIterations, run: str) -> dict[tuple[str, int], IterationTime]:
    """Iteration time of each class of gangs that may be on several machines, by class and number of machines.

    Args:
        alone: Iterations of the run that count.
        run: Name of the run.
    """
    history = alone.history
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for attempt in (each for each in history.attempts if _may_span(each, history)):
        spec, names = history.jobs[attempt.job].spec, history.devices_of(attempt.lanes)
        assert spec is not None, "an attempt follows an arrival"
        nodes = len({history.devices[name].node for name in names})
        found[spec.job_class, nodes] += alone.durations_s(attempt)
    return {key: iteration_time(durations_s, run) for key, durations_s in found.items() if is_enough(durations_s)}


def _may_span(attempt: AttemptHistory, history: RunHistory) -> bool:
    """Whether an attempt is one of a gang that may be on several machines, with as many devices as it needs."""
    job = history.jobs[attempt.job]
    return job.spec is not None and len(attempt.lanes) > 1 and job.spec.nodes != 1 and not job.widened


def teach_iterations(
    jobs: Sequence[PlannedJob], history: Mapping[str, JobHistory], run: str, store: ProfileStore
) -> list[str]:
    """Add the iterations of all completed jobs of a run to the store, and what its jobs took of memory.

    Returns:
        Notes for the user.

    Args:
        jobs: Jobs of the run.
        history: History of each job, over all sessions of the run.
        run: Name of the run folder. A job of a run counts once, however often it is told.
        store: Profiles of job classes, which get the counts beside them.
    """
    origins: dict[str, ProfileOrigin] = {}
    new: dict[str, list[tuple[JobArguments, IterationCount]]] = defaultdict(list)
    for job in sorted(jobs, key=lambda each: _finish_s(history.get(each.spec.name))):
        told = history.get(job.spec.name)
        if told is None or told.spec is None or told.spec.sweep or told.spec.service is not None:
            continue
        if iterations := _iterations(told, continues=bool(job.source.resume_args)):
            origin = origins[told.spec.job_class] = job.job_class.origin
            count = IterationCount(iterations=iterations, run=run, job=told.name)
            new[told.spec.job_class].append((arguments_of(job.source, origin), count))
    kept = IterationStore(store.folder)
    try:
        for name, counts in new.items():
            kept.add(name, origins[name], counts)
        teach_memory(history, store)
    except (UnfitEnvironment, ValueError) as error:
        return [*kept.notes, f"the iterations of completed jobs are not kept: {error}"]
    return kept.notes


def _iterations(job: JobHistory, continues: bool) -> int | None:
    """Training iterations of a completed job; None if it did not complete, or if they are unknown.

    An attempt after another one may begin again or continue. The job shows that it continues by its `resume_args`. Then
    the iterations of all attempts are added up. Without them the count is unknown, unless earlier attempts did none.
    On more devices than the job needs, its ranks may do fewer iterations for the same work, so the count is unknown. So
    it is if attempts were over before the log began.
    """
    is_known = not job.widened and not job.unknown_attempts
    if job.exit is None or job.exit.outcome is not Outcome.COMPLETED or not is_known:
        return None
    before = 0
    for attempt in job.starts.keys() - {job.attempt}:
        end = job.exits.get(attempt)
        if end is None:  # cut off with the run
            return None
        before += end.usage.iterations
    return before + job.usage.iterations if continues or not before else None


def _finish_s(job: JobHistory | None) -> float:
    return job.finish_s or 0.0 if job is not None else 0.0


def teach_limits(devices: Sequence[DeviceInfo], history: RunHistory, store: TuningStore) -> list[str]:
    """Keep what a run measured under power limits; return notes for the user.

    A measurement replaces earlier ones of its packing under nearly the same limit.

    Args:
        devices: Devices of the run, all of one model.
        history: History of the run.
        store: Tuning results.
    """
    by_name = {device.name: device for device in devices}
    found: dict[Packing, list[tuple[PackingPeriod, Measurement]]] = {}
    for stretch in history.packings().stretches:
        for _, measured in stretch.measurements:
            is_whole = set(measured.times_s) == set(stretch.jobs) and bool(measured.power_w)
            if measured.status is MeasurementStatus.MEASURED and is_whole and stretch.device in by_name:
                found.setdefault(stretch.packing, []).append((stretch, measured))
    try:
        for packing, own in found.items():
            device = by_name[own[0][0].device]
            limits_w = history.devices[device.name].power_limits_w
            if limits_w:
                store.save(_result(packing, own, device, limits_w, store))
    except UnfitEnvironment as error:
        return [*store.notes, f"what power limits did is not kept: {error}"]
    return store.notes


def _result(
    packing: Packing,
    own: Sequence[tuple[PackingPeriod, Measurement]],
    device: DeviceInfo,
    limits_w: Sequence[float],
    store: TuningStore,
) -> TuningResult:
    """Measurements of a packing, the newest first, with those of earlier runs under other limits."""
    before = store.find(packing, device.described, OBJECTIVE, TUNING_LIMIT)
    records = [_record(stretch.classes, measured, limits_w[-1]) for stretch, measured in reversed(own)]
    new_w = [limit_w_of(each) for each in records]
    for each in () if before is None else before.trials:
        if all(abs(limit_w / limit_w_of(each) - 1.0) > NEAR for limit_w in new_w):
            records.append(each)
    kept = records[:MOST_MEASUREMENTS]
    return TuningResult(
        objective=OBJECTIVE,
        tuning_limit=TUNING_LIMIT,
        knobs=(KnobRange(name=POWER_LIMIT, unit="W", count=len(limits_w), lowest=limits_w[0], highest=limits_w[-1]),),
        packing=packing,
        device=TunedDevice(model=device.described, uuid=device.uuid),
        default={POWER_LIMIT: limits_w[-1]},
        best=None,
        trials=tuple(each.model_copy(update={"number": number}) for number, each in enumerate(kept, start=1)),
        saved_against_default=None,
        best_static=None,
        violations=0,
        search_energy_j=None,
        made_utc=utc_text(),
        classes={name: name for lane in packing for name in lane},
    )


def _record(classes: Mapping[str, str], found: Measurement, default_w: float) -> MeasurementRecord:
    """A measurement for the store. Jobs are named after their classes, since other runs have other jobs."""
    times: dict[str, list[float]] = {}
    for job, time_s in found.times_s.items():
        times.setdefault(classes[job], []).append(time_s)
    return MeasurementRecord(
        number=1,
        requested={POWER_LIMIT: float(dict(found.setting).get(POWER_LIMIT, default_w))},
        status=found.status,
        power_w=found.power_w,
        joules=found.joules,
        duration_s=found.duration_s,
        times={name: fmean(each) for name, each in times.items()},
        energy=None,
        interference={},
        feasible=None,
        best=False,
    )
