"""Search space: the settings of a device that a search looks at, few enough to look at all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tuner import Knob, Prior, Role, Space, bucketised

__all__ = ["MOST_VALUES", "Prior", "Space", "knob_of", "space_of"]
"""The runtime takes the types of the tuner from here: no module outside of `advisers` imports `tuner`."""

_ROLES = {
    "gpu_clock": Role.CORE_CLOCK,
    "memory_clock": Role.MEMORY_CLOCK,
    "power_limit": Role.POWER_LIMIT,
    "cpu_frequency": Role.CORE_CLOCK,
    "cpu_power_limit": Role.POWER_LIMIT,
}

MOST_VALUES = 24
"""Most values of one knob: neighbours among the hundred clocks of a GPU differ by less than can be measured."""


MOST_SETTINGS = 1_500
"""Most combinations of all values: a search looks at each of them, in time and memory that grow with their number."""

_LEAST_VALUES = 3


def knob_of(name: str, values: Sequence[float], special: Mapping[str, float], beside: bool = False) -> Knob:
    """Hardware knob for the tuner, with the role that tells what the knob does.

    Args:
        name: Name of the knob.
        values: Numbers that the knob takes; none if its values have names only.
        special: Special values, such as "unlocked", each with the number that it is most like.
        beside: Whether the knob belongs to the processors beside the device that runs the jobs.
    """
    return Knob(name, tuple(values), Role.OTHER if beside else _ROLES.get(name, Role.OTHER), special)


def space_of(knobs: Sequence[Knob], allows: Callable[[Mapping[str, float | str]], bool]) -> Space:
    """Space of all allowed settings of the knobs, with at most `MOST_VALUES` numbers of each knob.

    More knobs get fewer numbers each, until there are at most `MOST_SETTINGS` combinations.

    Args:
        knobs: The knobs.
        allows: Whether the values of a setting go together.
    """
    most = MOST_VALUES
    while _combinations(fewer := [bucketised(knob, most) for knob in knobs]) > MOST_SETTINGS and most > _LEAST_VALUES:
        most -= 1
    return Space(fewer, [setting for setting in Space.product(*fewer).settings if allows(setting)])


def _combinations(knobs: Sequence[Knob]) -> int:
    return math.prod(len(knob.values) + len(knob.special) for knob in knobs)
