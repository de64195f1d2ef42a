"""Power adviser: how fast a packing is, and what its device draws, under each power limit.

The tuner's process is conditioned on the measurements of the packing, each under another limit. Before any, the mean of
its physical model answers. Both drivers use this module, the live one and the simulator.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ecoshare.base.class_profile import POWER_LIMIT, LimitMeasurement, PowerPoint, PowerResponse
from ecoshare.core.commands import AskPower
from tuner import POWER, Evaluation, ExpectedResponses, Knob, Role, Space

_MOST_KEPT = 64


def respond(command: AskPower) -> PowerResponse:
    """Expected response of a packing to the limits of its device.

    Measurements agree with the response up to their noise. The speed never falls, and the power never exceeds the
    limit, as a limit works.
    """
    classes = sorted({name for lane in command.packing for name in lane})
    times = tuple(f"time {number}" for number in range(len(classes)))
    evaluations = [_evaluation(each, command.limits_w, classes) for each in command.measurements]
    expected = _responses(command.limits_w, times).given(evaluations)
    speeds = np.mean([expected[name][-1] / expected[name] for name in times], axis=0)
    speeds = np.minimum(1.0, np.maximum.accumulate(speeds))
    drawn_w = np.minimum(np.maximum.accumulate(expected[POWER]), command.limits_w)
    points = zip(command.limits_w, speeds, drawn_w, strict=True)
    return tuple(PowerPoint(limit_w, float(speed), float(power_w)) for limit_w, speed, power_w in points)


def _evaluation(found: LimitMeasurement, limits_w: tuple[float, ...], classes: list[str]) -> Evaluation:
    """Measurement for the tuner, at the limit nearest to that of the measurement."""
    limit_w = min(limits_w, key=lambda each: abs(each - found.limit_w))
    times_s = dict(found.times_s)
    times = {f"time {number}": times_s[name] for number, name in enumerate(classes)}
    return Evaluation({POWER_LIMIT: limit_w}, {POWER: found.power_w, **times})


@lru_cache(_MOST_KEPT)
def _responses(limits_w: tuple[float, ...], times: tuple[str, ...]) -> ExpectedResponses:
    """Expectation before any measurement; it takes a tenth of a second to make."""
    space = Space.product(Knob(POWER_LIMIT, limits_w, Role.POWER_LIMIT))
    return ExpectedResponses(space, {POWER_LIMIT: limits_w[-1]}, times)
