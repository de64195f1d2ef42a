"""Knowledge of earlier runs that a plan begins with: profiles, co-locations, settings, relative speeds of devices."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from ecoshare.base.class_profile import CONTEXT_BYTES, POWER_LIMIT, KnownResponse, LimitMeasurement, MemoryDemand, Solo
from ecoshare.base.device import DeviceInfo, Speeds, speed_of
from ecoshare.base.measurement import ColocationMeasurement, KnownSetting, class_of, phase_words, setting_of
from ecoshare.base.plural import counted, listed
from ecoshare.core.memory import outgrows, with_peak
from ecoshare.jobs.schema import JobConfig
from ecoshare.knowledge.calibration_store import CalibrationStore, identity
from ecoshare.knowledge.colocation_store import ColocationStore
from ecoshare.knowledge.device_speeds import ANY
from ecoshare.knowledge.iteration_store import IterationStore, JobArguments, LearnedIterations
from ecoshare.knowledge.profile import Profile, ProfileOrigin, why_new
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.knowledge.tuning_store import MeasurementRecord, TuningStore
from ecoshare.record.accounts.energy_account import EnergyRate
from ecoshare.record.accounts.run_energy import energy_rate
from ecoshare.record.run_history import JobHistory
from ecoshare.record.setting_history import values_words
from ecoshare.runtime.planning.job_class import JobClass
from ecoshare.runtime.planning.planned_job import PlannedJob

OBJECTIVE, TUNING_LIMIT = "power budget", 1.0
"""Objective and tuning limit under which the store keeps measurements under power limits: no search has them."""

_MOST_REASONS = 3
"""Most notes of a plan about missing profiles, and about settings."""

_MOST_NOTES = 3
"""Most notes of a plan about learned numbers."""

_WORTH_A_NOTE = 1.02
"""Least ratio of the fastest device to the slowest that the user is told."""

_DIGITS = 4
"""Digits of the digest of a job's environment. They tell environments apart, and are too few to find a secret."""


def known_demand(known: Profile) -> MemoryDemand | None:
    """Memory demand of a job of the class, its context included; None if it was not measured."""
    memory = known.memory
    if memory.persistent_bytes is None or memory.ephemeral_bytes is None:
        return None
    on_gpu = known.machine.uuid is not None
    unseen_bytes = CONTEXT_BYTES if on_gpu and memory.context_bytes is None else 0
    measured = MemoryDemand(memory.persistent_bytes + unseen_bytes, memory.ephemeral_bytes)
    return measured if memory.seen_bytes is None else with_peak(measured, memory.seen_bytes)


def teach_memory(history: Mapping[str, JobHistory], store: ProfileStore) -> None:
    """Keep the largest memory of each class of which a job has outgrown its profile, for later plans.

    Raises:
        UnfitEnvironment: A profile cannot be written: no room, or no permission.
    """
    seen: dict[str, int] = {}
    for job in history.values():
        if job.spec is not None and job.told_bytes:
            seen[job.spec.job_class] = max(job.told_bytes, seen.get(job.spec.job_class, 0))
    for job_class, seen_bytes in seen.items():
        known = store.find(job_class)
        measured = known_demand(known) if known is not None else None
        if known is not None and measured is not None and outgrows(measured, seen_bytes):
            memory = known.memory.model_copy(update={"seen_bytes": seen_bytes})
            store.save(known.model_copy(update={"memory": memory}))


def known_context_bytes(
    job_class: str, on_processors: bool, made: Mapping[str, Profile], known: Mapping[str, Profile]
) -> int:
    """Memory (bytes) of a process outside its allocator, by its class; an assumption if it is unknown.

    It is 0 on processors, where nothing but the whole memory of a process is limited.

    Args:
        job_class: Class of the job.
        on_processors: Whether jobs run on the processors.
        made: Profiles that the run has made, by class.
        known: Profiles of earlier runs, by class.
    """
    if on_processors:
        return 0
    profile = made.get(job_class) or known.get(job_class)
    measured = profile.memory.context_bytes if profile is not None else None
    return CONTEXT_BYTES if measured is None else measured


def known_solo(known: Profile, batch_sizes: Sequence[int] = ()) -> Solo:
    """Measurements of the class alone, except its memory.

    Args:
        known: Profile of the class.
        batch_sizes: Batch sizes that the job may use if it is a service; empty for those of its program.
    """
    energy = known.energy
    return Solo(
        family=known.origin.script,
        iteration_s=known.train.mean_s if known.train is not None else None,
        power_w=energy.power_w if energy is not None else None,
        idle_w=energy.idle_w if energy is not None else None,
        busy=known.use.busy,
        memory_busy=known.use.memory_busy,
        longest_s=_longest_s(known, batch_sizes),
    )


def _longest_s(known: Profile, batch_sizes: Sequence[int]) -> float | None:
    """Upper quantile (s) of an iteration or an answer; None if it is not known well."""
    if known.doubt:  # times are too long then, and would keep jobs out of lanes that have room for them
        return None
    iterations_s = [each.p95_s for each in (known.train, known.eval) if each is not None]
    return max(iterations_s, default=None) or known.longest_answer_s(batch_sizes)


def energy_rates(
    jobs: Mapping[str, PlannedJob], made: Mapping[str, Profile], known: Mapping[str, Profile]
) -> Callable[[str], EnergyRate | None]:
    """Lookup of the joules of an iteration of a job's class alone, by the name of the job; None if they are unknown.

    Args:
        jobs: Jobs of the run.
        made: Profiles that the run has made, by class.
        known: Profiles of earlier runs, by class.
    """

    def rate(name: str) -> EnergyRate | None:
        job = jobs.get(name)
        profile = (made.get(job.spec.job_class) or known.get(job.spec.job_class)) if job is not None else None
        return energy_rate(profile) if profile is not None else None

    return rate


def shown_jobs(planned: Sequence[tuple[JobConfig, JobClass]]) -> dict[str, str]:
    """Names of the jobs of each class, for the user: the name of a class is meant for files only."""
    jobs: dict[str, list[str]] = {}
    for job, job_class in planned:
        jobs.setdefault(job_class.name, []).append(job.name)
    return {name: listed(names) for name, names in jobs.items()}


def known_profiles(
    classes: dict[str, JobClass], shown: dict[str, str], store: ProfileStore | None
) -> tuple[dict[str, Profile], list[str]]:
    """Stored profiles, by class, and notes. If a class has none but its script has one, a note gives the difference."""
    if store is None:
        return {}, []
    known = {name: profile for name in classes if (profile := store.find(name)) is not None}
    reasons = [
        f"no profile yet for {shown[name]}: {why_new(each.origin, nearest)}"
        for name, each in classes.items()
        if name not in known and (nearest := store.nearest(each.origin)) is not None
    ]
    notes = [*store.notes, *reasons[:_MOST_REASONS]]
    if (more := len(reasons) - _MOST_REASONS) > 0:
        others = counted(more, "more class", "more classes")
        notes.append(f"{others} of known scripts without a profile")
    return known, notes


def known_colocations(
    classes: set[str], store: ProfileStore | None
) -> tuple[tuple[ColocationMeasurement, ...], list[str]]:
    """Co-location measurements of these classes in earlier runs, and notes."""
    if store is None:
        return (), []
    kept = ColocationStore(store.folder)
    found = kept.of(classes)
    return tuple(ColocationMeasurement(each.classes, each.speeds, each.power_w) for each in found), kept.notes


def known_settings(
    classes: set[str],
    device: DeviceInfo,
    objective: str,
    lanes: int,
    shown: dict[str, str],
    store: ProfileStore | None,
) -> tuple[tuple[KnownSetting, ...], list[str]]:
    """Settings that earlier searches have found for packings of these classes. Notes tell those of classes in `shown`.

    A class that is not shown belongs to other jobs of the run.
    """
    if store is None:
        return (), []
    kept = TuningStore(store.folder)
    found = kept.of(classes, device.described, objective)
    notes = [*kept.notes]
    known = [
        KnownSetting(
            each.packing,
            setting_of(each.best or {}, each.default),
            each.slower,
        )
        for each in found
        if len(each.packing) <= lanes
    ]
    told = [
        each
        for each in known
        if each.setting and any(class_of(name) in shown for lane in each.packing for name in lane)
    ]
    for each in told[:_MOST_REASONS]:
        values = values_words(dict(each.setting))
        jobs = " | ".join(
            " + ".join(shown.get(class_of(name), class_of(name)) + phase_words(name) for name in lane)
            for lane in each.packing
        )
        notes.append(f"while just {jobs} run, clocks and power are set: {values} (`--control off` sets nothing)")
    return tuple(known), notes


def known_speeds(
    devices: Sequence[DeviceInfo], classes: Iterable[str], store: ProfileStore | None
) -> tuple[dict[str, Speeds], list[str]]:
    """Relative speeds of the devices that have any, by name, and notes; no speeds for one device, and if all are alike.

    Args:
        devices: Devices of the run.
        classes: Job classes of the run.
        store: Profiles of job classes, which have the calibration beside them; None to use none.
    """
    if store is None or len(devices) < 2:
        return {}, []
    kept = CalibrationStore(store.folder)
    known = kept.speeds(devices[0].described)
    names = sorted({ANY, *classes})
    found: dict[str, Speeds] = {}
    for device in devices:
        own = known.get(identity(device) or "", {})
        found[device.name] = tuple((name, own[name].speed) for name in names if name in own)
    if all(speed == 1.0 for speeds in found.values() for _, speed in speeds):
        return {}, kept.notes
    return {name: speeds for name, speeds in found.items() if speeds}, kept.notes + _note(devices, found, names)


def relative_to(device: DeviceInfo, store: CalibrationStore) -> Callable[[str | None, str], float]:
    """Function of a UUID and a class: speed of that device / speed of `device`; 1 if it is unknown.

    A time that was measured there, times this factor, is the time to expect on `device`.
    """
    known = store.speeds(device.described)

    def speed(uuid: str | None, job_class: str) -> float:
        own = known.get(uuid or "", {})
        found = own.get(job_class) or own.get(ANY)
        return found.speed if found is not None else 1.0

    return lambda uuid, job_class: speed(uuid, job_class) / speed(device.uuid, job_class)


def speed_where_measured(profile: Profile, devices: Sequence[DeviceInfo], speeds: Mapping[str, Speeds]) -> float:
    """Relative speed of a class on the device of its profile; 1 if it is none of these devices, or not known."""
    machine = profile.machine
    for each in devices:
        if (each.uuid, each.name) == (machine.uuid, machine.device) or (each.uuid and each.uuid == machine.uuid):
            return speed_of(speeds.get(each.name, ()), profile.job_class)
    return 1.0


def _note(devices: Sequence[DeviceInfo], speeds: Mapping[str, Speeds], names: Sequence[str]) -> list[str]:
    """Line about the class for which the devices differ most; none if they hardly differ."""

    def of(device: DeviceInfo, job_class: str) -> float:
        return speed_of(speeds[device.name], job_class)

    def ratio(job_class: str) -> float:
        found = [of(each, job_class) for each in devices]
        return max(found) / min(found)

    widest = max(names, key=ratio)
    if ratio(widest) < _WORTH_A_NOTE:
        return []
    slowest = min(devices, key=lambda each: of(each, widest))
    fastest = max(devices, key=lambda each: of(each, widest))
    percent = 100.0 * (1.0 - 1.0 / ratio(widest))
    calibrated = sum(bool(speeds[each.name]) for each in devices)
    known = "" if calibrated == len(devices) else f"; {counted(len(devices) - calibrated, 'device')} not calibrated"
    return [
        f"{slowest.name} is up to {percent:.0f} % slower than {fastest.name}: jobs go to the fastest free device{known}"
    ]


def learned_iterations(
    planned: Iterable[tuple[JobConfig, JobClass]], store: ProfileStore | None
) -> tuple[dict[str, LearnedIterations], list[str]]:
    """Learned number of iterations of each job that gives none, by its name, and notes with the origin of the numbers.

    Args:
        planned: Each job of the job file with its class. Sweeps and services are left out.
        store: Profiles of job classes, which have the counts beside them; None to learn nothing.
    """
    if store is None:
        return {}, []
    kept = IterationStore(store.folder)
    unknown = [
        (job, job_class)
        for job, job_class in planned
        if job.iterations is None and job.sweep is None and job.service is None
    ]
    classes = {name: kept.find(name) for name in dict.fromkeys(job_class.name for _, job_class in unknown)}
    found: dict[str, LearnedIterations] = {}
    for job, job_class in unknown:
        counts = classes[job_class.name]
        if counts is not None and (number := counts.of(arguments_of(job, job_class.origin))) is not None:
            found[job.name] = number
    return found, kept.notes + _notes(found)


def arguments_of(job: JobConfig, origin: ProfileOrigin) -> JobArguments:
    environment = json.dumps(sorted(job.env.items())).encode()
    return JobArguments.of(origin, hashlib.sha256(environment).hexdigest()[:_DIGITS] if job.env else "")


def _notes(found: Mapping[str, LearnedIterations]) -> list[str]:
    """Origin of the learned numbers; jobs with equal numbers of equal origin share a line."""
    jobs: dict[LearnedIterations, list[str]] = defaultdict(list)
    for name, number in found.items():
        jobs[number].append(name)
    lines = [
        f"iterations of {listed(names)}: {number.iterations:,}{' each' if len(names) > 1 else ''}, {number.source}"
        for number, names in jobs.items()
    ]
    if len(lines) > _MOST_NOTES:
        rest = sum(len(names) for names in list(jobs.values())[_MOST_NOTES:])
        return [*lines[:_MOST_NOTES], f"iterations of {counted(rest, 'more job')} are learned from completed jobs, too"]
    return lines


def known_responses(
    classes: set[str], device: DeviceInfo, store: TuningStore
) -> tuple[tuple[KnownResponse, ...], list[str]]:
    """Measurements under power limits that earlier runs made of packings of these classes, and notes.

    Args:
        classes: Job classes of the run.
        device: A device of the run.
        store: Tuning results.
    """
    found = store.of(classes, device.described, OBJECTIVE)
    return tuple(KnownResponse(each.packing, tuple(map(_measurement, each.trials))) for each in found), store.notes


def _measurement(record: MeasurementRecord) -> LimitMeasurement:
    assert record.power_w is not None, "only measurements with watts are kept"
    return LimitMeasurement(limit_w_of(record), record.power_w, tuple(sorted(record.times.items())))


def limit_w_of(record: MeasurementRecord) -> float:
    return float(record.requested[POWER_LIMIT])
