"""Finds profiles by names that a user remembers, and removes them with all measurements that depend on them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePath

from ecoshare.errors import UsageError
from ecoshare.profiling.colocation_store import ColocationStore
from ecoshare.profiling.profile import Profile
from ecoshare.profiling.profile_store import ProfileStore
from ecoshare.profiling.tuning_store import TuningStore


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Files that were removed for one class.

    Attributes:
        job_class: Name of the class.
        script: Script or module of the class.
        beside: Number of co-location measurements of groups with this class.
        tuned: Number of files with tuning results of packings with this class.
    """

    job_class: str
    script: str
    beside: int
    tuned: int


def named(name: str, profiles: Sequence[Profile]) -> list[Profile]:
    """Profile of the class `name`; else all profiles of a script, module or given class of that name.

    Raises:
        UsageError: There is no such profile.
    """
    found = [each for each in profiles if each.job_class == name] or [
        each for each in profiles if name in _other_names(each) or _is_path(name, each.origin.script)
    ]
    if found:
        return found
    known = sorted({word for each in profiles for word in (each.job_class, *_other_names(each))})
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`ecoshare profiles list` shows all"
    raise UsageError(f"{name}: no such profile", hint if known else "there are no profiles yet")


def the_one_named(name: str, profiles: Sequence[Profile]) -> Profile:
    """The one profile that `named` finds.

    Raises:
        UsageError: There is no such profile, or there are several.
    """
    found = named(name, profiles)
    if len(found) > 1:
        classes = ", ".join(each.job_class for each in found[:5]) + (" and so on" if len(found) > 5 else "")
        raise UsageError(f"{name}: {len(found)} profiles are of this script", f"name one class: {classes}")
    return found[0]


def forget(profile: Profile, store: ProfileStore) -> Forgotten:
    """Remove a profile, its drawing, and the co-location speeds and tuning results of its class.

    Co-location speeds are ratios to the rate alone, and so are the limits of tuned settings. So they hold no longer
    than the profile of the class.

    Raises:
        UnfitEnvironment: A file cannot be removed.
    """
    beside = ColocationStore(store.folder).forget(profile.job_class)
    tuned = TuningStore(store.folder).forget(profile.job_class)
    store.forget(profile.job_class)  # last, so that the class can still be named after an error
    return Forgotten(profile.job_class, profile.origin.script, beside, tuned)


def _other_names(profile: Profile) -> set[str]:
    origin = profile.origin
    script = PurePath(origin.script)
    names = {origin.script, script.name, script.stem}
    return names | ({origin.given} if origin.given is not None else set())


def _is_path(name: str, script: str) -> bool:
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        return Path(name).absolute() == Path(script) or os.path.realpath(name) == os.path.realpath(script)
    return False
