"""Chart of expected and measured speeds of jobs that ran beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.lines import Line2D

from ecoshare.record.results.packing_summary import PackingSummary
from ecoshare.record.run_data import RunData
from ecoshare.reporting.charts.axes import ROW_IN, add_legend, figure_of, name_rows
from ecoshare.reporting.charts.look import GRID, HUES, INK, Chart
from ecoshare.reporting.figures import short_class

_KEY, _TITLE = "speeds", "Speeds beside each other"
_MOST_ROWS = 40
_MEASURED = HUES[0]

_Row = tuple[str, float, float]
"""Label of a class beside others, expected speed, measured speed."""


def speeds(data: RunData) -> Chart:
    """Chart of the relative speed of each class in each packing: expected when the packing first ran, and measured."""
    classes = {job.name: job.job_class for job in data.summary.jobs}
    shared = len(set(map(short_class, classes.values()))) < len(set(classes.values()))
    rows = [row for each in data.summary.packings for row in _rows(each, classes if shared else {})]
    if not rows:
        return Chart(_KEY, _TITLE, "No packing of several jobs was measured.")
    shown = rows[:_MOST_ROWS]
    figure, axes = figure_of(len(shown) * ROW_IN + 0.75)
    name_rows(axes, [label for label, _, _ in shown])
    axes.grid(axis="x")
    for place, (_, expected, measured) in enumerate(shown):
        axes.plot([expected, measured], [place, place], color=GRID, linewidth=2.0, zorder=1)
    style: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 6}
    places = range(len(shown))
    axes.plot([each[1] for each in shown], places, markerfacecolor="none", markeredgecolor=INK, **style)
    axes.plot([each[2] for each in shown], places, color=_MEASURED, **style)
    axes.axvline(1.0, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set_xlim(0.0, 1.05 * max(1.0, *(max(each[1:]) for each in shown)))
    axes.set_xlabel("speed, over that alone at the default setting")
    ring = Line2D([], [], markerfacecolor="none", markeredgecolor=INK, label="expected", **style)
    add_legend(figure, [ring, Line2D([], [], color=_MEASURED, label="measured", **style)])
    caption = "Each class beside the others of its packing: expected when that first ran, and measured then."
    caption += f" Of {len(rows)} the first {len(shown)}." if len(rows) > len(shown) else ""
    words = "; ".join(
        f"{label}: expected {expected:.2f}, measured {measured:.2f}" for label, expected, measured in shown
    )
    return Chart(_KEY, _TITLE, caption, f"Expected and measured speeds: {words}.", figure)


def _rows(packing: PackingSummary, classes: Mapping[str, str]) -> list[_Row]:
    """Rows of one packing.

    Args:
        classes: Class of each job, to name classes by their first job if short class names are ambiguous; else empty.
    """
    jobs = {classes[job]: job for job in reversed(packing.jobs) if job in classes}
    names = [name for lane in packing.classes for name in lane]
    if packing.predicted is None or packing.measured is None or len(names) < 2:
        return []
    expected, measured = packing.predicted.speeds, packing.measured.speeds
    found = []
    for name in dict.fromkeys(names):
        others = list(names)
        others.remove(name)
        if name in expected and name in measured:
            label = f"{_named(name, jobs)} beside {', '.join(_named(other, jobs) for other in others)}"
            found.append((label, expected[name], measured[name]))
    return found


def _named(name: str, jobs: Mapping[str, str]) -> str:
    return jobs.get(name, short_class(name))
