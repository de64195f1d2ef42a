"""Sections with the trials of each sweep over time, and the best trials."""

from __future__ import annotations

from collections.abc import Iterator

from ecoshare.jobs.quantities import format_duration, number
from ecoshare.record.results.sweep_summary import BestTrial, ConfigurationResult, SweepSummary
from ecoshare.reporting import charts
from ecoshare.reporting.charts.look import inline_svg
from ecoshare.reporting.job_table import NOT_KNOWN, ReportInput, ReportSection, energy_words, fragment
from ecoshare.reporting.result_tables import metric_name, words

PLACE = 30

_BODY = """\
{% for line in sweep.words %}
<p>{{ line }}</p>
{% endfor %}
{% if sweep.svg is none %}
<p class="quiet">{{ sweep.caption }}</p>
{% else %}
<figure><figcaption>{{ sweep.caption }}</figcaption>
{{ sweep.svg }}
</figure>
{% endif %}
{% for what, rows in sweep.tables if rows %}
<p class="quiet">The best {{ what }}; <code>ecoshare export --format csv</code> gives all trials.</p>
<div class="wide" tabindex="0" role="region" aria-label="Best {{ what }}"><table>
<thead><tr>{% for column, _ in rows[0] %}<th scope="col">{{ column }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in rows %}
<tr>{% for _, value in row %}{% if loop.first %}<th scope="row">{{ value }}</th>{% else %}<td>{{ value }}</td>{% endif %}{% endfor %}</tr>
{% endfor %}
</tbody>
</table></div>
{% endfor %}
"""  # noqa: E501


def sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield a section for each sweep."""
    for sweep in report.summary.sweeps:
        with charts.settings("report"):
            chart = charts.search(report.data, sweep)
        shown = {
            "words": words(sweep),
            "tables": [
                ("configurations", [_configuration(each, sweep) for each in sweep.configurations]),
                ("trials", [_best(trial, sweep) for trial in sweep.best]),
            ],
            "caption": chart.caption,
            "svg": inline_svg(chart),
        }
        yield ReportSection(chart.title, fragment(_BODY, sweep=shown), is_table=True)


def _configuration(result: ConfigurationResult, sweep: SweepSummary) -> list[tuple[str, str]]:
    """Pairs of column and cell for a configuration."""
    return [
        *result.values.items(),
        (f"{metric_name(sweep.metric)}, mean", number(result.value)),
        ("standard error", NOT_KNOWN if result.error is None else number(result.error)),
        ("trials", ", ".join(result.trials)),
    ]


def _best(trial: BestTrial, sweep: SweepSummary) -> list[tuple[str, str]]:
    """Pairs of column and cell for a trial. They are no dict, since the user's names may equal our column names."""
    return [
        ("trial", trial.name),
        (metric_name(sweep.metric), number(trial.value)),
        *((name, trial.values.get(name, "-")) for name in sweep.best[0].values),
        ("steps", str(trial.steps)),
        ("JCT", NOT_KNOWN if trial.jct_s is None else format_duration(trial.jct_s)),
        ("energy", energy_words(trial.energy)),
    ]
