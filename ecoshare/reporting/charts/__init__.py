"""The charts of a report, as matplotlib figures that nobody else has touched."""

from __future__ import annotations

from ecoshare.reporting.charts.energy import energy
from ecoshare.reporting.charts.lanes import lanes
from ecoshare.reporting.charts.look import GRID, GROUND, INK, Chart, looks_of, settings
from ecoshare.reporting.charts.memory import memory
from ecoshare.reporting.charts.power import clocks, power
from ecoshare.reporting.charts.search import search
from ecoshare.reporting.charts.speeds import speeds
from ecoshare.reporting.charts.times import jct, timeline
from ecoshare.reporting.rundata import RunData

__all__ = ["GRID", "GROUND", "INK", "Chart", "charts", "search", "settings", "speeds"]


def charts(data: RunData) -> list[Chart]:
    """All charts, in the order of the report. To be called, and the figures to be written, inside `settings`."""
    looks = looks_of(data.summary["jobs"])
    return [chart(data, looks) for chart in (lanes, jct, energy, power, memory, timeline, clocks)]
