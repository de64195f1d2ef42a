"""A measured table: what was measured at each of its settings. One that it lacks is an error, never a guess."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ecoshare.advisers.table_columns import ColumnContent, MeasuredColumn, known, pairs
from ecoshare.errors import UsageError

_TO_MAXIMUM = (ColumnContent.CORE_CLOCK, ColumnContent.MEMORY_CLOCK, ColumnContent.POWER_LIMIT)
"""Knobs whose default is their largest value."""

Point = tuple[float, ...]
"""A value for each knob, in their order."""


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured at one setting.

    Attributes:
        line: In the file.
        times_s: By the name of the column.
    """

    line: int
    power_w: float
    times_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of one workload.

    Attributes:
        file: As the user named it.
        rows: By setting, in the order of the file.
        others: The rows of the file's other workloads: those that differ in columns that are not used.
    """

    file: str
    knobs: tuple[MeasuredColumn, ...]
    times: tuple[MeasuredColumn, ...]
    rows: Mapping[Point, Row]
    others: tuple[Mapping[Point, Row], ...] = ()

    def at(self, setting: Mapping[str, object]) -> Row:
        """What was measured at a setting.

        Raises:
            LookupError: The table has no such row.
        """
        try:
            return self.rows[tuple(setting[knob.name] for knob in self.knobs)]  # type: ignore[misc]
        except KeyError:
            raise LookupError(f"{self.file} has no row for {self.words(setting)}") from None

    def words(self, setting: Mapping[str, object]) -> str:
        """A setting as `--default` takes it."""
        return ",".join(f"{name}={_number(value)}" for name, value in setting.items())

    def setting(self, point: Point) -> dict[str, float]:
        """A point with the names of its knobs."""
        return {knob.name: value for knob, value in zip(self.knobs, point, strict=True)}

    def default(self, texts: Sequence[str]) -> dict[str, float]:
        """The setting that `--default` names; clocks and power limits that it leaves out are at their largest.

        Raises:
            UsageError: A knob that is none or is left out, a value that is no number, a setting without a row.
        """
        named: dict[str, float] = {}
        for name, text in pairs(texts, "--default", "KNOB=NUMBER", "power_limit=300"):
            known(name, [knob.name for knob in self.knobs], "--default", "the knob")
            value = positive(text.removesuffix(next(knob.unit for knob in self.knobs if knob.name == name)))
            if value is None:
                raise UsageError(f"--default {name}={text}: expected a positive number")
            named[name] = value
        for place, knob in enumerate(self.knobs):
            values = sorted({point[place] for point in self.rows})
            if knob.name not in named and len(values) > 1 and knob.part not in _TO_MAXIMUM:
                shown = ", ".join(map(_number, values[:12])) + (", ..." if len(values) > 12 else "")
                raise UsageError(
                    f"what is the default of {knob.name}? It is one of {shown}", f"add --default {knob.name}=NUMBER"
                )
            named.setdefault(knob.name, values[-1])
        setting = {knob.name: named[knob.name] for knob in self.knobs}
        try:
            self.at(setting)
        except LookupError as error:
            raise UsageError(str(error), f"the nearest is --default {self.words(self._nearest(setting))}") from None
        return setting

    def _nearest(self, setting: Mapping[str, float]) -> dict[str, float]:
        """The setting of the table that is closest in the sum of the ratios."""

        def distance(point: Point) -> float:
            return sum(abs(math.log(value / setting[name])) for name, value in self.setting(point).items())

        return self.setting(min(self.rows, key=distance))


def positive(text: str) -> float | None:
    """A positive number; None for anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0.0 and "_" not in text else None


def _number(value: object) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)
