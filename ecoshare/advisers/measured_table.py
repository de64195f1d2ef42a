"""Measured table: the measurements at each of its settings. A setting that it lacks is an error, never a guess."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ecoshare.advisers.table_columns import ColumnContent, MeasuredColumn, known, pairs
from ecoshare.errors import UsageError

TO_MAXIMUM = (ColumnContent.CORE_CLOCK, ColumnContent.MEMORY_CLOCK, ColumnContent.POWER_LIMIT)
"""Knobs with their largest value as the default."""

Point = tuple[float, ...]
"""One value for each knob, in the order of the knobs."""


@dataclass(frozen=True, slots=True)
class Row:
    """Measurements at one setting.

    Attributes:
        line: Line in the file, from 1.
        power_w: Power (W) of the device.
        times_s: Time (s) in each time column, by the name of the column.
    """

    line: int
    power_w: float
    times_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one workload.

    Attributes:
        file: Name of the file as the user gave it.
        knobs: Columns of the knobs.
        times: Columns of the times.
        rows: Rows by setting, in the order of the file.
        others: Rows of each other workload of the file. Workloads differ in columns that are not used.
    """

    file: str
    knobs: tuple[MeasuredColumn, ...]
    times: tuple[MeasuredColumn, ...]
    rows: Mapping[Point, Row]
    others: tuple[Mapping[Point, Row], ...] = ()

    def at(self, setting: Mapping[str, object]) -> Row:
        """Measurements at a setting.

        Raises:
            LookupError: The table has no row for the setting.
        """
        try:
            return self.rows[tuple(setting[knob.name] for knob in self.knobs)]  # type: ignore[misc]
        except KeyError:
            raise LookupError(f"{self.file} has no row for {self.words(setting)}") from None

    def words(self, setting: Mapping[str, object]) -> str:
        """Setting in the form that `--default` takes."""
        return ",".join(f"{name}={_number(value)}" for name, value in setting.items())

    def setting(self, point: Point) -> dict[str, float]:
        """Setting of a point: its values by the names of the knobs."""
        return {knob.name: value for knob, value in zip(self.knobs, point, strict=True)}

    def default(self, texts: Sequence[str]) -> dict[str, float]:
        """Setting that `--default` names. Clocks and power limits that it leaves out have their largest value.

        Raises:
            UsageError: A knob is unknown or must not be left out, a value is no positive number, or the table has no
                row for the setting.
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
            if knob.name not in named and len(values) > 1 and knob.part not in TO_MAXIMUM:
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
        """Setting of the table with the smallest sum of the absolute logarithms of the ratios of values."""

        def distance(point: Point) -> float:
            return sum(abs(math.log(value / setting[name])) for name, value in self.setting(point).items())

        return self.setting(min(self.rows, key=distance))


def positive(text: str) -> float | None:
    """Positive number that the text holds; None for any other text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0.0 and "_" not in text else None


def _number(value: object) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)
