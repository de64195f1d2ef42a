"""The charts of a report, as matplotlib figures that do not use pyplot or the user's settings."""

from __future__ import annotations

from ecoshare.record.run_data import RunData
from ecoshare.reporting.charts.lane_chart import lanes
from ecoshare.reporting.charts.look import GRID, GROUND, INK, Chart, looks_of, settings
from ecoshare.reporting.charts.memory_chart import memory
from ecoshare.reporting.charts.run_charts import clocks, energy, jct, metric, power, search, speeds, timeline
from ecoshare.reporting.charts.service_chart import service

__all__ = ["GRID", "GROUND", "INK", "Chart", "charts", "metric", "search", "service", "settings", "speeds"]


def charts(data: RunData) -> list[Chart]:
    """All charts, in the order of the report. Call it, and save the figures, inside `settings`."""
    looks = looks_of(data.summary.jobs)
    return [
        *(chart(data, looks) for chart in (lanes, jct, energy)),
        *(power(data, looks, device) for device in data.devices),
        *(chart(data, looks) for chart in (memory, timeline)),
        *(clocks(data, device) for device in data.devices),
    ]
