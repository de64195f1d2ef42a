"""Table of simulations: one row for each policy, one column for each figure, in a unit that suits the column."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ecoshare.base.joules import MODELLED
from ecoshare.jobs.quantities import SECONDS_BY_UNIT, format_duration, format_energy, number
from ecoshare.reporting.figures import UNKNOWN, Writer
from ecoshare.reporting.tables.result_tables import service_columns
from ecoshare.reporting.tables.text_table import TableColumn, middle, print_columns, room_of
from ecoshare.simulation.power_source import Power
from ecoshare.simulation.result import UNFAIR, SimulationResult

_MEANINGS = (
    f"rho: JCT over what an equal share of the cluster would give; unfair beyond {UNFAIR:g}.",
    f"A unit of work is a device-second of work that was asked for; joules are {MODELLED}.",
)
"""Explanations for which the column heads have no room."""

_JOULES_BY_UNIT = {"mJ": 1e-3, "J": 1.0, "kJ": 1e3, "kWh": 3.6e6, "MWh": 3.6e9, "GWh": 3.6e12}
_TIMES = {"": 1.0, "thousand": 1e3, "million": 1e6}
_MOST = 9999.5
"""Limit of a column with one unit. If the largest value reaches it, each cell has a unit of its own."""

_MOST_PLAIN = 99_999.5
"""Limit up to which counts and ratios are written out in full."""

_MOST_DIGITS = 5

_GAP, _WIDEST_NAME = 2, 28

Values = Sequence[float | None]
Written = tuple[str, list[str]]
"""Unit and cells of a column."""


@dataclass(frozen=True, slots=True)
class PolicyFigure:
    """One figure, such as the mean JCT, for all policies.

    Attributes:
        head: Heading, in two lines.
        unit: Unit of all cells; empty if there is none, or if each cell has its own.
        cells: One cell for each policy, in their order; `-` for a figure that is not known.
        best: Indices of the best cells; empty if all known cells read alike.
    """

    head: tuple[str, str]
    unit: str
    cells: tuple[str, ...]
    best: frozenset[int]

    @property
    def lines(self) -> tuple[str, str, str]:
        """Lines of the heading: head and unit."""
        return (*self.head, self.unit)

    @property
    def width(self) -> int:
        """Width of the column, in terminal cells."""
        return max(map(cell_len, (*self.lines, *self.cells)))


def policy_figures(results: Sequence[SimulationResult], walls_s: Sequence[float]) -> list[PolicyFigure]:
    """The figures of the results, in the order of the table's columns.

    Args:
        walls_s: Wall time (s) of each simulation.
    """
    rows: list[dict[str, Any]] = [
        {**result.as_dict(), "wall_s": wall_s} for result, wall_s in zip(results, walls_s, strict=True)
    ]
    found = []
    for head, key, write, sign in _FIGURES:
        values = [row[key] for row in rows]
        unit, cells = write(values)
        known = [place for place, value in enumerate(values) if value is not None]
        top = cells[min(known, key=lambda place: sign * values[place])] if known else ""
        best = frozenset(place for place in known if cells[place] == top)
        found.append(PolicyFigure(head, unit, tuple(cells), best if len(best) < len(known) else frozenset()))
    return found


def print_simulations(
    results: Sequence[SimulationResult], walls_s: Sequence[float], console: Console, power: Power
) -> None:
    """Print the table in one piece if the console is wide enough, else in several pieces below each other.

    Args:
        walls_s: Wall time (s) of each simulation.
        power: Device that prices the joules.
    """
    say = Writer(console)
    room = room_of(console)
    names = [say.text(result.policy) for result in results]
    if room is not None:
        names = [middle(name, _WIDEST_NAME) for name in names]
    first = TableColumn(Text("policy"), names, is_name=True)
    for piece in _pieces(policy_figures(results, walls_s), None if room is None else room - first.width):
        print_columns([first, *(_column(figure, say) for figure in piece)], console, _GAP)
        console.print()
    _print_services(results, console, say)
    for line in (*_MEANINGS, f"{power.words}."):
        say.line(line)


def _print_services(results: Sequence[SimulationResult], console: Console, say: Writer) -> None:
    """Print a line for each service under each policy; nothing if there are none."""
    rows = [(say.text(result.policy), each.name, each.service) for result in results for each in result.services]
    services = [(name, service) for _, name, service in rows if service is not None]
    if not services:
        return
    columns = service_columns(services)
    if len(results) > 1:
        columns.insert(1, TableColumn(Text("policy"), [policy for policy, _, _ in rows]))
    print_columns(columns, console, _GAP)
    console.print()


def _column(figure: PolicyFigure, say: Writer) -> TableColumn:
    cells = [say.text(cell, "bold" if row in figure.best else "") for row, cell in enumerate(figure.cells)]
    return TableColumn(Text("\n".join(figure.lines).rstrip()), cells, right=True)


def _pieces(found: list[PolicyFigure], room: int | None) -> list[list[PolicyFigure]]:
    """The figures in as few pieces of about equal length as fit beside the names; in one piece if `room` is None."""
    if room is None:
        return [found]
    pieces: list[list[PolicyFigure]] = []
    for count in range(1, len(found) + 1):
        ends = [len(found) * place // count for place in range(count + 1)]
        pieces = [found[begin:end] for begin, end in itertools.pairwise(ends)]
        if all(sum(_GAP + figure.width for figure in piece) <= room for piece in pieces):
            break
    return pieces


def _in_units(factors: Mapping[str, float], base: str, own: Callable[[float], str], values: Values) -> Written:
    """Unit and cells of a column: the largest unit in which no value is below 0.5, if all values fit it.

    Otherwise each cell has a unit of its own.

    Args:
        factors: Factor of each unit, ascending.
        base: Unit of a column without values.
        own: Function that writes a value with a unit of its own.
    """
    known = [value for value in values if value]
    if not known:
        return base, _decimal(values, 1.0)
    fitting = [unit for unit, factor in factors.items() if 0.5 * factor <= min(known)]
    unit = fitting[-1] if fitting else next(iter(factors))
    if max(known) / factors[unit] >= _MOST:
        return "", [UNKNOWN if value is None else own(value) for value in values]
    return unit, _decimal(values, factors[unit])


def _plain(values: Values) -> Written:
    """Unit and cells of ratios or counts; in thousands or millions only if they would be too long otherwise."""
    largest = max((value for value in values if value), default=0.0)
    unit = next((unit for unit, factor in _TIMES.items() if largest < _MOST_PLAIN * factor), "million")
    return unit, _decimal(values, _TIMES[unit])


def _percent(values: Values) -> Written:
    return "%", _decimal(values, 0.01, 1)


def _decimal(values: Values, factor: float, decimals: int | None = None) -> list[str]:
    """Values with equally many decimals, so that they compare down the column, unless they lie too far apart.

    Args:
        decimals: Number of decimals; None for the number that gives the smallest value three digits.
    """
    known = [abs(value) / factor for value in values if value]
    if decimals is None and all(isinstance(value, int) for value in values if value is not None) and factor == 1.0:
        decimals = 0
    if decimals is None:
        decimals = min(3, max(0, 2 - _power(min(known, default=1.0))))
        if len(f"{max(known, default=1.0):.{decimals}f}".replace(".", "")) > _MOST_DIGITS:
            return [UNKNOWN if value is None else number(value / factor) for value in values]
    least = 10.0**-decimals
    shown = []
    for value in values:
        if value is None:
            shown.append(UNKNOWN)
        elif value == 0.0:
            shown.append("0")
        elif 0.0 < value / factor < 0.5 * least:  # few of very many, but not none
            shown.append(f"< {least:g}")
        else:
            shown.append(f"{value / factor:.{decimals}f}")
    return shown


def _power(value: float) -> int:
    """Exponent of the largest power of ten that is not above `value`."""
    return math.floor(math.log10(value))


_duration = partial(_in_units, SECONDS_BY_UNIT, "s", format_duration)
_energy = partial(_in_units, _JOULES_BY_UNIT, "J", format_energy)


def _modelled(values: Values) -> Written:
    """Unit and cells of joules. The line of the unit also says how they are known."""
    unit, cells = _energy(values)
    return f"{unit} {MODELLED}".lstrip(), cells


_FIGURES: tuple[tuple[tuple[str, str], str, Callable[[Values], Written], int], ...] = (
    (("mean", "JCT"), "mean_jct_s", _duration, 1),
    (("median", "JCT"), "median_jct_s", _duration, 1),
    (("p95", "JCT"), "p95_jct_s", _duration, 1),
    (("p99", "JCT"), "p99_jct_s", _duration, 1),
    (("", "makespan"), "makespan_s", _duration, 1),
    (("mean", "queueing"), "mean_queue_s", _duration, 1),
    (("worst", "rho"), "worst_rho", _plain, 1),
    (("unfair", f"> {UNFAIR:g}"), "unfair", _percent, 1),
    (("preemp-", "tions"), "preemptions", _plain, 1),
    (("utili-", "sation"), "utilisation", _percent, -1),
    (("", "energy"), "energy_j", _modelled, 1),
    (("energy a", "unit of work"), "energy_per_work_j", _modelled, 1),
    (("wall", "time"), "wall_s", _duration, 1),
)
"""Head, key in `SimulationResult.as_dict`, writer of the column, and 1 if less is better or -1 if more is."""
