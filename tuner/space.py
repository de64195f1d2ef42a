"""The settings that can be tried: a discrete grid of knobs, possibly with holes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Value = float | str
"""Of a knob: a number, or the name of a special value."""

Setting = Mapping[str, Value]
"""One value for each knob."""


class Role(Enum):
    """What a knob does to a device, as far as the physical prior knows."""

    CORE_CLOCK = "core clock"
    MEMORY_CLOCK = "memory clock"
    POWER_LIMIT = "power limit"
    """In watts."""
    WORK_SIZE = "work size"
    """Work done by one iteration, where times are those of a fixed amount of work: a batch size."""
    OTHER = "other"


@dataclass(frozen=True)
class Knob:
    """Something that can be set.

    Attributes:
        values: Numbers that it takes, in any order; positive.
        special: Values that are no number (`"unlocked"`), with the number that each is most like.
    """

    name: str
    values: tuple[float, ...]
    role: Role = Role.OTHER
    special: Mapping[str, float] = field(default_factory=dict)

    def number(self, value: Value) -> float:
        """The number that stands for a value.

        Raises:
            ValueError: The knob does not take it.
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


class Space:
    """Knobs, and the list of settings that can be chosen.

    Attributes:
        knobs: Knobs in the order of the columns of `numbers`.
        settings: Settings in the order of the rows of `numbers`.
    """

    def __init__(self, knobs: Sequence[Knob], settings: Iterable[Setting]) -> None:
        """A space of the settings given, such as those of clock lists that differ by memory clock.

        Raises:
            ValueError: A setting lacks a knob or has a value that its knob does not take; two are equal; there is none.
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
        self.numbers  # noqa: B018, since a value that no knob takes is to be found now

    @classmethod
    def product(cls, *knobs: Knob) -> Space:
        """Every combination of the knobs' values, special ones included."""
        values: list[tuple[Value, ...]] = [(*knob.values, *knob.special) for knob in knobs]
        names = [knob.name for knob in knobs]
        return cls(knobs, (dict(zip(names, each, strict=True)) for each in itertools.product(*values)))

    def __len__(self) -> int:
        return len(self.settings)

    def index(self, setting: Setting) -> int:
        """The place of a setting.

        Raises:
            KeyError: It is not in the space.
        """
        return self._places[self._key(setting)]

    @cached_property
    def numbers(self) -> NDArray[np.float64]:  # (n_settings, n_knobs)
        """The settings as numbers, special values as what they are most like."""
        rows = [[knob.number(setting[knob.name]) for knob in self.knobs] for setting in self.settings]
        return np.array(rows, dtype=np.float64).reshape(len(self.settings), len(self.knobs))

    @cached_property
    def features(self) -> NDArray[np.float64]:  # (n_settings, n_features)
        """Coordinates in which distance means difference: logarithms over each knob's range, and a column of 0 or 1
        for each special value, since what it does is only about what its number would do."""
        columns = []
        for place, knob in enumerate(self.knobs):
            logs = np.log(self.numbers[:, place])
            span = float(np.ptp(logs))
            columns.append((logs - logs.min()) / span if span > 0.0 else np.zeros_like(logs))
            for name in knob.special:
                columns.append(np.array([0.5 * (setting[knob.name] == name) for setting in self.settings]))
        return np.stack(columns, axis=1)

    def column(self, role: Role) -> NDArray[np.float64] | None:  # (n_settings,)
        """The numbers of the first knob with a role; None where there is none."""
        for place, knob in enumerate(self.knobs):
            if knob.role is role:
                column: NDArray[np.float64] = self.numbers[:, place]
                return column
        return None

    def _key(self, setting: Setting) -> tuple[Value, ...]:
        return tuple(setting[knob.name] for knob in self.knobs)
