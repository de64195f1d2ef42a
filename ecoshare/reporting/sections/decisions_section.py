"""Section with the packings of the run, and what became of them."""

from __future__ import annotations

from collections.abc import Iterator

from ecoshare.reporting import charts
from ecoshare.reporting.charts.look import inline_svg
from ecoshare.reporting.decision_table import decision_rows
from ecoshare.reporting.job_table import ReportInput, ReportSection, fragment
from ecoshare.reporting.run_table import verdicts

PLACE = 50

_BODY = """\
{% for line in decisions.verdicts %}
<p>{{ line | with_code }}</p>
{% endfor %}
{% if decisions.rows %}
<p class="quiet">Which jobs ran beside each other, in the order in which that first happened. A speed is that over the class alone, a line for each class; it is measured by a trial, or else from the progress of the whole time. <code>ecoshare explain</code> tells why each job waited, shared or ran alone.{% if decisions.left_out %} {{ decisions.left_out }} that ran shorter are left out; <code>summary.json</code> has all.{% endif %}</p>
<table class="fit">
<thead><tr>{% for column in decisions.rows[0] %}<th scope="col">{{ column }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in decisions.rows %}
{% set height = row["jobs"] | length %}
{% for place in range(height) %}
<tr{% if place < height - 1 %} class="on"{% endif %}>{% for name, lines in row.items() %}{% if lines | length == height %}<{{ 'th scope="row"' | safe if name == "jobs" else "td" }}{% if name == "ran for" %} class="brief"{% elif lines[place] == not_known %} class="quiet"{% endif %}>{{ lines[place] }}</{{ "th" if name == "jobs" else "td" }}>{% elif place == 0 %}<td rowspan="{{ height }}"{% if name == "ran for" %} class="brief"{% endif %}>{{ lines[0] }}</td>{% endif %}{% endfor %}</tr>
{% endfor %}
{% endfor %}
</tbody>
</table>
{% if decisions.svg is not none %}
<figure><figcaption>{{ decisions.caption }}</figcaption>
{{ decisions.svg }}
</figure>
{% endif %}
{% else %}
<p class="quiet">Nothing is known of which jobs ran beside each other.</p>
{% endif %}
"""  # noqa: E501


def sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the table and the chart of the packings, and the verdicts on the run."""
    with charts.settings("report"):
        chart = charts.speeds(report.data)
    rows, left_out = decision_rows(report.summary)
    shown = {
        "verdicts": verdicts(report.summary),
        "rows": rows,
        "left_out": left_out,
        "svg": inline_svg(chart),
        "caption": chart.caption,
    }
    yield ReportSection("Decisions", fragment(_BODY, decisions=shown), "decisions", is_table=True)
