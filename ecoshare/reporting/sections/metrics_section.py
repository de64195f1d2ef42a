"""Section with the metrics that jobs report, as curves."""

from __future__ import annotations

from collections.abc import Iterator

from ecoshare.common.plural import counted
from ecoshare.jobs.quantities import number
from ecoshare.record.logs_and_metrics import MetricCurves
from ecoshare.reporting import charts
from ecoshare.reporting.charts.look import inline_svg
from ecoshare.reporting.job_table import ReportInput, ReportSection, fragment
from ecoshare.reporting.result_tables import metric_name

PLACE = 35

_BODY = """\
<p class="quiet">Values that jobs gave to <code>ecoshare.report</code>{% if has_sweeps %}, or that trials printed{% endif %}, in their order.{% if more %} {{ more }} that fewer jobs have {{ "is" if more.startswith("1 ") else "are" }} left out.{% endif %}</p>
{% for chart, svg in drawn %}
<h3>{{ chart.title }}</h3>
<figure>{% if chart.caption %}<figcaption>{{ chart.caption }}</figcaption>{% endif %}

{{ svg }}
</figure>
{% endfor %}
{% for line in words %}
<p>{{ line }}</p>
{% endfor %}
"""  # noqa: E501


def sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the curves of the metrics; nothing if no job has any."""
    output = report.data.output
    if not output.metrics:
        return
    drawn, words = [], []
    for place, each in enumerate(output.metrics):
        if max((curve.count for curve in each.curves), default=0) < 2:
            words.append(_words(each))
            continue
        with charts.settings("report"):
            chart = charts.metric(report.data, each, place)
        if (svg := inline_svg(chart)) is None:
            words.append(f"{chart.title}: {chart.caption}")
        else:
            drawn.append((chart, svg))
    body = fragment(
        _BODY,
        drawn=drawn,
        words=words,
        has_sweeps=bool(report.summary.sweeps),
        more=counted(output.more_metrics, "metric") if output.more_metrics else "",
    )
    yield ReportSection("Metrics", body, "metrics", is_table=True)


def _words(metric: MetricCurves) -> str:
    """A metric of which each job has a single value."""
    told = ", ".join(f"{each.job} {number(each.values[-1])}" for each in metric.curves if each.values)
    more = f", and {counted(metric.left_out, 'more job')}" if metric.left_out else ""
    return f"{metric_name(metric.name)}, one value of each job: {told}{more}."
