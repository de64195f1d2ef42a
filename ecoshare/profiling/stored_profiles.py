"""Looks profiles up by what a user remembers of them, and forgets them with all that was measured beside them."""

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
    """What was removed of one class.

    Attributes:
        beside: Measurements of groups of neighbours with this class.
        tuned: Results of searches for packings with this class.
    """

    job_class: str
    script: str
    beside: int
    tuned: int


def named(name: str, profiles: Sequence[Profile]) -> list[Profile]:
    """The profile of the class `name`; else those of a script, module or given class of that name, at least one.

    Raises:
        UsageError: There is none.
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
    """As `named`, where just one is meant.

    Raises:
        UsageError: There is none, or there are several.
    """
    found = named(name, profiles)
    if len(found) > 1:
        classes = ", ".join(each.job_class for each in found[:5]) + (" and so on" if len(found) > 5 else "")
        raise UsageError(f"{name}: {len(found)} profiles are of this script", f"name one class: {classes}")
    return found[0]


def forget(profile: Profile, store: ProfileStore) -> Forgotten:
    """Remove a profile, its drawing, and what was measured of its class beside other classes.

    Speeds beside others are ratios to the rate alone, and limits of tuned settings as well. So they hold no longer than
    the profile of the class.

    Raises:
        UnfitEnvironment: A file cannot be removed.
    """
    beside = ColocationStore(store.folder).forget(profile.job_class)
    tuned = TuningStore(store.folder).forget(profile.job_class)
    store.forget(profile.job_class)  # last: after an error the class can be named again
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
