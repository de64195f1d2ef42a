"""Sections with the charts of the run, one each."""

from __future__ import annotations

from collections.abc import Iterator

from ecoshare.reporting.job_table import ReportInput, ReportSection, chart_body
from ecoshare.reporting.sections.lanes_section import KEY

PLACE = 40


def sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the charts that are drawn; the lanes have a section of their own, further up."""
    for chart in report.charts:
        if chart.key != KEY and chart.svg is not None:
            yield ReportSection(chart.title, chart_body(chart), chart.key)
