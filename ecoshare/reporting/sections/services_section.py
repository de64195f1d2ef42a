"""Sections with the table of the services, and the latencies of each over time."""

from __future__ import annotations

from collections.abc import Iterator

from ecoshare.record.results.job_summary import JobSummary
from ecoshare.reporting import charts
from ecoshare.reporting.charts.look import inline_svg
from ecoshare.reporting.job_table import DrawnChart, ReportInput, ReportSection, chart_body, fragment
from ecoshare.reporting.result_tables import service_rows

PLACE = 25

_MOST_DRAWN = 8
_LESSER = ("p50", "p90", "p99.9", "goodput", "mean batch")
"""Columns that a narrow page drops."""

_BODY = """\
<p class="quiet">Latencies run from the arrival of a request to its answer. Goodput: answers in time a second, from the first request on.{% if left_out %} Drawn are the {{ drawn }} services that kept their targets worst.{% endif %}</p>
<table class="fit">
<thead><tr>{% for column in rows[0] %}<th scope="col"{% if column in lesser %} class="lesser"{% endif %}>{{ column }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in rows %}
<tr>{% for column, value in row.items() %}{% if loop.first %}<th scope="row">{{ value }}</th>{% else %}<td class="{{ "lesser" if column in lesser else "" }}{{ "" if loop.last else " brief" }}{{ " failed" if column == "p99" and row["service"] in missed else " quiet" if value == not_known else "" }}">{{ value }}</td>{% endif %}{% endfor %}</tr>
{% endfor %}
</tbody>
</table>
{% for words in not_drawn %}
<p class="quiet">{{ words }}</p>
{% endfor %}
"""  # noqa: E501


def sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the table of the services, and a section with the chart of each, or of those that were late most often."""
    services = [job for job in report.summary.jobs if job.service is not None]
    if not services:
        return
    shown = {job.name for job in sorted(services, key=_kept_share)[:_MOST_DRAWN]}
    with charts.settings("report"):
        found = [charts.service(report.data, job) for job in services if job.name in shown]
    drawn = [DrawnChart(each.key, each.title, each.caption, svg) for each in found if (svg := inline_svg(each))]
    body = fragment(
        _BODY,
        rows=service_rows(services),
        lesser=_LESSER,
        missed={job.name for job in services if job.service is not None and job.service.met is False},
        drawn=len(shown),
        left_out=len(shown) < len(services),
        not_drawn=[f"{each.title}: {each.caption}" for each in found if each.figure is None],
    )
    yield ReportSection("Services", body, "services", is_table=True)
    for each in drawn:
        yield ReportSection(each.title, chart_body(each), each.key)


def _kept_share(job: JobSummary) -> float:
    """Part of the requests that were answered in time; 1 without requests."""
    told = job.service
    return 1.0 if told is None or not told.arrived else (told.answered - told.late) / told.arrived
