"""Fluid: devices in proportion to the work that each job has left, or a place on a shared device.

Water filling: the number of GPUs of each trial of a group.

::

    4 GPUs, at most two trials on a GPU          hours   of 4 GPUs   width
      ████████████████  a                          16       2.3        2
      ███████  b                                    7       1.0        1
      ███  c                                        3       0.4        1/2
      ██  d                                         2       0.3        1/2

One rule gives each trial its width: its part of all GPUs is its part of all hours, so that all trials end together. The
width is rounded down to whole GPUs, and is at least the smallest share of one. Source: Yu et al., "Fluid:
Resource-aware Hyperparameter Tuning Engine", MLSys 2021. There `hours` are h, `gpus` n, `share` 1/c and `most` d.

Bound: let the speed of a trial be linear in its width, from `share` to `most`, and let `share` be 1/2 or 1. Let trials
start longest first, each as soon as there is room for its width. Then all end within twice the shortest time possible.
Proof, with A the mean hours for a GPU, and x the hours of a trial / A:

1. A trial of x >= 1 starts at once, since the sum of all floor(x) is at most the number of GPUs. It takes
   x / floor(x) A < 2 A. If it has its largest width, it takes no longer than in any other schedule.
2. A trial of x < 1 that starts at once takes at most 2 x A < 2 A. If it waits, there are as many trials of at least its
   length as there are places, so x < 1/2. All GPUs are busy until it starts, so it starts by A and ends by 2 A.

With a smaller share, step 2 is wrong: two trials of x = 0.9 on two GPUs would take 0.9 / share A. A trial must then get
the time that the other trials of its GPU do not use, as in the turns of a lane.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import ClassVar

from ecoshare.core.policies.common import WithOptions
from ecoshare.core.records import Job, Key

_NEARLY = 1e-9
"""Tolerance in GPUs: a part of 0.9999999999 is 1 with a rounding error."""


def widths(hours: Sequence[float], gpus: int, share: float, most: int | Sequence[int]) -> list[float]:
    """Width of each trial: a whole number of GPUs, or `share` for one of the places on a shared GPU.

    Args:
        hours: Time that each trial still needs alone on one GPU, in any unit.
        gpus: Number of GPUs of all trials together.
        share: Smallest part of a GPU that a trial can have: 1/2 if two trials may share one.
        most: Most GPUs that a trial can use: one number for all trials, or one for each.

    Raises:
        ValueError: There is no GPU, a number is out of its range, or `most` and `hours` differ in length.
    """
    largest = [most] * len(hours) if isinstance(most, int) else list(most)
    if gpus < 1:
        raise ValueError(f"{gpus} GPUs: expected at least 1")
    if not 0.0 < share <= 1.0:
        raise ValueError(f"a smallest share of {share:g}: expected more than 0, and at most 1")
    if len(largest) != len(hours):
        raise ValueError(f"largest widths of {len(largest)} trials, and hours of {len(hours)}")
    for each in hours:
        if not 0.0 <= each < math.inf:
            raise ValueError(f"a trial of {each:g} hours: expected a number from 0")
    for each in largest:
        if each < 1:
            raise ValueError(f"a largest width of {each}: expected at least 1")
    total = math.fsum(hours)
    parts = [gpus * (each / total if total > 0.0 else 1.0 / len(hours)) for each in hours]
    return [min(max(math.floor(part + _NEARLY), share), wide) for part, wide in zip(parts, largest, strict=True)]


def poured(hours: Sequence[float], gpus: int, share: float, most: int | Sequence[int]) -> list[float]:
    """Widths as by `widths`, and the GPUs left over go one by one to the trial that would end last.

    `widths` rounds down: five equal trials on eight GPUs would have one GPU each, and three GPUs would be idle.
    """
    wide = widths(hours, gpus, share, most)
    largest = [most] * len(hours) if isinstance(most, int) else most
    narrow = [place for place, each in enumerate(wide) if each < 1.0]
    left = gpus - int(sum(each for each in wide if each >= 1.0)) - len(narrow)
    if left < 0:
        return wide
    for place in narrow:  # each trial is alone on its GPU
        wide[place] = 1.0
    for _ in range(left):
        able = [place for place, each in enumerate(wide) if each < largest[place] and hours[place] > 0.0]
        if not able:
            break
        wide[max(able, key=lambda place: hours[place] / wide[place])] += 1.0
    return wide


RESTART_S = 10.0


class Fluid(WithOptions):
    """Policy that makes long jobs wide by water filling, so that all jobs end together.

    Source: Yu et al., "Fluid: Resource-aware Hyperparameter Tuning Engine", MLSys 2021. `policies/fluid.py`
    computes the widths, and `elastic_placement.py` chooses the devices of each job. Widths are computed anew
    whenever a job arrives, ends, pauses or is pruned. The need of a job is the profiled time of an iteration alone,
    multiplied by the iterations until the job ends or pauses. A job of unknown need counts as the mean of the others,
    and at least as long as it has run so far.

    Differences from the paper: devices that rounding down leaves over are given away, too. All present jobs are one
    group. The order of the widths follows the lengths. In Fluid's published code the lengths are not sorted, the
    smallest share is 2 devices instead of a half, and arbitrary fractions of widths fill all devices.

    Attributes:
        restart_s: Option `restart`: time (s) that a job loses when it is stopped and started again (10). A job is
            resized only if it gains more.
    """

    name: ClassVar[str] = "fluid"
    preempts: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = ("restart",)

    def __init__(self, options: Mapping[str, float]) -> None:
        self.restart_s = options.get("restart", RESTART_S)

    def order(self, job: Job, at_s: float) -> Key:
        """Longest first. A job of unknown length goes first, because the mean that stands for it may change."""
        needs_s = job.needs_s(at_s)
        return (-math.inf if needs_s is None else -needs_s * job.spec.gpus,)

    def rank(self, job: Job) -> float:
        """Zero: all ranks are equal, and the jobs of a lane take turns."""
        return 0.0

    def needs(self, jobs: Sequence[Job], at_s: float) -> list[float]:
        """Time (s) that each job needs on one device; for a job of unknown need an estimate, see the class."""
        known_s = [job.needs_s(at_s) for job in jobs]
        known = [job.spec.gpus * each for job, each in zip(jobs, known_s, strict=True) if each is not None]
        mean = fmean(known) if known else 1.0
        return [
            job.spec.gpus * each if each is not None else max(mean, job.spec.gpus * job.widening * job.attained_s(at_s))
            for job, each in zip(jobs, known_s, strict=True)
        ]

    def pour(self, needs: Sequence[float], devices: int, share: float, most: Sequence[int]) -> list[float]:
        """Widths of the jobs, in proportion to their needs."""
        return poured(needs, devices, share, most)


class Equal(Fluid):
    """Equal number of devices for every job, or a place on a shared device if there are more jobs than devices.

    Ray Tune's `DistributeResources` divides the GPUs of a cluster like this. The policy is a baseline for `fluid`.
    """

    name: ClassVar[str] = "equal"

    def pour(self, needs: Sequence[float], devices: int, share: float, most: Sequence[int]) -> list[float]:
        """Widths of the jobs, as if all had equal needs."""
        return poured([1.0] * len(needs), devices, share, most)
