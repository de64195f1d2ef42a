"""Section with the jobs that did not complete: the reason, and the end of the logs of those that failed."""

from __future__ import annotations

from collections.abc import Iterator

from ecoshare.common.plural import counted
from ecoshare.record.logs_and_metrics import MOST_FAILURES, failures
from ecoshare.reporting.job_table import ReportInput, ReportSection, fragment

PLACE = 22

_FEW = 3
"""Most failures of which the first log is in sight. Others fold out."""

_BODY = """\
{% if left_out %}
<p class="quiet">These are {{ failures | length }} of {{ all }}: failed jobs first, and of these one for each reason. <code>ecoshare export --format csv</code> has the reasons of all.</p>
{% endif %}
{% for job, logs in failures %}
<p class="failure"><strong>{{ job.name }}</strong> <span class="quiet">{{ job.state }}{% if job.exit_code is not none %}, exit code {{ job.exit_code }}{% endif %}</span></p>
<pre>{{ job.error }}</pre>
{% for log in logs %}
<details{% if in_sight and loop.first %} open{% endif %}><summary>{{ "All" if log.is_whole else "End" }} of {{ log.file }} of {{ job.name }}</summary>
<pre>{{ log.lines | join("\n") }}</pre>
</details>
{% endfor %}
{% endfor %}
"""  # noqa: E501


def sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the failures, if there are any."""
    found = failures(report.summary)
    if found:
        shown, logs = found[:MOST_FAILURES], report.data.output.log_ends
        body = fragment(
            _BODY,
            failures=[(job, logs.get(job.name, [])) for job in shown],
            in_sight=len(logs) <= _FEW,
            left_out=len(found) > len(shown),
            all=counted(len(found), "job"),
        )
        yield ReportSection("What did not complete, and why", body, "errors", is_table=True)
