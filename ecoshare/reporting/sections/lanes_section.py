"""Section with the lanes and their jobs over time."""

from __future__ import annotations

from collections.abc import Iterator

from ecoshare.reporting.job_table import ReportInput, ReportSection, chart_body

PLACE = 10

KEY = "lanes"


def sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the chart of the lanes, if it is drawn."""
    for chart in report.charts:
        if chart.key == KEY and chart.svg is not None:
            yield ReportSection(chart.title, chart_body(chart), chart.key)
