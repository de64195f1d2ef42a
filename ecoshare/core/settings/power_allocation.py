"""Allocation of a power budget to devices: the limits under which the work costs least.

::

    limit of each device      least  least  least        the sum is below the budget
    the best raise per watt   least  220 W  least        its cost falls most for each watt that it takes
    ...                       150 W  220 W  180 W        until no raise pays, or none fits
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, log

from ecoshare.base.class_profile import PowerResponse

Cost = Callable[[float, float, float], float]
"""Cost per work of all devices together, from the sum of the jobs' relative speeds, the worth of the work that they do
per second, and the power (W) that the devices draw. It is infinite if no work is done."""

TOLERANCE_W = 1e-6
"""Excess (W) of a sum of limits that is an error of rounding."""


@dataclass(frozen=True, slots=True)
class PoweredDevice:
    """A device that gets a part of the budget.

    Attributes:
        response: Response of its packing, the lowest limit first. A device without jobs has one point.
        jobs: Number of jobs at work at once: its lanes with jobs.
        worth: Worth of the work that its jobs do per second under the largest limit, in the unit of the objective.
    """

    response: PowerResponse
    jobs: float = 0.0
    worth: float = 0.0


def allocate(devices: Sequence[PoweredDevice], budget_w: float, cost: Cost) -> list[float]:
    """Limit (W) of each device. If even the least limits exceed the budget, each device gets its least limit.

    Each step takes the raise of one device, to any of its limits, that lowers the logarithm of the cost most for each
    watt. The result is the best one if each response bends down; responses do, except for errors of measurement.
    """
    places = [0] * len(devices)
    left_w = budget_w - sum(each.response[0].limit_w for each in devices)
    speeds, worth, drawn_w = _sums(devices, places)
    now = cost(speeds, worth, drawn_w)
    while True:
        best: tuple[float, int, int] | None = None
        for number, device in enumerate(devices):
            here = device.response[places[number]]
            for place in range(places[number] + 1, len(device.response)):
                point = device.response[place]
                more_w = point.limit_w - here.limit_w
                if more_w > left_w + TOLERANCE_W:
                    break
                faster = point.speed - here.speed
                then = cost(
                    speeds + device.jobs * faster,
                    worth + device.worth * faster,
                    drawn_w + point.power_w - here.power_w,
                )
                gain = _gain(now, then) / more_w
                if gain > 0.0 and (best is None or gain > best[0]):
                    best = gain, number, place
        if best is None:
            return [device.response[place].limit_w for device, place in zip(devices, places, strict=True)]
        _, number, place = best
        left_w -= devices[number].response[place].limit_w - devices[number].response[places[number]].limit_w
        places[number] = place
        speeds, worth, drawn_w = _sums(devices, places)
        now = cost(speeds, worth, drawn_w)


def cost_at(devices: Sequence[PoweredDevice], limits_w: Sequence[float], cost: Cost) -> float:
    """Cost under these limits, each of them a limit of its device's response or between two of them.

    A limit between two points counts as the lower one.
    """
    places = []
    for device, limit_w in zip(devices, limits_w, strict=True):
        below = sum(point.limit_w <= limit_w + TOLERANCE_W for point in device.response)
        places.append(max(0, below - 1))
    return cost(*_sums(devices, places))


def _sums(devices: Sequence[PoweredDevice], places: Sequence[int]) -> tuple[float, float, float]:
    """Sums of the relative speeds, of the worth of the work per second, and of the power (W)."""
    points = [device.response[place] for device, place in zip(devices, places, strict=True)]
    both = list(zip(devices, points, strict=True))
    speeds = sum(device.jobs * point.speed for device, point in both)
    worth = sum(device.worth * point.speed for device, point in both)
    return speeds, worth, sum(point.power_w for point in points)


def _gain(before: float, after: float) -> float:
    """Fall of the logarithm of the cost."""
    if after == inf:
        return 0.0
    return inf if before == inf else log(before / after)
