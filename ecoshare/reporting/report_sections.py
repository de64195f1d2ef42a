"""Sections of the HTML report, in their order.

An installed package offers a `SectionModule` of its own under the entry point `ecoshare.report_sections`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from operator import itemgetter
from typing import Any, Protocol

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from ecoshare.base.measurement import class_of
from ecoshare.base.plural import counted
from ecoshare.jobs.quantities import format_duration, format_energy, format_size, number
from ecoshare.jobs.schema import SLOWDOWN
from ecoshare.record.logs_and_metrics import MOST_FAILURES, MetricCurves, failures
from ecoshare.record.packing_timeline import OBSERVED_S
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.results.packing_summary import PackingSpeeds, PackingSummary
from ecoshare.record.results.run_summary import RunSummary
from ecoshare.record.results.sweep_summary import BestTrial, ConfigurationResult, SweepSummary
from ecoshare.record.run_data import RunData
from ecoshare.record.setting_history import setting_words, values_words
from ecoshare.reporting import charts
from ecoshare.reporting.charts.look import inline_svg
from ecoshare.reporting.figures import share
from ecoshare.reporting.reason_words import listed
from ecoshare.reporting.tables.job_table import LESSER, NOT_KNOWN, energy_words, job_table, left_out_words, or_not_known
from ecoshare.reporting.tables.result_tables import metric_name, service_rows, sweep_words
from ecoshare.reporting.tables.run_table import verdicts


@dataclass(frozen=True, slots=True)
class DrawnChart:
    """Chart as it stands in the page.

    Attributes:
        caption: Sentences below the title; the reason if the chart is not drawn.
        svg: SVG element; None if the chart is not drawn.
    """

    key: str
    title: str
    caption: str
    svg: Markup | None


@dataclass(frozen=True, slots=True)
class ReportInput:
    """Run that a report shows.

    Attributes:
        charts: All charts of the run, in order.
        jobs: Jobs that the tables show; of very many jobs only some.
    """

    data: RunData
    charts: list[DrawnChart]
    jobs: list[JobSummary]

    @property
    def summary(self) -> RunSummary:
        """Result of the run."""
        return self.data.summary


@dataclass(frozen=True, slots=True)
class ReportSection:
    """Section of a report.

    Attributes:
        body: Content below the title.
        anchor: Id of the section in the page; empty for none.
        is_table: Whether the section is a table, which may be longer than a printed page.
    """

    title: str
    body: Markup
    anchor: str = ""
    is_table: bool = False

    def html(self) -> Markup:
        """The section as an HTML element."""
        kind = Markup(' class="table"') if self.is_table else ""
        anchor = Markup(' id="{}"').format(self.anchor) if self.anchor else ""
        return Markup("<section{}{}>\n<h2>{}</h2>\n{}</section>\n").format(kind, anchor, self.title, self.body)


class SectionModule(Protocol):
    """Module that adds sections to a report.

    Attributes:
        PLACE: Place of the sections in the page, as `_SECTIONS` has those of the others.
    """

    PLACE: int

    def sections(self, report: ReportInput) -> Iterator[ReportSection]:
        """Yield the sections; none if the run has nothing for them."""
        ...


def fragment(template: str, **values: Any) -> Markup:
    """HTML from a Jinja template: values are escaped, and the filter `with_code` shows text between backticks as code.

    `not_known` is the text for unknown values.
    """
    return Markup(_environment().from_string(template).render(values, not_known=NOT_KNOWN))


def chart_body(chart: DrawnChart) -> Markup:
    """Body of a section with one drawn chart."""
    template = "<figure><figcaption>{{ chart.caption }}</figcaption>\n{{ chart.svg }}\n</figure>\n"
    return fragment(template, chart=chart)


@cache
def _environment() -> Environment:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["with_code"] = _with_code
    return environment


def _with_code(words: str) -> Markup:
    """HTML of a sentence, with text between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(words))))


NONE = "-"
NOT_FORESEEN, ALONE = "not foreseen", "alone"
_MOST_NAMES = 3
_MOST_ROWS = 20

_EMPTY = {NONE, NOT_FORESEEN, ALONE}
"""Cells without information. A column that has only these is left out, as under a policy that does not pack."""

Cell = list[str]
"""Lines of a cell: one for each class, or one for the whole packing."""


def decision_rows(summary: RunSummary) -> tuple[list[dict[str, Cell]], int]:
    """Rows for the packings that ran longest, and the number of packings that are left out.

    A row maps columns to cells. Rows have the order in which the packings first ran. Empty columns are left out.
    """
    packings = summary.packings
    longest = sorted(packings, key=lambda each: -each.duration_s)[:_MOST_ROWS]
    shown = [each for each in packings if any(each is kept for kept in longest)]
    rows = [_row(each, summary) for each in shown]
    columns = [name for name in (rows[0] if rows else {}) if not all(set(row[name]) <= _EMPTY for row in rows)]
    return [{name: row[name] for name in columns} for row in rows], len(packings) - len(shown)


def _row(each: PackingSummary, summary: RunSummary) -> dict[str, Cell]:
    source = summary.energy.source if summary.energy is not None else ""
    names = list(dict.fromkeys(name for lane in each.classes for name in lane))
    is_alone = sum(map(len, each.classes)) == 1
    predicted, measured, observed = each.predicted or PackingSpeeds(), each.measured or PackingSpeeds(), each.observed
    speeds = {**observed.speeds, **measured.speeds}
    watts = observed.power_w if measured.power_w is None else measured.power_w
    ratio = each.energy_ratio
    return {
        "jobs": _jobs(each, names, summary.jobs),
        "ran for": [format_duration(each.duration_s)],
        "energy": [NOT_KNOWN if each.energy_j is None else f"{format_energy(each.energy_j)} {source}"],
        "speed expected": [ALONE] if is_alone else _speeds(names, predicted.speeds, {}, NOT_FORESEEN),
        "measured": [ALONE] if is_alone else _speeds(names, speeds, observed.missing, NOT_KNOWN),
        "power expected": _watts(predicted.power_w, NOT_FORESEEN),
        "drawn": _watts(watts, NOT_KNOWN if each.duration_s >= OBSERVED_S else "too short", source),
        "settings tried": [str(each.settings_tried) if each.settings_tried else NONE],
        "setting": [NONE if each.setting is None else values_words(each.setting) or "the default"],
        "energy there": [NONE if ratio is None else f"{share(ratio)} of that at the default"],
        "outcome": [each.verdict or NONE],
    }


def _jobs(each: PackingSummary, names: Sequence[str], jobs: Iterable[JobSummary]) -> Cell:
    """Names of the jobs of each class, in the order of `names`, like the speeds."""
    classes = {job.name: job.job_class for job in jobs}
    return [_few([job for job in each.jobs if classes.get(job) == class_of(name)]) for name in names]


def _few(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return listed(names) if rest <= 0 else f"{', '.join(names[:_MOST_NAMES])} and {rest} more"


def _speeds(names: Iterable[str], speeds: Mapping[str, float], why: Mapping[str, str], otherwise: str) -> Cell:
    """Speed of each class, or a word or two of reason if it has none."""
    told = [f"{speeds[name]:.2f}" if name in speeds else why.get(name, otherwise) for name in names]
    return told[:1] if len(set(told)) == 1 and not speeds else told


def _watts(power_w: float | None, why: str, source: str = "") -> Cell:
    return [why if power_w is None else f"{number(power_w)} W {source}".strip()]


_LANES_KEY = "lanes"


def lanes_section(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the chart of the lanes, if it is drawn."""
    for chart in report.charts:
        if chart.key == _LANES_KEY and chart.svg is not None:
            yield ReportSection(chart.title, chart_body(chart), chart.key)


_JOBS = """\
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


def jobs_section(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the table of the jobs that the report shows."""
    body = fragment(
        _JOBS,
        jobs=job_table(report.jobs),
        slowdown=SLOWDOWN,
        lesser=LESSER,
        left_out=left_out_words(report.summary, report.jobs),
    )
    yield ReportSection("All jobs", body, "jobs", is_table=True)


_FEW = 3
"""Most failures of which the first log is in sight. Others fold out."""

_ERRORS = """\
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


def errors_section(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the failures, if there are any."""
    found = failures(report.summary)
    if found:
        shown, logs = found[:MOST_FAILURES], report.data.output.log_ends
        body = fragment(
            _ERRORS,
            failures=[(job, logs.get(job.name, [])) for job in shown],
            in_sight=len(logs) <= _FEW,
            left_out=len(found) > len(shown),
            all=counted(len(found), "job"),
        )
        yield ReportSection("What did not complete, and why", body, "errors", is_table=True)


_MOST_DRAWN = 8
_LESSER = ("p50", "p90", "p99.9", "goodput", "mean batch")
"""Columns that a narrow page drops."""

_SERVICES = """\
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


def services_sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the table of the services, and a section with the chart of each, or of those that were late most often."""
    services = [job for job in report.summary.jobs if job.service is not None]
    if not services:
        return
    shown = {job.name for job in sorted(services, key=_kept_share)[:_MOST_DRAWN]}
    with charts.settings("report"):
        found = [charts.service(report.data, job) for job in services if job.name in shown]
    drawn = [DrawnChart(each.key, each.title, each.caption, svg) for each in found if (svg := inline_svg(each))]
    body = fragment(
        _SERVICES,
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


_SWEEPS = """\
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


def sweeps_sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield a section for each sweep."""
    for sweep in report.summary.sweeps:
        with charts.settings("report"):
            chart = charts.search(report.data, sweep)
        shown = {
            "words": sweep_words(sweep),
            "tables": [
                ("configurations", [_configuration(each, sweep) for each in sweep.configurations]),
                ("trials", [_best(trial, sweep) for trial in sweep.best]),
            ],
            "caption": chart.caption,
            "svg": inline_svg(chart),
        }
        yield ReportSection(chart.title, fragment(_SWEEPS, sweep=shown), is_table=True)


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


_METRICS = """\
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


def metrics_sections(report: ReportInput) -> Iterator[ReportSection]:
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
        _METRICS,
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


def charts_sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the charts that are drawn; the lanes have a section of their own, further up."""
    for chart in report.charts:
        if chart.key != _LANES_KEY and chart.svg is not None:
            yield ReportSection(chart.title, chart_body(chart), chart.key)


_DECISIONS = """\
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


def decisions_section(report: ReportInput) -> Iterator[ReportSection]:
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
    yield ReportSection("Decisions", fragment(_DECISIONS, decisions=shown), "decisions", is_table=True)


_NOTES = """\
{% for note in notes %}
<p>{{ note | with_code }}</p>
{% else %}
<p class="quiet">None.</p>
{% endfor %}
"""


def notes_section(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the notes."""
    yield ReportSection("Notes", fragment(_NOTES, notes=report.summary.notes), "notes")


_SETTINGS = """\
{% if budget %}
<p>{{ budget }}</p>
{% endif %}
{% for setting in settings %}
<p>{{ setting }}</p>
{% else %}
<p class="quiet">Nothing was set: clocks and power limit stayed as they were found.</p>
{% endfor %}
"""


def settings_section(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the settings."""
    settings = [setting_words(each) for each in report.summary.settings]
    budget = report.summary.power_budget
    words = budget.words if budget is not None else ""
    yield ReportSection("Settings", fragment(_SETTINGS, settings=settings, budget=words), "settings")


_NOT_DRAWN = """\
{% for chart in not_drawn %}
<p class="quiet">{{ chart.title }}: {{ chart.caption }}</p>
{% endfor %}
"""


def not_drawn_section(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the reasons why charts are not drawn, if there are any."""
    missing = [chart for chart in report.charts if chart.svg is None]
    if missing:
        yield ReportSection("Not drawn", fragment(_NOT_DRAWN, not_drawn=missing), "not-drawn")


_MACHINE = {
    "ecoshare": "ecoshare",
    "torch": "torch",
    "python": "Python",
    "platform": "system",
    "intra_op_threads": "threads of an operation",
    "mps": "MPS",
}
"""Entries of environment.json that are shown, with their labels. Other entries are private."""

_MACHINE_BODY = """\
<table>
{% for name, value in machine %}
<tr><th scope="row">{{ name }}</th><td{% if value == not_known %} class="quiet"{% endif %}>{{ value }}</td></tr>
{% endfor %}
</table>
"""


def machine_section(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the devices and the versions."""
    title = "Device and versions" if len(report.data.devices) == 1 else "Devices and versions"
    yield ReportSection(title, fragment(_MACHINE_BODY, machine=_machine(report.data)), "machine")


def _machine(data: RunData) -> list[tuple[str, str]]:
    found = []
    for device in data.summary.devices:
        parts = [words for words in (device.model, device.driver) if words]
        if device.memory_bytes:
            parts.append(f"{format_size(device.memory_bytes)} for jobs")
        if device.cores:
            parts.append(counted(device.cores, "core"))
        if device.power_limit_w:
            parts.append(f"power limit {device.power_limit_w:.0f} W")
        if len(data.devices) > 1 and device.energy is not None:
            parts.append(energy_words(device.energy))
        if device.failed is not None:
            parts.append(device.failed.in_words)
        found.append((device.name, ", ".join(parts) or NOT_KNOWN))
    return found + [(word, or_not_known(data.environment.get(name))) for name, word in _MACHINE.items()]


_SECTIONS: tuple[tuple[int, Callable[[ReportInput], Iterator[ReportSection]]], ...] = (
    (10, lanes_section),
    (20, jobs_section),
    (22, errors_section),
    (25, services_sections),
    (30, sweeps_sections),
    (35, metrics_sections),
    (40, charts_sections),
    (50, decisions_section),
    (70, notes_section),
    (80, settings_section),
    (90, not_drawn_section),
    (100, machine_section),
)
"""Place of each section in the page; offered ones stand between them."""


def all_sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the sections of a report, in the order of their places."""
    offered: list[SectionModule] = [each.load() for each in entry_points(group="ecoshare.report_sections")]
    for _, sections in sorted([*_SECTIONS, *((each.PLACE, each.sections) for each in offered)], key=itemgetter(0)):
        yield from sections(report)
