"""Finds stored classes by names that a user remembers, and removes all that is stored of them.

Most classes have a profile and iteration counts. A class that was too short to be measured has counts only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePath

from ecoshare.base.plural import counted
from ecoshare.errors import UsageError
from ecoshare.knowledge.calibration_store import CalibrationStore
from ecoshare.knowledge.colocation_store import ColocationStore
from ecoshare.knowledge.gang_time_store import GangTimeStore
from ecoshare.knowledge.iteration_store import ArgumentCounts, IterationStore
from ecoshare.knowledge.profile import Profile
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.knowledge.tuning_store import TuningStore


@dataclass(frozen=True, slots=True)
class StoredClass:
    """A class with all that is stored of it alone.

    Attributes:
        job_class: Name of the class.
        script: Path of its script, or name of its module.
        given: Name of the class in the job file; None if the class follows from the script.
        profile: Profile of the class; None if there is none.
        counts: Iterations of completed jobs, by arguments; empty if no job of the class has completed.
    """

    job_class: str
    script: str
    given: str | None
    profile: Profile | None
    counts: tuple[ArgumentCounts, ...] = ()


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Files that were removed for one class.

    Attributes:
        job_class: Name of the class.
        script: Script or module of the class.
        beside: Number of co-location measurements of groups with this class.
        tuned: Number of files with tuning results of packings with this class.
        counts: Number of iteration counts of completed jobs.
        times: Number of iteration times on single devices.
    """

    job_class: str
    script: str
    beside: int
    tuned: int
    counts: int
    times: int


def stored(profiles: ProfileStore, iterations: IterationStore) -> list[StoredClass]:
    """All classes with a profile, the newest first, then those with iteration counts only, by name."""
    counts = {each.job_class: each for each in iterations.all()}
    found = []
    for profile in profiles.all():
        own = counts.pop(profile.job_class, None)
        origin, numbers = profile.origin, own.counted if own is not None else ()
        found.append(StoredClass(profile.job_class, origin.script, origin.given, profile, numbers))
    rest = (StoredClass(each.job_class, each.script, each.given, None, each.counted) for each in counts.values())
    return [*found, *rest]


def named(name: str, classes: Sequence[StoredClass]) -> list[StoredClass]:
    """The class `name`; else all classes of a script, module or given class of that name.

    Raises:
        UsageError: There is no such class.
    """
    found = [each for each in classes if each.job_class == name] or [
        each for each in classes if name in _other_names(each) or _is_path(name, each.script)
    ]
    if found:
        return found
    known = sorted({word for each in classes for word in (each.job_class, *_other_names(each))})
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`ecoshare profiles list` shows all"
    raise UsageError(f"{name}: no such profile", hint if known else "there are no profiles yet")


def the_one_named(name: str, classes: Sequence[StoredClass]) -> StoredClass:
    """The one class that `named` finds.

    Raises:
        UsageError: There is no such class, or there are several.
    """
    found = named(name, classes)
    if len(found) > 1:
        names = ", ".join(each.job_class for each in found[:5]) + (" and so on" if len(found) > 5 else "")
        several = counted(len(found), "class", "classes")
        raise UsageError(f"{name}: {several} are of this script", f"name one class: {names}")
    return found[0]


def forget(one: StoredClass, store: ProfileStore) -> Forgotten:
    """Remove the profile of a class, its drawing, its co-location speeds, tuning results, iteration counts and times.

    Co-location speeds are ratios to the rate alone, and so are the limits of tuned settings. So they hold no longer
    than the profile of the class.

    Raises:
        UnfitEnvironment: A file cannot be removed.
    """
    beside = ColocationStore(store.folder).forget(one.job_class)
    tuned = TuningStore(store.folder).forget(one.job_class)
    counts = IterationStore(store.folder).forget(one.job_class)
    times = CalibrationStore(store.folder).forget(one.job_class)
    times += GangTimeStore(store.folder).forget(one.job_class)
    store.forget(one.job_class)  # last, so that the class can still be named after an error
    return Forgotten(one.job_class, one.script, beside, tuned, counts, times)


def _other_names(one: StoredClass) -> set[str]:
    script = PurePath(one.script)
    names = {one.script, script.name, script.stem}
    return names | ({one.given} if one.given is not None else set())


def _is_path(name: str, script: str) -> bool:
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        return Path(name).absolute() == Path(script) or os.path.realpath(name) == os.path.realpath(script)
    return False
