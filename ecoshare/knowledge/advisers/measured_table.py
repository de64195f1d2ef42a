"""Measured table: the measurements at each of its settings. A setting that it lacks is an error, never a guess."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from statistics import median

from ecoshare.base.plural import counted
from ecoshare.errors import InvalidJobFile, Mistake, UsageError
from ecoshare.knowledge.advisers.delimited import MOST_MISTAKES, begin_of, lines_of, quoted
from ecoshare.knowledge.advisers.table_columns import (
    ColumnContent,
    MeasuredColumn,
    known,
    not_a_time,
    pairs,
    parse_columns,
)

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


MOST_SETTINGS = 5000
_MOST_BYTES = 256 << 20

RISES = 1.2
"""Ratio of a column at the largest clock or power limit of a table to that at the smallest, from which the column holds
no times. Times of twelve workloads (ml-energy/zeus) have medians of 1.003 at most, and single ones reach 1.14. A rate
that hardly depends on the knob is below it, too: only its name can tell it."""

_Record = tuple[int, list[str]]
"""Line in which a record begins, from 1, and its cells."""


def read(file: Path, columns: Sequence[str], where: Sequence[str] = ()) -> Table:
    """Table of the rows that `where` picks.

    Args:
        file: The CSV file.
        columns: Values of `--columns`; see `table_columns.py`.
        where: Conditions `COLUMN=VALUE` on the rows.

    Raises:
        UsageError: The file cannot be read or is empty, an option names something that the file does not have, or too
            few or too many settings are left.
        InvalidJobFile: The file has mistakes; each is given with line and column.
    """
    lines = lines_of(file, "a table is a CSV file", (_MOST_BYTES, "keep the rows of one workload"))
    first_line = next((line for line in lines if line.strip()), "")
    delimiter = max(",;\t", key=first_line.count)
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    records: list[_Record] = []
    before = 0
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                records.append((before + 1, cells))
            before = reader.line_num
    except csv.Error as error:
        raise InvalidJobFile(str(file), [Mistake(max(reader.line_num, 1), 1, "", str(error))]) from error
    if not records:
        raise UsageError(f"{file} is empty", "a table has a line of column names, then a line for each setting")
    first, names = records.pop(0)
    header = [name.strip() for name in names]
    ragged = [
        Mistake(line, 1, "", f"{counted(len(cells), 'cell')}, where the first line has {len(header)}")
        for line, cells in records
        if len(cells) != len(header)
    ]
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if ragged or twice:
        mistakes = [Mistake(first, 1, "", f"two columns are named {name!r}") for name in twice]
        raise InvalidJobFile(str(file), (mistakes + ragged)[:MOST_MISTAKES])
    used = parse_columns(columns, header)
    chosen = _chosen(records, header, where)
    reading = _Reading(str(file), header, used, lines, delimiter)
    rows = reading.rows(chosen)
    knobs = tuple(column for column in used if column.is_knob)
    if len(rows) < 2:
        raise UsageError(
            f"{file}: one setting is left, and there is nothing to search", "leave a condition of --where out"
        )
    if len(rows) > MOST_SETTINGS:
        raise UsageError(f"{file}: {len(rows)} settings; a search takes {MOST_SETTINGS}", "narrow it with --where")
    times = tuple(column for column in used if column.part is ColumnContent.TIME)
    for column in times:
        _check_time(column.name, knobs, rows, header)
    return Table(str(file), knobs, times, rows, reading.others(records, chosen))


def _check_time(name: str, knobs: Sequence[MeasuredColumn], rows: Mapping[Point, Row], header: Sequence[str]) -> None:
    """Check that a column of times does not hold rates, such as iterations a second.

    Raises:
        UsageError: The column is far larger at the largest clock or power limit than at the smallest.
    """
    for place, knob in enumerate(knobs):
        if knob.part not in TO_MAXIMUM:
            continue
        groups: dict[Point, list[Point]] = {}
        for point in rows:
            groups.setdefault((*point[:place], *point[place + 1 :]), []).append(point)
        ends = [(min(each, key=itemgetter(place)), max(each, key=itemgetter(place))) for each in groups.values()]
        risen = [rows[most].times_s[name] / rows[least].times_s[name] for least, most in ends if least != most]
        if risen and median(risen) > RISES:
            why = f"at the largest {knob.name} it is {median(risen):.2g} times what it is at the smallest, as a rate is"
            raise not_a_time(name, why, header)


class _Reading:
    """Reader that turns cells into numbers."""

    def __init__(
        self, file: str, header: list[str], used: list[MeasuredColumn], lines: list[str], delimiter: str
    ) -> None:
        self.file, self.header, self.used, self.lines, self.delimiter = file, header, used, lines, delimiter
        self.knobs = [column for column in used if column.is_knob]
        names = {column.name for column in used}
        self.unused = [place for place, name in enumerate(header) if name not in names]

    def rows(self, records: Sequence[_Record]) -> dict[Point, Row]:
        """Rows by setting.

        Raises:
            InvalidJobFile: A cell is no positive number, or a setting has two rows.
        """
        mistakes: list[Mistake] = []
        rows: dict[Point, Row] = {}
        twice: list[tuple[int, int]] = []
        for line, cells in records:
            numbers = {}
            for column in self.used:
                place = self.header.index(column.name)
                value = positive(cells[place])
                if value is None:
                    what = f"expected a positive number, got {quoted(cells[place])}"
                    mistakes.append(Mistake(*self._place(line, place), column.name, what))
                else:
                    numbers[column] = value * column.factor
            if len(numbers) < len(self.used):
                continue
            point = tuple(numbers[knob] for knob in self.knobs)
            times = {column.name: numbers[column] for column in self.used if column.part is ColumnContent.TIME}
            power_w = next(numbers[column] for column in self.used if column.part is ColumnContent.POWER)
            if point in rows:
                twice.append((rows[point].line, line))
            else:
                rows[point] = Row(line, power_w, times)
        if mistakes:
            rest = len(mistakes) - MOST_MISTAKES
            hint = f"and {rest} more" if rest > 0 else "--where leaves rows out"
            raise InvalidJobFile(self.file, mistakes[:MOST_MISTAKES], hint)
        if twice:
            more = f", and {counted(len(twice) - 1, 'more such row')}" if len(twice) > 1 else ""
            first, line = twice[0]
            mistake = Mistake(line, 1, "", f"the same setting as in line {first}{more}")
            raise InvalidJobFile(self.file, [mistake], self._how_to_part(dict(records), twice))
        return rows

    def others(self, records: Sequence[_Record], chosen: Sequence[_Record]) -> tuple[dict[Point, Row], ...]:
        """Rows of each other workload. The unused columns that are constant in the chosen rows tell workloads apart."""
        keys = [place for place in self.unused if len({cells[place] for _, cells in chosen}) == 1]
        groups: dict[tuple[str, ...], list[_Record]] = {}
        for record in records:
            groups.setdefault(tuple(record[1][place] for place in keys), []).append(record)
        groups.pop(tuple(chosen[0][1][place] for place in keys))
        found = []
        for group in groups.values():
            try:
                found.append(self.rows(group))
            except InvalidJobFile:
                continue  # the user did not ask for this workload: a mistake in it leaves it out
        return tuple(found)

    def _how_to_part(self, records: Mapping[int, list[str]], twice: Sequence[tuple[int, int]]) -> str:
        """Hint that names the columns in which rows of one setting differ."""
        ways = {
            place: sum(records[first][place] != records[line][place] for first, line in twice) for place in self.unused
        }
        for place in (place for place, count in ways.items() if count == len(twice)):
            values = dict.fromkeys(records[line][place].strip() for pair in twice for line in pair)
            shown = ", ".join(list(values)[:6]) + (", ..." if len(values) > 6 else "")
            return f"choose with --where {self.header[place]}=VALUE, one of {shown}"
        names = ", ".join(self.header[place] for place, count in ways.items() if count)
        by = f"such rows differ in {names}: choose with --where, or " if names else ""
        return f"{by}name another knob in --columns, or keep one row a setting"

    def _place(self, line: int, cell: int) -> tuple[int, int]:
        """Line and column, both from 1, at which a cell begins. The record of the cell begins at `line`."""
        rest = (self.lines[row] for row in range(line - 1, len(self.lines)))
        below, column = begin_of(rest, cell, self.delimiter)
        return line + below, column


def _chosen(records: Sequence[_Record], header: Sequence[str], where: Sequence[str]) -> list[_Record]:
    """Records that `--where` picks."""
    chosen = list(records)
    for name, wanted in pairs(where, "--where", "COLUMN=VALUE", "network=resnet50"):
        place = header.index(known(name, header, "--where", "the column"))
        there = dict.fromkeys(cells[place].strip() for _, cells in chosen)
        number = positive(wanted)
        equal = {value for value in there if value == wanted or (number is not None and positive(value) == number)}
        if not equal:
            known(wanted, there, f"--where {name}={wanted}", "the value")
        chosen = [record for record in chosen if record[1][place].strip() in equal]
    return chosen
