"""Chart of a metric: a line for each job that reports it."""

from __future__ import annotations

import math

from matplotlib.ticker import MaxNLocator

from ecoshare.common.plural import counted
from ecoshare.jobs.quantities import number
from ecoshare.record.logs_and_metrics import MetricCurves
from ecoshare.record.run_data import RunData
from ecoshare.reporting.charts.axes import add_legend, figure_of, scale_values
from ecoshare.reporting.charts.look import Chart, are_many, looks_of
from ecoshare.reporting.sweep_table import metric_name

_HEIGHT_IN = 2.4
_MOST_IN_TITLE = 60


def metric(data: RunData, curves: MetricCurves, place: int) -> Chart:
    """Chart of a metric over the number of the value.

    Args:
        place: Place of the metric in the report, for the key of the chart.
    """
    name = metric_name(curves.name)
    name = name if len(name) <= _MOST_IN_TITLE else f"{name[: _MOST_IN_TITLE - 1]}…"
    key = f"metric-{place}"
    known = [value for each in curves.curves for value in each.values if math.isfinite(value)]
    if not known:
        return Chart(key, name, "Not known: no value is a finite number.")
    own = {each.job for each in curves.curves}
    jobs = data.summary.jobs  # if they are many, most have no colour in the other charts
    looks = looks_of([job for job in jobs if job.name in own] if are_many(jobs) else jobs)
    look_of = {job: look for look in looks for job in look.jobs}
    figure, axes = figure_of(_HEIGHT_IN)
    handles, words, thinned = [], [], False
    for curve in curves.curves:
        values = [value if math.isfinite(value) else math.nan for value in curve.values]
        (line,) = axes.plot(curve.steps, values, label=_short(curve.job), **look_of[curve.job].stroke)
        if len(values) == 1:
            line.set(marker="o", markersize=3.0)
        handles.append(line)
        words.append(f"{curve.job} {number(curve.values[-1])}")
        thinned = thinned or len(values) < curve.count
    scale_values(axes, known)
    axes.grid(axis="y")
    axes.set_ylabel(_short(name))
    axes.xaxis.set_major_locator(MaxNLocator(9, integer=True))
    axes.set_xlabel("number of the value")
    add_legend(figure, handles)
    return Chart(key, name, _caption(curves, thinned), f"Last values: {'; '.join(words)}.", figure)


def _caption(curves: MetricCurves, thinned: bool) -> str:
    unfinite = sum(not math.isfinite(value) for each in curves.curves for value in each.values)
    cut = [each.job for each in curves.curves if each.is_cut]
    parts = []
    if curves.left_out:
        count = len(curves.curves)
        parts.append(
            f"The lines are {count} of {counted(count + curves.left_out, 'job')} with this metric: "
            "jobs in their order, and of a sweep the best trials."
        )
    if thinned:
        parts.append("Very long lines keep each n-th value and the last one.")
    if unfinite:
        parts.append(f"A line has a gap where a value is no finite number ({unfinite}).")
    if cut:
        parts.append(f"{counted(len(cut), 'job has', 'jobs have')} reported more than is read here.")
    return " ".join(parts)


def _short(text: str) -> str:
    return text if len(text) <= 34 else f"{text[:33]}…"
