"""The settings of a device that a search looks at: few enough to look at all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tuner import Knob, Role, Space, bucketised

_ROLES = {
    "gpu_clock": Role.CORE_CLOCK,
    "memory_clock": Role.MEMORY_CLOCK,
    "power_limit": Role.POWER_LIMIT,
    "cpu_frequency": Role.CORE_CLOCK,
    "cpu_power_limit": Role.POWER_LIMIT,
}

MOST_VALUES = 24
"""Of one knob: neighbours among the hundred clocks of a GPU differ by less than what can be measured."""


def knob_of(name: str, values: Sequence[float], special: Mapping[str, float]) -> Knob:
    """A hardware knob for the tuner, which knows by its role what it does."""
    return Knob(name, tuple(values), _ROLES[name], special)


def space_of(knobs: Sequence[Knob], allows: Callable[[Mapping[str, float | str]], bool]) -> Space:
    """All settings of the knobs whose values go together.

    Args:
        allows: Whether they do.
    """
    fewer = [bucketised(knob, MOST_VALUES) for knob in knobs]
    return Space(fewer, [setting for setting in Space.product(*fewer).settings if allows(setting)])
