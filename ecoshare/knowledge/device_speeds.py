"""Relative speeds of the devices of one model, from the times that iterations of the same classes took on them.

::

    own_dc    median of the kept times of class c on device d           (s)
    typical_c median of own_dc over the devices that have class c       (s), two devices at least
    r_dc      log(typical_c / own_dc)
    v_dc      variance of log(own_dc)
    e_dc      standard error of r_dc, for a typical time of n devices:  sqrt((1 - 1/n)^2 v_dc + sum_others v / n^2)
    speed_dc  exp(r_dc t^2 / (t^2 + e_dc^2))   if |r_dc| > 2 e_dc, else 1        t = 0.05
    speed_d   geometric mean of speed_dc over the classes of device d             the class ""

The variance is that of a median of m times, each with the standard deviation s::

    v_dc = s^2 k / m          k = 1 for m <= 2, else pi / 2 (the median of many is less sure than their mean)
    s    = the largest of: the floor, 0.01 for a GPU and 0.05 for a partition of the processors; the spread of the kept
           times of d and c around their median; the median of these spreads over all devices and classes; the mean
           error within the measurements of d and c

A difference below two standard errors counts as none, so that noise alone does not order the devices. Larger ones are
shrunk towards 1, as the mean of a normal prior with the standard deviation t and a measurement with the error e. The
value of t follows Sinha et al., "Not All GPUs Are Created Equal", SC 2022: GPUs of one model vary by 8 % on average.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

ANY = ""
"""Class that stands for all classes without a speed of their own, as in `Device.speeds`."""

COMPUTE, MEMORY = "(compute)", "(memory)"
"""Classes of the built-in loads. No job class can have such a name: it begins with a letter, a digit or `_`."""

PRIOR_SD = 0.05
"""Standard deviation of the logarithm of a device's speed, before anything is measured."""

FLOOR = 0.01
"""Least standard deviation of one measurement: temperature and clocks differ from run to run."""

PARTITION_FLOOR = 0.05
"""The same for a partition of the processors: caches, memory and the clock are shared with all other programs."""

_LEAST = 1e-4
"""Least relative speed: no device is told to do nothing."""

_ERRORS = 2.0
"""Number of standard errors above which a difference counts."""

Times = Sequence[tuple[float, float]]
"""Measurements of a class on a device: time (s) of an iteration, and standard error / time; 0 if it is unknown."""


@dataclass(frozen=True, slots=True)
class RelativeSpeed:
    """Relative speed of a class on a device.

    Attributes:
        speed: Rate on this device / rate on a typical device of its model.
        standard_error: Standard error of the logarithm of the speed as measured.
        seconds: Time (s) of an iteration on this device; None for the class "".
    """

    speed: float
    standard_error: float
    seconds: float | None = None


def device_speeds(
    times: Mapping[str, Mapping[str, Times]], floor: float = FLOOR
) -> dict[str, dict[str, RelativeSpeed]]:
    """Relative speed of each device and class, with the class "" for all other classes.

    Classes that one device has alone are left out, and so are devices without any other class.

    Args:
        times: Measurements by device and class, at least one of each. All devices are of one model.
        floor: Least standard deviation of one measurement.
    """
    spreads = [_spread(each) for classes in times.values() for each in classes.values() if len(each) > 1]
    usual = median(spreads) if spreads else 0.0
    own_s = {
        device: {job_class: median(seconds for seconds, _ in each) for job_class, each in classes.items()}
        for device, classes in times.items()
    }
    found: dict[str, dict[str, RelativeSpeed]] = {device: {} for device in times}
    for job_class in dict.fromkeys(job_class for classes in times.values() for job_class in classes):
        known_s = {device: classes[job_class] for device, classes in own_s.items() if job_class in classes}
        if len(known_s) < 2:
            continue
        typical_s = median(known_s.values())
        variances = {device: _variance(times[device][job_class], max(floor, usual)) for device in known_s}
        for device, seconds in known_s.items():
            error = _error(variances[device], sum(variances.values()), len(known_s))
            found[device][job_class] = _speed(seconds, typical_s, error)
    return {device: {ANY: _overall(list(speeds.values())), **speeds} for device, speeds in found.items() if speeds}


def _variance(times: Times, least: float) -> float:
    deviation = max(least, _spread(times), fmean(error for _, error in times))
    return deviation**2 * (1.0 if len(times) <= 2 else math.pi / 2.0) / len(times)


def _error(variance: float, all_variances: float, devices: int) -> float:
    """Standard error of log(typical / own), as if the typical time were the mean over the devices."""
    own = (1.0 - 1.0 / devices) ** 2 * variance
    return math.sqrt(own + (all_variances - variance) / devices**2)


def _speed(own_s: float, typical_s: float, error: float) -> RelativeSpeed:
    ratio = math.log(typical_s / own_s)
    kept = PRIOR_SD**2 / (PRIOR_SD**2 + error**2) if abs(ratio) > _ERRORS * error else 0.0
    return RelativeSpeed(max(_LEAST, round(math.exp(ratio * kept), 4)), error, own_s)


def _overall(speeds: Sequence[RelativeSpeed]) -> RelativeSpeed:
    speed = math.exp(fmean(math.log(each.speed) for each in speeds))
    error = math.sqrt(sum(each.standard_error**2 for each in speeds)) / len(speeds)
    return RelativeSpeed(round(speed, 4), error)


def _spread(times: Times) -> float:
    """Standard deviation of the logarithms of times around their median; 0 for a single time."""
    if len(times) < 2:
        return 0.0
    logarithms = [math.log(seconds) for seconds, _ in times]
    middle = median(logarithms)
    return math.sqrt(sum((each - middle) ** 2 for each in logarithms) / (len(times) - 1))
