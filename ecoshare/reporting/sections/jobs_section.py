"""Section with the table of all jobs."""

from __future__ import annotations

from collections.abc import Iterator

from ecoshare.jobs.schema import SLOWDOWN
from ecoshare.reporting.job_table import LESSER, ReportInput, ReportSection, fragment, job_table, left_out_words

PLACE = 20

_BODY = """\
{% macro job_rows(rows, columns) %}
<colgroup>{% for column in columns %}<col class="{{ "lesser" if column in lesser else "wider" if column in ("job", "energy") else "" }}">{% endfor %}</colgroup>
<thead><tr>{% for column in columns %}<th scope="col"{% if column in lesser %} class="lesser"{% endif %}>{{ column }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in rows %}
<tr>{% for column in columns %}{% set value = row[column] %}{% if loop.first %}<th scope="row">{{ value }}</th>{% else %}<td class="{{ "lesser " if column in lesser else "" }}{{ "failed" if value in ("failed", "broken") else "quiet" if not_known in value else "" }}">{{ value }}</td>{% endif %}{% endfor %}</tr>
{% endfor %}
</tbody>
{% endmacro %}
{% if jobs.first %}
<p class="quiet">{{ slowdown }} Iterations are those of the last attempt.{% if jobs.sorted %} Jobs that did not complete come first.{% endif %}{% if left_out %} {{ left_out | with_code }}{% endif %}</p>
<table class="fit jobs">
{{ job_rows(jobs.first, jobs.columns) }}
</table>
{% if jobs.more %}
<details><summary>Show the other {{ jobs.more | length }} jobs</summary>
<table class="fit jobs">
{{ job_rows(jobs.more, jobs.columns) }}
</table>
</details>
{% endif %}
<details><summary>Every column: class, attempts, arrival, start, finish, limits, waits, joules per iteration</summary>
<p class="quiet">Times count from the opening of the run.</p>
<div class="wide" tabindex="0" role="region" aria-label="All jobs"><table>
<thead><tr>{% for column in jobs.details[0] %}<th scope="col">{{ column }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in jobs.details %}
<tr>{% for value in row.values() %}{% if loop.first %}<th scope="row">{{ value }}</th>{% else %}<td{% if value in ("failed", "broken") %} class="failed"{% elif not_known in value %} class="quiet"{% endif %}>{{ value }}</td>{% endif %}{% endfor %}</tr>
{% endfor %}
</tbody>
</table></div>
</details>
{% else %}
<p class="quiet">There are none.</p>
{% endif %}
"""  # noqa: E501


def sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the table of the jobs that the report shows."""
    body = fragment(
        _BODY,
        jobs=job_table(report.jobs),
        slowdown=SLOWDOWN,
        lesser=LESSER,
        left_out=left_out_words(report.summary, report.jobs),
    )
    yield ReportSection("All jobs", body, "jobs", is_table=True)
