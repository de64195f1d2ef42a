"""Table of policies that were compared on many traces: medians, and ratios to the first policy on the same trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.text import Text

from ecoshare.base.joules import MODELLED
from ecoshare.base.plural import counted
from ecoshare.jobs.quantities import format_duration, format_energy
from ecoshare.reporting.figures import UNKNOWN, Writer
from ecoshare.reporting.tables.text_table import TableColumn, print_columns, room_of
from ecoshare.simulation.result import Comparison, middle

_GAP = 2

_FIGURES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("mean JCT", "mean_jct_s", format_duration),
    ("p99 JCT", "p99_jct_s", format_duration),
    ("makespan", "makespan_s", format_duration),
    (f"energy,\n{MODELLED}", "energy_j", format_energy),
)
"""Head of the column, key in `SimulationResult.as_dict`, and writer of a value. Less is better in all of them."""


def print_comparison(found: Comparison, console: Console) -> None:
    """Print the table, in pieces below each other if the console is narrow, and what its columns mean."""
    say, first, room = Writer(console), found.policies[0], room_of(console)
    name = TableColumn(Text("policy"), [say.text(policy) for policy in found.policies], is_name=True)
    pieces: list[list[TableColumn]] = []
    for head, key, write in _FIGURES:
        cells = [_median(found.values(policy, key), write) for policy in found.policies]
        columns = [TableColumn(Text(head), [say.text(cell) for cell in cells], right=True)]
        if len(found.policies) > 1:
            ratios = [_ratio(found.ratios(policy, key)) if policy != first else "1" for policy in found.policies]
            columns.append(TableColumn(Text("ratio"), [say.text(cell) for cell in ratios]))
        if not pieces or (room is not None and _width([*pieces[-1], *columns]) > room):
            pieces.append([name])
        pieces[-1] += columns
    for piece in pieces:
        print_columns(piece, console, _GAP)
        console.print()
    seeds = len(found.seeds)
    if seeds > 1:
        say.line(f"Medians of {counted(seeds, 'trace')}, with seeds {found.seeds[0]} to {found.seeds[-1]}.")
    if len(found.policies) > 1:
        spread = " (with its 10th and 90th percentile)" if seeds > 1 else ""
        say.line(f"ratio: median{spread} of the figure over that of {first} on the same trace.")
    say.line(f"{found.power}.")


def _width(columns: Sequence[TableColumn]) -> int:
    return sum(column.width + _GAP for column in columns) - _GAP


def _median(values: list[float] | None, write: Callable[[float], str]) -> str:
    return UNKNOWN if values is None else write(middle(values)[0])


def _ratio(values: list[float] | None) -> str:
    if values is None:
        return UNKNOWN
    mid, low, high = middle(values)
    return f"{mid:.3g}" if len(values) == 1 else f"{mid:.3g} ({low:.3g} to {high:.3g})"
