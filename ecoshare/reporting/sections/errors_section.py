"""Section with the errors of jobs that did not complete."""

from __future__ import annotations

from collections.abc import Iterator

from ecoshare.reporting.report_section import ReportInput, ReportSection, fragment

PLACE = 60

_BODY = """\
{% for name, error in errors %}
<p><strong>{{ name }}</strong></p>
<pre>{{ error }}</pre>
{% endfor %}
"""


def sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the errors, if there are any."""
    errors = [(job.name, job.error) for job in report.jobs if job.error and job.state != "pruned"]
    if errors:
        yield ReportSection("What did not complete, and why", fragment(_BODY, errors=errors), "errors")
