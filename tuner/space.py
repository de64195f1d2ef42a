"""Space of the settings that can be tried: a discrete grid of knobs, possibly with holes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Value = float | str
"""Value of a knob: a number, or the name of a special value."""

Setting = Mapping[str, Value]
"""One value for each knob."""


class Role(Enum):
    """Effect of a knob on a device, as the physical prior models it."""

    CORE_CLOCK = "core clock"
    MEMORY_CLOCK = "memory clock"
    POWER_LIMIT = "power limit"
    """Power limit in watts."""
    WORK_SIZE = "work size"
    """Work of one iteration, such as the batch size. Times are then those of a fixed amount of work."""
    OTHER = "other"


@dataclass(frozen=True)
class Knob:
    """One quantity that can be set.

    Attributes:
        values: Positive numbers that the knob takes, in any order.
        special: Named values that are not numbers (`"unlocked"`), each with the number that it is most like.
    """

    name: str
    values: tuple[float, ...]
    role: Role = Role.OTHER
    special: Mapping[str, float] = field(default_factory=dict)

    def number(self, value: Value) -> float:
        """Number of a value: the value itself, or the number that a special value is most like.

        Raises:
            ValueError: The knob does not take the value.
        """
        if isinstance(value, str):
            if value not in self.special:
                raise ValueError(f"{self.name} takes {', '.join(self.special) or 'numbers'}, not {value!r}")
            return float(self.special[value])
        if value not in self.values:
            raise ValueError(
                f"{self.name} cannot be {value}; the nearest is {min(self.values, key=lambda v: abs(v - value))}"
            )
        return float(value)


def bucketised(knob: Knob, most: int) -> Knob:
    """Knob with at most `most` of its numbers: both ends, and numbers at even distances in the sorted list.

    Special values stay, and do not count.

    Raises:
        ValueError: There are fewer than two numbers to keep of a knob with more.
    """
    ordered = sorted(set(knob.values))
    if len(ordered) <= most:
        return knob
    if most < 2:
        raise ValueError(f"{most} values are too few for both ends of {knob.name}")
    return replace(knob, values=tuple(ordered[round(rank)] for rank in np.linspace(0, len(ordered) - 1, most)))


class Space:
    """Knobs, and the list of settings that can be chosen.

    Attributes:
        knobs: Knobs in the order of the columns of `numbers`.
        settings: Settings in the order of the rows of `numbers`.
    """

    def __init__(self, knobs: Sequence[Knob], settings: Iterable[Setting]) -> None:
        """Make a space of the given settings, for example of core clocks that depend on the memory clock.

        Raises:
            ValueError: Two knobs have one name; there is no setting; two settings are equal; or a setting has other
                knobs, or a value that its knob does not take.
        """
        self.knobs = tuple(knobs)
        self.settings: tuple[dict[str, Value], ...] = tuple(dict(setting) for setting in settings)
        names = {knob.name for knob in self.knobs}
        if len(names) != len(self.knobs):
            raise ValueError("two knobs have one name")
        if any(setting.keys() != names for setting in self.settings):
            raise ValueError(f"every setting has one value for each of {', '.join(sorted(names))}")
        self._places = {self._key(setting): place for place, setting in enumerate(self.settings)}
        if len(self._places) != len(self.settings):
            raise ValueError("two settings are equal")
        if not self.settings:
            raise ValueError("a space has at least one setting")
        self.numbers  # noqa: B018, finds a value that its knob does not take now rather than later

    @classmethod
    def product(cls, *knobs: Knob) -> Space:
        """Space of all combinations of the knobs' values, special values included."""
        values: list[tuple[Value, ...]] = [(*knob.values, *knob.special) for knob in knobs]
        names = [knob.name for knob in knobs]
        return cls(knobs, (dict(zip(names, each, strict=True)) for each in itertools.product(*values)))

    def __len__(self) -> int:
        return len(self.settings)

    def index(self, setting: Setting) -> int:
        """Index of a setting in `settings`.

        Raises:
            KeyError: The setting is not in the space.
        """
        return self._places[self._key(setting)]

    @cached_property
    def numbers(self) -> NDArray[np.float64]:  # (n_settings, n_knobs)
        """Settings as numbers; a special value counts as the number that it is most like."""
        rows = [[knob.number(setting[knob.name]) for knob in self.knobs] for setting in self.settings]
        return np.array(rows, dtype=np.float64).reshape(len(self.settings), len(self.knobs))

    @cached_property
    def features(self) -> NDArray[np.float64]:  # (n_settings, n_features)
        """Coordinates for the distance between settings.

        Each knob gives a column of logarithms, scaled to [0, 1] over the knob's range. Each special value adds a column
        of 0 or 0.5, because its effect is only roughly that of its number.
        """
        columns = []
        for place, knob in enumerate(self.knobs):
            logs = np.log(self.numbers[:, place])
            span = float(np.ptp(logs))
            columns.append((logs - logs.min()) / span if span > 0.0 else np.zeros_like(logs))
            for name in knob.special:
                columns.append(np.array([0.5 * (setting[knob.name] == name) for setting in self.settings]))
        return np.stack(columns, axis=1)

    def column(self, role: Role) -> NDArray[np.float64] | None:  # (n_settings,)
        """Numbers of the first knob with a role; None if no knob has the role."""
        for place, knob in enumerate(self.knobs):
            if knob.role is role:
                column: NDArray[np.float64] = self.numbers[:, place]
                return column
        return None

    def _key(self, setting: Setting) -> tuple[Value, ...]:
        return tuple(setting[knob.name] for knob in self.knobs)
