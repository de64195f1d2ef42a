"""Section with the settings that the run applied."""

from __future__ import annotations

from collections.abc import Iterator

from ecoshare.record.setting_history import setting_words
from ecoshare.reporting.job_table import ReportInput, ReportSection, fragment

PLACE = 80

_BODY = """\
{% if budget %}
<p>{{ budget }}</p>
{% endif %}
{% for setting in settings %}
<p>{{ setting }}</p>
{% else %}
<p class="quiet">Nothing was set: clocks and power limit stayed as they were found.</p>
{% endfor %}
"""


def sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the settings."""
    settings = [setting_words(each) for each in report.summary.settings]
    budget = report.summary.power_budget
    words = budget.words if budget is not None else ""
    yield ReportSection("Settings", fragment(_BODY, settings=settings, budget=words), "settings")
