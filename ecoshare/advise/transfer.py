"""What earlier searches on a device say of a packing that is new: the prior of its search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ecoshare.advise.yardstick import Job, observable
from tuner import Prior, Setting, Space, Status, Trial, transferred
from tuner.objective import POWER

_FEWEST = 2
"""Settings at which a class was tried: one alone says nothing of how it responds."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """A job class that was tuned alone.

    Attributes:
        trials: Setting, watts, seconds an iteration, and whether the trial was stopped early.
    """

    job_class: str
    trials: Sequence[tuple[Setting, float, float, bool]]


def prior_from(
    space: Space,
    default: Setting,
    jobs: Sequence[Job],
    classes: Mapping[str, str],
    earlier: Sequence[Earlier],
    seed: int = 0,
) -> Prior | None:
    """The prior of a packing whose jobs take turns in one lane; None where nothing is known that helps.

    Args:
        classes: Of the jobs, by name.
        earlier: On this device. Trials at settings that are not in the space are left out.
    """
    own: dict[str, int] = {}
    known: list[list[Trial]] = []
    for each in earlier:
        trials = [
            Trial(
                setting,
                {POWER: power_w, "time_s": time_s},
                Status.CENSORED if stopped else Status.MEASURED,
            )
            for setting, power_w, time_s, stopped in each.trials
            if _is_in(space, setting)
        ]
        tried = {space.index(trial.setting) for trial in trials}
        if len(tried) < _FEWEST or space.index(default) not in tried:
            continue
        own.update({observable(job.name): len(known) for job in jobs if classes[job.name] == each.job_class})
        known.append(trials)
    if not known:
        return None
    return transferred(space, [observable(job.name) for job in jobs], default, known, own, seed)


def _is_in(space: Space, setting: Setting) -> bool:
    try:
        space.index(setting)
    except KeyError:
        return False
    return True
