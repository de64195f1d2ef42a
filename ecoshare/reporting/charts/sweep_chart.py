"""Chart of a sweep: values of its trials over time."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

from ecoshare.common.plural import counted
from ecoshare.jobs.quantities import number
from ecoshare.record.results.sweep_summary import SweepSummary
from ecoshare.record.run_data import RunData
from ecoshare.reporting.charts.axes import figure_of, scale_values, time_axis
from ecoshare.reporting.charts.look import GRID, HUES, INK, Chart
from ecoshare.reporting.sweep_table import metric_name

_HEIGHT_IN = 2.6


class _End(NamedTuple):
    """End of a trial: time (s), last value, and whether it completed."""

    at_s: float
    value: float
    completed: bool


def search(data: RunData, sweep: SweepSummary) -> Chart:
    """Last value of each trial at the time when it ended, and a line with the best of the completed trials so far."""
    name, metric = sweep.name, metric_name(sweep.metric)
    key, title = f"sweep-{name}", f"Sweep {name}"
    told = [
        _End(job.finish_s, job.value, job.state == "completed")
        for job in data.summary.jobs
        if job.sweep == name and job.value is not None and job.finish_s
    ]
    if not told:
        return Chart(key, title, "Not known: no trial has reported a value.")
    told.sort(key=lambda each: each.at_s)
    figure, axes = figure_of(_HEIGHT_IN)
    through = [each for each in told if each.completed]
    others = [each for each in told if not each.completed]
    ends, values = [each.at_s for each in through], [each.value for each in through]
    axes.plot(ends, values, "o", color=HUES[0], markersize=3.5, markeredgewidth=0.0, alpha=0.8)
    axes.plot(
        [each.at_s for each in others],
        [each.value for each in others],
        "o",
        markerfacecolor="none",
        markeredgecolor=HUES[3],
        markersize=3.5,
        markeredgewidth=0.8,
    )
    if through:
        better = max if sweep.goal == "maximize" else min
        best = list(accumulate(values, better))
        axes.step([*ends, data.end_s()], [*best, best[-1]], where="post", color=INK, linewidth=1.2)
    if sweep.target is not None:
        axes.axhline(sweep.target, color=GRID, linewidth=1.0, linestyle="--")
    scale_values(axes, [each.value for each in told])
    axes.set_ylabel(metric)
    axes.set_xlim(0.0, data.end_s() or 1.0)
    time_axis(axes, "time since the run was opened")
    caption = (
        f"{metric}, last value of each trial where it ended: full circles are through, open ones were ended early or "
        "failed. The line is the best of those that were through by then."
    )
    caption += " Dashed: the target." if sweep.target is not None else ""
    alt = f"{counted(len(told), 'trial')} of {name}" + (f", the best at {number(best[-1])}." if through else ".")
    return Chart(key, title, caption, alt, figure)
