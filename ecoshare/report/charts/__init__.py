"""The charts of a report, as matplotlib figures that nobody else has touched."""

from __future__ import annotations

from ecoshare.report.charts.energy import energy
from ecoshare.report.charts.look import GRID, GROUND, INK, Chart, looks_of, settings
from ecoshare.report.charts.memory import memory
from ecoshare.report.charts.power import clocks, power
from ecoshare.report.charts.search import search
from ecoshare.report.charts.speeds import speeds
from ecoshare.report.charts.times import jct, timeline
from ecoshare.report.rundata import RunData

__all__ = ["GRID", "GROUND", "INK", "Chart", "charts", "search", "settings", "speeds"]


def charts(data: RunData) -> list[Chart]:
    """All charts, in the order of the report. To be called, and the figures to be written, inside `settings`."""
    looks = looks_of(data.summary["jobs"])
    return [chart(data, looks) for chart in (jct, timeline, power, clocks, energy, memory)]
