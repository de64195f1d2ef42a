"""Parts that charts share: axes with one row for each job, time axes, legends, tips, areas and units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator, NullFormatter

from ecoshare.reporting.charts.look import Look
from ecoshare.reporting.charts.time_columns import Array, steps

WIDTH_IN = 9.0
ROW_IN = 0.24
_WIDE = 100.0
"""Ratio of largest to smallest value above which an axis of values is logarithmic."""
_TICKS_S = (0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


def figure_of(height_in: float) -> tuple[Figure, Axes]:
    """A figure as wide as the page, with one `Axes`."""
    figure = Figure((WIDTH_IN, height_in), layout="constrained")
    return figure, figure.add_subplot()


def bars_of(looks: Sequence[Look]) -> tuple[Figure, Axes]:
    """A figure for horizontal bars, with a row for each look, the first on top."""
    figure, axes = figure_of(len(looks) * ROW_IN + 0.6)
    name_rows(axes, [look.label for look in looks])
    axes.grid(axis="x")
    return figure, axes


def name_rows(axes: Axes, labels: list[str]) -> None:
    """Set up rows from the top, with their labels on the left; long labels are cut."""
    axes.set_yticks(range(len(labels)), [label if len(label) <= 34 else label[:33] + "…" for label in labels])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(labels) - 0.45, -0.55)


def add_legend(figure: Figure, handles: Sequence[Any]) -> None:
    """Add a legend below the axes, and make the figure higher by its height."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), int(140 / (longest + 7))))
    rows = -(-len(handles) // columns)
    figure.set_figheight(figure.get_figheight() + 0.17 * rows + 0.1)
    figure.legend(handles=list(handles), loc="outside lower left", ncols=columns, handlelength=1.6, columnspacing=1.4)


def label_bar(axes: Axes, value: float, row: int, words: str) -> None:
    """Write words right of the end of a bar. An offset makes the gap, since browsers drop leading blanks of a text."""
    axes.annotate(words, (value, row), (4.0, 0.0), textcoords="offset points", va="center", annotation_clip=False)


def add_tip(artist: Any, key: str, words: str, tips: dict[str, str]) -> None:
    """Give an artist the id `key`, and store the words that a browser shows over it in `tips`."""
    artist.set_gid(key)
    tips[key] = words


def time_axis(axes: Axes, label: str) -> None:
    """Set ticks at round times, in seconds, min:s or h:min, depending on the length of the axis."""
    length_s = axes.get_xlim()[1] - axes.get_xlim()[0]
    step_s = next((step for step in _TICKS_S if length_s / step <= 10), 86400 * math.ceil(length_s / 864000))
    axes.xaxis.set_major_locator(MultipleLocator(step_s))
    if length_s < 120:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda at_s, _: f"{at_s:.10g}"))
        unit = "s"
    elif length_s < 7200:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda at_s, _: f"{at_s // 60:.0f}:{at_s % 60:02.0f}"))
        unit = "min:s"
    else:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda at_s, _: f"{at_s // 3600:.0f}:{at_s % 3600 / 60:02.0f}"))
        unit = "h:min"
    axes.set_xlabel(f"{label}, {unit}")


def scale_values(axes: Axes, values: Sequence[float]) -> None:
    """Make the axis of values logarithmic if they are positive and differ much."""
    if values and min(values) > 0 and max(values) > _WIDE * min(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def fill_area(axes: Axes, edges: Array, low: Array, high: Array, **style: Any) -> None:
    """Fill the area between two staircases over the same edges."""
    x, below, above = steps(edges, low, high)
    axes.fill_between(x, below, above, **style)


def energy_unit(value_j: float) -> tuple[float, str]:
    """Size in joules and name of the unit that suits the value."""
    return next(
        pair for pair in ((3.6e6, "kWh"), (1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (0.0, "J")) if value_j >= pair[0]
    )


def byte_unit(value: float) -> tuple[float, str]:
    """Size in bytes and name of the unit that suits the value."""
    return next(pair for pair in ((2.0**30, "GiB"), (2.0**20, "MiB"), (1.0, "B"), (0.0, "B")) if value >= pair[0])
