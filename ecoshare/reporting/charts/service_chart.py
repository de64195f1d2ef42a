"""Chart of a service over time: latencies against the target, its requests, and the jobs that held its lane's turn.

::

    latency   ▁▁▁▂▁▇▇▂▁▁▁    p50 and p99 of each second, the target as a line
    requests  ▃▃▃▅▅▅▅▃▃▃▃    answered in time, answered late, not answered
    turn      ▒▒▒▒█████▒▒    part of the time for which each job of the lane held the turn
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from ecoshare.base.plural import counted
from ecoshare.core.settings.service_targets import SPAN_S
from ecoshare.jobs.quantities import format_duration
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.run_data import RunData
from ecoshare.reporting.charts.lane_chart import Stay, stays
from ecoshare.reporting.charts.look import (
    GREY,
    GRID,
    INK,
    WIDTH_IN,
    Chart,
    Look,
    add_legend,
    fill_area,
    looks_of,
    time_axis,
)
from ecoshare.reporting.time_columns import COLUMNS, Array, RequestColumn, part_held, request_columns

_MOST_COLUMNS = COLUMNS // 2
_MOST_NAMED = 8
"""Most jobs with a colour of their own in the panel of turns."""
_WIDE = 10.0
"""Ratio of largest to smallest latency above which the axis is logarithmic."""
_IDLE_S = 2.0
"""Time (s) without a request that is a gap in the lines."""
_HEIGHTS = (2.0, 0.8, 0.8)
_ANSWERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("answered in time", {"facecolor": GRID, "alpha": 0.8}),
    ("answered late", {"facecolor": INK, "alpha": 0.6}),
    ("failed or refused", {"facecolor": "none", "edgecolor": INK, "hatch": "//////"}),
)


def service(data: RunData, job: JobSummary) -> Chart:
    """Chart of the latencies and requests of a service over time, and of the turns in its lane."""
    assert job.service is not None, "the job is a service"
    key, title = f"service-{job.name}", f"Service {job.name}"
    found = request_columns(data.requests.get(job.name, []), _MOST_COLUMNS)
    if not found:
        return Chart(key, title, "Not known: no request has come.")
    everything = stays(data)
    own = [each for each in everything if each.attempt.job == job.name]
    begin_s = min([found[0].from_s, *(each.from_s for each in own)])
    end_s = max([found[-1].to_s, *(each.to_s for each in own)])
    edges = np.linspace(begin_s, end_s, _MOST_COLUMNS + 1)
    held = _held(data, own, everything, edges)
    heights = _HEIGHTS if held else _HEIGHTS[:2]
    figure = Figure((WIDTH_IN, sum(heights) + 0.5), layout="constrained")
    panels = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    told = data.history.jobs.get(job.name)
    missed_s = [at_s for at_s, _ in told.missed] if told is not None else []
    handles = _draw_latencies(panels[0], found, job.service.target_s, missed_s)
    handles += _draw_requests(panels[1], found)
    if held:
        handles += _draw_turns(panels[2], held, edges)
    panels[-1].set_xlim(begin_s, end_s)
    time_axis(panels[-1], "time since the run was opened")
    figure.align_ylabels()
    add_legend(figure, handles)
    caption = _caption(len(found) < len(data.requests[job.name]), bool(held))
    return Chart(key, title, caption, _alt(job), figure)


def _caption(is_thinned: bool, has_turns: bool) -> str:
    each = "part of the time" if is_thinned else "second"
    caption = f"Latencies of each {each} with requests, from arrival to answer; p99 of few requests is the longest one."
    caption += " Triangles and crosses mark late answers, and requests that failed or were refused."
    return caption + (" Below: part of the time for which each job held the turn of the lane." if has_turns else "")


def _alt(job: JobSummary) -> str:
    assert job.service is not None, "the job is a service"
    told = job.service
    p99 = "" if told.p99_s is None else f", p99 {format_duration(told.p99_s)}"
    return (
        f"Latencies of {counted(told.answered, 'answer')} over time{p99}, target {format_duration(told.target_s)}; "
        f"{told.late} late, {told.failed} failed, {told.refused} refused."
    )


def _draw_latencies(
    axes: Axes, found: Sequence[RequestColumn], target_s: float, missed_s: Sequence[float]
) -> list[Any]:
    """Draw the percentiles, the target and the minutes that end at `missed_s`; return the handles for the legend."""
    times_s = np.array([[each.from_s, each.to_s] for each in found])
    begins_late = np.append(times_s[1:, 0] - times_s[:-1, 1] > _IDLE_S, False)
    lines = []
    for name, values_s, width in (
        ("p99", [each.p99_s for each in found], 1.4),
        ("p50", [each.p50_s for each in found], 0.7),
    ):
        corners = np.column_stack([times_s, times_s[:, 1]]).ravel()
        heights = np.column_stack([values_s, values_s, np.where(begins_late, math.nan, values_s)]).ravel()
        lines += axes.plot(corners, heights, color=INK, linewidth=width, label=name)
    target = axes.axhline(target_s, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    target.set_label(f"target {format_duration(target_s)}")
    handles: list[Any] = [*lines, target]
    _mark(axes, found)
    for at_s in missed_s:
        axes.axvspan(max(0.0, at_s - SPAN_S), at_s, facecolor=GRID, alpha=0.4, linewidth=0.0)
    if missed_s:
        handles.append(Patch(facecolor=GRID, alpha=0.4, label="target missed for a minute"))
    known_s = [value_s for each in found for value_s in (each.p50_s, each.p99_s) if not math.isnan(value_s)]
    _scale(axes, [*known_s, target_s])
    axes.set_ylabel("latency")
    axes.grid(axis="y")
    return handles


def _mark(axes: Axes, found: Sequence[RequestColumn]) -> None:
    """Mark columns with late answers, and with requests that were not answered, above the axes."""
    for place, height, marker in ((1, 1.03, "v"), (2, 1.08, "x")):
        at_s = [(each.from_s + each.to_s) / 2 for each in found if each.counts[place]]
        if at_s:
            style: dict[str, Any] = {"linestyle": "none", "marker": marker, "color": INK, "markersize": 3.0}
            axes.plot(at_s, [height] * len(at_s), transform=axes.get_xaxis_transform(), clip_on=False, **style)


def _scale(axes: Axes, values_s: Sequence[float]) -> None:
    """Set the scale of latencies: logarithmic if they differ much."""
    low_s, high_s = min(values_s), max(values_s)
    if high_s > _WIDE * low_s:
        axes.set_yscale("log")
        axes.set_ylim(low_s / 1.3, high_s * 1.3)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high_s < 50.0 * low_s else (1.0,)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(0.0, 1.1 * high_s)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value_s, _: format_duration(value_s)))


def _draw_requests(axes: Axes, found: Sequence[RequestColumn]) -> list[Patch]:
    """Draw the requests a second by what became of them, and return the handles for the legend."""
    edges, rates = _rates(found)
    base = np.zeros(len(edges) - 1)
    handles = []
    for (name, style), rate in zip(_ANSWERS, rates, strict=True):
        if rate.any():
            fill_area(axes, edges, base, base + rate, linewidth=0.0, **style)
            handles.append(Patch(linewidth=0.0, label=name, **style))
            base = base + rate
    axes.set_ylim(0.0, 1.1 * float(base.max()) or 1.0)
    axes.set_ylabel("requests/s")
    axes.grid(axis="y")
    return handles


def _rates(found: Sequence[RequestColumn]) -> tuple[Array, list[Array]]:
    """Edges (s) of the columns and of the gaps between them, and requests a second for each of `_ANSWERS`."""
    edges, rates = [found[0].from_s], list[tuple[float, ...]]()
    for each in found:
        from_s = edges[-1]
        if each.from_s - from_s > _IDLE_S:
            edges.append(each.from_s)
            rates.append((0.0,) * len(_ANSWERS))
            from_s = each.from_s
        length_s = max(each.to_s - from_s, 1e-3)
        edges.append(from_s + length_s)
        rates.append(tuple(count / length_s for count in each.counts))
    return np.array(edges), list(np.array(rates).T)


def _draw_turns(axes: Axes, held: Sequence[tuple[Look, Array]], edges: Array) -> list[Patch]:
    """Draw the parts of the time for which jobs held the turn, and return the handles for the legend."""
    base = np.zeros(len(edges) - 1)
    for look, part in held:
        top = np.minimum(base + part, 1.0)
        fill_area(axes, edges, base, top, **look.fill)
        base = top
    axes.set_ylim(0.0, 1.0)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    axes.set_ylabel("turn")
    return [Patch(**look.fill, label=look.label) for look, _ in held]


def _held(data: RunData, own: Sequence[Stay], everything: Sequence[Stay], edges: Array) -> list[tuple[Look, Array]]:
    """Part of each column for which jobs held the turn in the lane of a service, the service first.

    Args:
        own: Stays of the service.
        everything: Stays of all jobs.
    """
    name = own[0].attempt.job if own else ""
    parts: dict[str, Array] = {}
    for each in everything:
        turns = np.array([turn[:2] for turn in data.turns(each.attempt)], dtype=float).reshape(-1, 2)
        job = each.attempt.job
        for mine in own if job != name else [each]:
            if mine.lane == each.lane:
                inside = turns.clip(max(mine.from_s, each.from_s), min(mine.to_s, each.to_s))
                held = part_held(inside[inside[:, 1] > inside[:, 0]], edges)
                parts[job] = parts[job] + held if job in parts else held
    shown = []
    for look in looks_of(data.summary.jobs):
        found = [parts[job] for job in look.jobs if job in parts and parts[job].any()]
        if found:
            shown.append((look, np.sum(found, axis=0)))
    shown.sort(key=lambda each: (name not in each[0].jobs, -float(each[1].sum())))
    if len(shown) > _MOST_NAMED:
        rest = shown[_MOST_NAMED - 1 :]
        jobs = tuple(job for look, _ in rest for job in look.jobs)
        others = Look(counted(len(jobs), "other job"), jobs, GREY)
        shown = [*shown[: _MOST_NAMED - 1], (others, np.sum([part for _, part in rest], axis=0))]
    return shown
