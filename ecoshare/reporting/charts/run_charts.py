"""Chart of energy by job."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ecoshare.base.joules import ATTRIBUTED, MODELLED
from ecoshare.base.plural import counted
from ecoshare.jobs.quantities import format_duration, format_energy, number
from ecoshare.record.accounts.energy_account import EnergyInterval
from ecoshare.record.accounts.run_energy import coarser
from ecoshare.record.logs_and_metrics import MetricCurves
from ecoshare.record.results.packing_summary import PackingSummary
from ecoshare.record.results.sweep_summary import SweepSummary
from ecoshare.record.run_data import RunData
from ecoshare.record.run_history import AttemptHistory
from ecoshare.record.samples import Sample, shortest_s
from ecoshare.reporting.charts.look import (
    GRID,
    HUES,
    INK,
    ROW_IN,
    Chart,
    Look,
    add_legend,
    add_tip,
    are_many,
    bars_of,
    energy_unit,
    figure_of,
    fill_area,
    label_bar,
    looks_of,
    name_rows,
    scale_values,
    time_axis,
)
from ecoshare.reporting.figures import short_class
from ecoshare.reporting.tables.result_tables import metric_name
from ecoshare.reporting.time_columns import COLUMNS, Array, edges_of, means, part_held, spread, steps, stretches


def energy(data: RunData, looks: list[Look]) -> Chart:
    """Chart of the joules of each job beyond idle, and of the idle part."""
    title = "Energy by job"
    jobs = {job.name: job.energy for job in data.summary.jobs}
    whole, idle_j = data.summary.energy, data.summary.idle_energy_j
    if whole is None or not any(jobs.values()):
        return Chart("energy", title, "Not known: there are no joules of single jobs.")
    figure, axes = bars_of([*looks, Look("idle part", (), GRID)])
    tips: dict[str, str] = {}
    words: list[str] = []
    sources = sorted({each.source for each in jobs.values() if each is not None})
    spent_j = [math.fsum(each.value_j for name in look.jobs if (each := jobs[name]) is not None) for look in looks]
    longest_j = max([*spent_j, idle_j or 0.0])
    factor, unit = energy_unit(longest_j)
    for row, look in enumerate(looks):
        known = [each for name in look.jobs if (each := jobs[name]) is not None]
        if not known:
            label_bar(axes, 0.0, row, "not known")
            continue
        value_j = spent_j[row]
        bar = axes.barh(row, value_j / factor, height=0.62, **look.fill)[0]
        errors = [each.standard_error_j for each in known if each.standard_error_j is not None]
        error_j = math.hypot(*errors) if len(errors) == len(known) else 0.0
        if error_j:
            axes.errorbar(value_j / factor, row, xerr=error_j / factor, color=INK, linewidth=1.0, capsize=2.0)
        label = format_energy(value_j) + (f" ± {format_energy(error_j)}" if error_j else "")
        label_bar(axes, (value_j + error_j) / factor, row, label)
        words.append(f"{look.label} {label} {known[0].source}")
        add_tip(bar, f"energy-{row}", words[-1], tips)
    if idle_j is None:
        label_bar(axes, 0.0, len(looks), "not known")
    else:
        axes.barh(len(looks), idle_j / factor, height=0.62, facecolor=GRID, linewidth=0.0)
        label_bar(axes, idle_j / factor, len(looks), f"{format_energy(idle_j)}")
    axes.set_xlim(0.0, 1.25 * longest_j / factor or 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(7))
    axes.set_xlabel(f"{unit}, {' or '.join(sources)}")
    caption = (
        f"Each job's joules beyond idle, {' or '.join(sources)}; the idle part is what no job caused, "
        f"of the whole that was {whole.source}."
    )
    caption += " Whiskers: one standard error." if any(each and each.standard_error_j for each in jobs.values()) else ""
    return Chart("energy", title, caption, f"Bars of energy: {'; '.join(words)}.", figure, tips)


@dataclass(frozen=True, slots=True)
class Curve:
    """Joules over time, to be drawn as watts.

    Attributes:
        known: Intervals with known joules, none too short for a mean.
        edges: Edges (s) of the columns that are drawn, shape (n_columns + 1,).
        known_s: Time (s) with known joules in each column, shape (n_columns,).
    """

    known: list[EnergyInterval]
    edges: Array
    known_s: Array

    @classmethod
    def of(cls, intervals: Sequence[EnergyInterval], shortest_s: float) -> Curve:
        """The curve of an account's intervals, as means over `shortest_s` or more."""
        merged = coarser(intervals, shortest_s)
        edges = edges_of(sorted({at_s for each in merged for at_s in (each.from_s, each.to_s)}))
        known = [each for each in merged if each.energy_j is not None]
        spans = [(each.from_s, each.to_s) for each in known]
        return cls(known, edges, spread(spans, [each.to_s - each.from_s for each in known], edges))

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Whether joules are known for more than half of each column, shape (n_columns,)."""
        return self.known_s > 0.5 * np.diff(self.edges)

    def watts(self, joules: list[float]) -> Array:
        """Mean watts in each column, shape (n_columns,); NaN if they are not known.

        Args:
            joules: Joules of each interval in `known`.
        """
        spent_j = spread([(each.from_s, each.to_s) for each in self.known], joules, self.edges)
        return np.where(self.seen, spent_j / np.where(self.seen, self.known_s, 1.0), np.nan)


def _named(data: RunData, what: str, device: str) -> tuple[str, str]:
    """Key and title of a chart of a device. They name the device if the run has several."""
    if len(data.devices) == 1:
        return what, f"{what.capitalize()} over time"
    return f"{what}-{device.replace(':', '-')}", f"{what.capitalize()} of {device} over time"


def power(data: RunData, looks: list[Look], device: str) -> Chart:
    """Chart of the power (W) of a device, its idle part and each job over time, as means over a least time."""
    key, title = _named(data, "power", device)
    account = data.energy.of(device)
    session = account.session
    if session is None or not any(each.energy_j is not None for each in account.intervals):
        return Chart(key, title, "Not known: there are no joules to derive it from.")
    least_s = shortest_s(session.period_s)
    curve = Curve.of(account.intervals, least_s)
    known, edges, seen, watts = curve.known, curve.edges, curve.seen, curve.watts
    figure, axes = figure_of(2.9)
    base = watts([each.idle_j for each in known])
    fill_area(axes, edges, 0.0 * base, base, facecolor=GRID, alpha=0.55, linewidth=0.0)
    handles = [Patch(facecolor=GRID, alpha=0.55, label="idle part")]
    part = MODELLED if session.source == MODELLED else ATTRIBUTED
    for look in looks:
        jobs = frozenset(look.jobs)  # an interval has few of many jobs
        own = [math.fsum(value_j for job, value_j in each.jobs_j.items() if job in jobs) for each in known]
        if any(own):
            top = base + watts(own)
            fill_area(axes, edges, base, top, **look.fill)
            handles.append(Patch(**look.fill, label=look.label))
            base = top
    whole = watts([each.energy_j or 0.0 for each in known])
    line = axes.plot(*steps(edges, whole), color=INK, linewidth=0.8, label=f"device, {session.source}")
    extra: list[Any] = list(line)
    if session.idle_w is not None:
        extra.append(axes.axhline(session.idle_w, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), label="at rest"))
    for begin, end in stretches(~seen):
        axes.axvspan(edges[begin], edges[end], facecolor="none", edgecolor=GRID, hatch="////", linewidth=0.0)
    if not seen.all():
        extra.append(Patch(facecolor="none", edgecolor=GRID, hatch="////", linewidth=0.0, label="not known"))
    axes.set_xlim(0.0, data.end_s())
    axes.set_ylim(0.0, 1.08 * float(np.nanmax(whole)) or 1.0)
    axes.set_ylabel("W")
    axes.grid(axis="y")
    time_axis(axes, "time since the run was opened")
    add_legend(figure, [*extra, *handles])
    caption = (
        f"Mean watts over {format_duration(least_s)} or more: of the device {session.source}, of each job {part}, "
        "on top of the idle part."
    )
    mean_w = math.fsum(each.energy_j or 0.0 for each in known) / math.fsum(each.to_s - each.from_s for each in known)
    peak_w = float(np.nanmax(whole))
    alt = f"Stacked areas of power over time; the device, {session.source}: mean {mean_w:.3g} W, peak {peak_w:.3g} W."
    return Chart(key, title, caption, alt, figure)


def clocks(data: RunData, device: str) -> Chart:
    """Chart of the clocks (MHz) of a GPU and its memory over time."""
    key, title = _named(data, "clocks", device)
    samples = data.samples_of(device)
    curves: list[tuple[str, str, str, Callable[[Sample], float | None]]] = [
        ("GPU", HUES[0], "-", lambda each: each.gpu_clock_mhz),
        ("memory", HUES[3], "--", lambda each: each.memory_clock_mhz),
    ]
    shown = [curve for curve in curves if any(curve[3](each) is not None for each in samples)]
    if not shown:
        return Chart(key, title, "Not known: the device does not tell its clocks.")
    figure, axes = figure_of(1.9)
    edges = edges_of([each.at_s for each in samples])
    words, highest = [], 0.0
    for name, colour, style, value in shown:
        at_s, mhz = means([(each.at_s, value(each)) for each in samples], edges)
        axes.plot(at_s, mhz, color=colour, linestyle=style, linewidth=1.4, label=name)
        low, high = float(np.nanmin(mhz)), float(np.nanmax(mhz))
        highest = max(highest, high)
        words.append(f"{name} {low:.0f} to {high:.0f} MHz")
    axes.set_xlim(0.0, data.end_s() or 1.0)
    axes.set_ylim(0.0, 1.1 * highest or 1.0)
    axes.set_ylabel("MHz")
    axes.grid(axis="y")
    time_axis(axes, "time since the run was opened")
    add_legend(figure, axes.get_lines())
    return Chart(key, title, "Clocks that the device reported.", f"Lines of clocks: {', '.join(words)}.", figure)


_KEY, _TITLE = "speeds", "Speeds beside each other"
_MOST_ROWS = 40
_MEASURED = HUES[0]

_Row = tuple[str, float, float]
"""Label of a class beside others, expected speed, measured speed."""


def speeds(data: RunData) -> Chart:
    """Chart of the relative speed of each class in each packing: expected when the packing first ran, and measured."""
    classes = {job.name: job.job_class for job in data.summary.jobs}
    shared = len(set(map(short_class, classes.values()))) < len(set(classes.values()))
    rows = [row for each in data.summary.packings for row in _rows(each, classes if shared else {})]
    if not rows:
        return Chart(_KEY, _TITLE, "No packing of several jobs was measured.")
    shown = rows[:_MOST_ROWS]
    figure, axes = figure_of(len(shown) * ROW_IN + 0.75)
    name_rows(axes, [label for label, _, _ in shown])
    axes.grid(axis="x")
    for place, (_, expected, measured) in enumerate(shown):
        axes.plot([expected, measured], [place, place], color=GRID, linewidth=2.0, zorder=1)
    style: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 6}
    places = range(len(shown))
    axes.plot([each[1] for each in shown], places, markerfacecolor="none", markeredgecolor=INK, **style)
    axes.plot([each[2] for each in shown], places, color=_MEASURED, **style)
    axes.axvline(1.0, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set_xlim(0.0, 1.05 * max(1.0, *(max(each[1:]) for each in shown)))
    axes.set_xlabel("speed, over that alone at the default setting")
    ring = Line2D([], [], markerfacecolor="none", markeredgecolor=INK, label="expected", **style)
    add_legend(figure, [ring, Line2D([], [], color=_MEASURED, label="measured", **style)])
    caption = "Each class beside the others of its packing: expected when that first ran, and measured then."
    caption += f" Of {len(rows)} the first {len(shown)}." if len(rows) > len(shown) else ""
    words = "; ".join(
        f"{label}: expected {expected:.2f}, measured {measured:.2f}" for label, expected, measured in shown
    )
    return Chart(_KEY, _TITLE, caption, f"Expected and measured speeds: {words}.", figure)


def _rows(packing: PackingSummary, classes: Mapping[str, str]) -> list[_Row]:
    """Rows of one packing.

    Args:
        classes: Class of each job, to name classes by their first job if short class names are ambiguous; else empty.
    """
    jobs = {classes[job]: job for job in reversed(packing.jobs) if job in classes}
    names = [name for lane in packing.classes for name in lane]
    if packing.predicted is None or packing.measured is None or len(names) < 2:
        return []
    expected, measured = packing.predicted.speeds, packing.measured.speeds
    found = []
    for name in dict.fromkeys(names):
        others = list(names)
        others.remove(name)
        if name in expected and name in measured:
            label = f"{_named_packing(name, jobs)} beside {', '.join(_named_packing(other, jobs) for other in others)}"
            found.append((label, expected[name], measured[name]))
    return found


def _named_packing(name: str, jobs: Mapping[str, str]) -> str:
    return jobs.get(name, short_class(name))


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


_METRIC_HEIGHT_IN = 2.4
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
    figure, axes = figure_of(_METRIC_HEIGHT_IN)
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


def jct(data: RunData, looks: list[Look]) -> Chart:
    """Chart of the completion time of each job, with its time in the queue."""
    title = "Job completion times"
    caption = "From arrival to finish. The pale part of a bar is the time in the queue, before the first process."
    jobs = {job.name: job for job in data.summary.jobs}
    if not any(job.jct_s is not None for job in jobs.values()):
        return Chart("jct", title, "Not known: no job has finished.")
    figure, axes = bars_of(looks)
    tips: dict[str, str] = {}
    words: list[str] = []
    for row, look in enumerate(looks):
        known = [(jobs[name], own_s) for name in look.jobs if (own_s := jobs[name].jct_s) is not None]
        states = [jobs[name].state for name in look.jobs]
        state = "" if len(states) > 1 or states == ["completed"] else f", {states[0]}"
        if not known:
            label_bar(axes, 0.0, row, f"not known{state}")
            continue
        jct_s = sum(own_s for _, own_s in known) / len(known)
        queue_s = sum(min(job.queue_s or 0.0, own_s) for job, own_s in known) / len(known)
        axes.barh(row, queue_s, height=0.62, facecolor=look.colour, alpha=0.35, linewidth=0.0)
        bar = axes.barh(row, jct_s - queue_s, left=queue_s, height=0.62, **look.fill)[0]
        mean = "mean " if len(look.jobs) > 1 else ""
        label = f"{mean}{format_duration(jct_s)}{state}"
        label_bar(axes, jct_s, row, label)
        add_tip(bar, f"jct-{row}", f"{look.label}: {label}, of which {format_duration(queue_s)} in the queue", tips)
        words.append(f"{look.label} {label}")
    axes.set_xlim(0.0, 1.18 * max(job.jct_s or 0.0 for job in jobs.values()) or 1.0)
    time_axis(axes, "JCT")
    return Chart("jct", title, caption, f"Bars of job completion times: {'; '.join(words)}.", figure, tips)


def timeline(data: RunData, looks: list[Look]) -> Chart:
    """Chart with a row for each job: its attempts and its turns over time."""
    title = "Turns"
    attempts, end_s = data.history.attempts, data.end_s()
    place = {job: number for number, look in enumerate(looks) for job in look.jobs}
    of_looks: list[list[AttemptHistory]] = [[] for _ in looks]
    for each in attempts:
        if each.job in place:
            of_looks[place[each.job]].append(each)
    rows = [(look, own) for look, own in zip(looks, of_looks, strict=True) if own]
    if not rows or not end_s:
        return Chart("timeline", title, "Not known: no job has been started.")
    figure, axes = figure_of(len(rows) * ROW_IN + 0.6)
    held_by = {(each.job, each.number): data.turns(each) for each in attempts}
    crowded = max(map(len, held_by.values())) > COLUMNS / 4
    edges = np.linspace(0.0, end_s, (COLUMNS // 3 if crowded else 2 * COLUMNS) + 1)
    tips: dict[str, str] = {}
    untraced = failed = False
    for row, (look, own) in enumerate(rows):
        lives = _union([(_began_s(each), end_s if each.ended_s is None else each.ended_s) for each in own])
        life = axes.broken_barh(lives, (row - 0.36, 0.72), facecolor=look.colour, alpha=0.2, linewidth=0.0)
        held = np.zeros(len(edges) - 1)
        for attempt in own:
            turns = held_by[attempt.job, attempt.number]
            held += part_held(np.array([turn[:2] for turn in turns], dtype=float).reshape(-1, 2), edges)
            if not turns:
                untraced = True
                span = [(_began_s(attempt), (attempt.ended_s or end_s) - _began_s(attempt))]
                axes.broken_barh(span, (row - 0.36, 0.72), facecolor="none", edgecolor=GRID, hatch="////", linewidth=0)
            if attempt.ended_badly and attempt.ended_s is not None:
                failed = True
                axes.plot(attempt.ended_s, row, "x", color=INK, markersize=5, markeredgewidth=1.4, clip_on=False)
        if held.any():
            floor = np.full_like(held, row + 0.36)
            fill_area(axes, edges, floor, floor - 0.72 * np.minimum(held, 1.0), facecolor=look.colour, linewidth=0.0)
        ends = "; ".join(_end(each) for each in own[:8])
        add_tip(life, f"turn-{row}", f"{look.label}: {ends}", tips)
    labels = [look.label for look, _ in rows]
    name_rows(axes, labels)
    axes.set_xlim(0.0, end_s)
    time_axis(axes, "time since the run was opened")
    caption = (
        "Full height: the job holds its lane's turn. Pale: it is started and waits. Where turns are too short to be "
        "drawn one by one, the height is the part of the time held."
    )
    caption += " Hatched grey: its turns are not known." if untraced else ""
    caption += " A cross ends an attempt that did not complete." if failed else ""
    alt = f"Timeline of the turns, {counted(len(rows), 'row')}: " + ", ".join(labels)
    return Chart("timeline", title, caption, alt, figure, tips)


def _union(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Begin and length of the union of spans. Overlapping areas would be drawn darker than others."""
    merged: list[tuple[float, float]] = []
    for from_s, to_s in sorted(spans):
        if merged and from_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], to_s))
        else:
            merged.append((from_s, to_s))
    return [(from_s, to_s - from_s) for from_s, to_s in merged]


def _began_s(attempt: AttemptHistory) -> float:
    return attempt.asked_s if attempt.began_s is None else attempt.began_s


def _end(attempt: AttemptHistory) -> str:
    return f"attempt {attempt.number} " + ("goes on" if attempt.outcome is None else attempt.outcome.value)
