"""Section with the notes of the plan."""

from __future__ import annotations

from collections.abc import Iterator

from ecoshare.reporting.job_table import ReportInput, ReportSection, fragment

PLACE = 70

_BODY = """\
{% for note in notes %}
<p>{{ note | with_code }}</p>
{% else %}
<p class="quiet">None.</p>
{% endfor %}
"""


def sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the notes."""
    yield ReportSection("Notes", fragment(_BODY, notes=report.summary.notes), "notes")
