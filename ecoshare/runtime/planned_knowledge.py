"""Knowledge of earlier runs that a plan begins with: profiles, co-locations and settings of its job classes."""

from __future__ import annotations

from collections.abc import Sequence

from ecoshare.common.plural import counted, listed
from ecoshare.jobs.schema import JobConfig
from ecoshare.profiling.colocation_store import ColocationStore
from ecoshare.profiling.profile import Profile
from ecoshare.profiling.profile_difference import why_new
from ecoshare.profiling.profile_store import ProfileStore
from ecoshare.profiling.tuning_store import TuningStore
from ecoshare.record.setting_history import values_words
from ecoshare.runtime.job_class import JobClass
from ecoshare.values.device import DeviceInfo
from ecoshare.values.measurement import ColocationMeasurement
from ecoshare.values.setting import KnownSetting, setting_of

_MOST_REASONS = 3


def shown_jobs(planned: Sequence[tuple[JobConfig, JobClass]]) -> dict[str, str]:
    """Names of the jobs of each class, for the user: the name of a class is meant for files only."""
    jobs: dict[str, list[str]] = {}
    for job, job_class in planned:
        jobs.setdefault(job_class.name, []).append(job.name)
    return {name: listed(names) for name, names in jobs.items()}


def profiles(
    classes: dict[str, JobClass], shown: dict[str, str], store: ProfileStore | None, notes: list[str]
) -> dict[str, Profile]:
    """Stored profiles, by class. If a class has none but its script has one, a note gives the difference."""
    if store is None:
        return {}
    known = {name: profile for name in classes if (profile := store.find(name)) is not None}
    reasons = [
        f"no profile yet for {shown[name]}: {why_new(each.origin, nearest)}"
        for name, each in classes.items()
        if name not in known and (nearest := store.nearest(each.origin)) is not None
    ]
    notes += store.notes + reasons[:_MOST_REASONS]
    if (more := len(reasons) - _MOST_REASONS) > 0:
        others = counted(more, "more class", "more classes")
        notes.append(f"{others} of known scripts without a profile")
    return known


def colocations(classes: set[str], store: ProfileStore | None, notes: list[str]) -> tuple[ColocationMeasurement, ...]:
    """Co-location measurements of these classes in earlier runs."""
    if store is None:
        return ()
    kept = ColocationStore(store.folder)
    found = kept.of(classes)
    notes += kept.notes
    return tuple(ColocationMeasurement(each.classes, each.speeds, each.power_w) for each in found)


def settings(
    classes: set[str],
    device: DeviceInfo,
    objective: str,
    lanes: int,
    shown: dict[str, str],
    store: ProfileStore | None,
    notes: list[str],
) -> tuple[KnownSetting, ...]:
    """Settings that earlier searches have found for packings of these classes. Notes tell those of classes in `shown`.

    A class that is not shown belongs to other jobs of the run.
    """
    if store is None:
        return ()
    kept = TuningStore(store.folder)
    found = kept.of(classes, device.described, objective)
    notes += kept.notes
    known = [
        KnownSetting(
            each.packing,
            setting_of(each.best or {}, each.default),
            each.slower,
        )
        for each in found
        if len(each.packing) <= lanes
    ]
    told = [each for each in known if each.setting and any(name in shown for lane in each.packing for name in lane)]
    for each in told[:_MOST_REASONS]:
        values = values_words(dict(each.setting))
        jobs = " | ".join(" + ".join(shown.get(name, name) for name in lane) for lane in each.packing)
        notes.append(f"while just {jobs} run, clocks and power are set: {values} (`--control off` sets nothing)")
    return tuple(known)
