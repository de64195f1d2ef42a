"""Section with the charts that could not be drawn."""

from __future__ import annotations

from collections.abc import Iterator

from ecoshare.reporting.job_table import ReportInput, ReportSection, fragment

PLACE = 90

_BODY = """\
{% for chart in not_drawn %}
<p class="quiet">{{ chart.title }}: {{ chart.caption }}</p>
{% endfor %}
"""


def sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the reasons why charts are not drawn, if there are any."""
    missing = [chart for chart in report.charts if chart.svg is None]
    if missing:
        yield ReportSection("Not drawn", fragment(_BODY, not_drawn=missing), "not-drawn")
