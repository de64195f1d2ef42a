"""The memory of the jobs against the budgets of their lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ecoshare.counted import counted
from ecoshare.jobs.quantities import format_size
from ecoshare.measure.samples import Sample, attempt_key, job_of
from ecoshare.reporting.charts.axes import WIDTH_IN, add_legend, add_tip, bars_of, byte_unit, fill_area, time_axis
from ecoshare.reporting.charts.columns import Array, edges_of
from ecoshare.reporting.charts.look import INK, Chart, Look
from ecoshare.reporting.rundata import Attempt, RunData

_FAR = 4
"""A budget of more than so many times the largest peak is told in words: drawn, it would leave the bars too short."""


def memory(data: RunData, looks: list[Look]) -> Chart:
    """Memory of each job over time where it was sampled, else its peak."""
    attempts = data.attempts()
    alive = {attempt_key(each.job, each.number): each for each in attempts}
    samples = [line for line in data.samples if isinstance(line, Sample)]
    if len(samples) > 1 and any(each.memory_bytes is not None for line in samples for each in line.jobs.values()):
        return _over_time(data, looks, samples, alive)
    return _peaks(data, looks, attempts)


def _over_time(data: RunData, looks: list[Look], samples: list[Sample], alive: dict[str, Attempt]) -> Chart:
    budgets: dict[int, int] = {number: lane.budget_bytes for number, lane in sorted(data.lanes().items())}
    used = {each.lane for line in samples for each in line.jobs.values()}
    lanes = sorted(used)
    figure = Figure((WIDTH_IN, 0.5 + 1.6 * len(lanes)), layout="constrained")
    panels: list[Axes] = list(figure.subplots(len(lanes), 1, sharex=True, squeeze=False)[:, 0])
    factor, unit = byte_unit(max([*budgets.values(), 1]))
    edges = edges_of([line.at_s for line in samples])
    handles: dict[str, Any] = {}
    budget: list[Any] = []
    for number, axes in zip(lanes, panels, strict=True):
        base = np.zeros(len(edges) - 1)
        for look in looks:
            own = _largest(look, number, samples, edges, alive) / factor
            if own.any():
                fill_area(axes, edges, base, base + own, **look.fill)
                handles[look.label] = Patch(**look.fill, label=look.label)
                base = base + own
        top = float(base.max(initial=0.0))
        if number in budgets:
            line = axes.axhline(budgets[number] / factor, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
            line.set_label("budget of the lane")
            budget = [line]
            top = max(top, budgets[number] / factor)
        axes.set_ylim(0.0, 1.08 * top or 1.0)
        axes.set_ylabel(f"lane {number}, {unit}")
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.grid(axis="y")
    panels[-1].set_xlim(0.0, data.end_s())
    time_axis(panels[-1], "time since the run was opened")
    add_legend(figure, [*budget, *handles.values()])
    caption = (
        "What the jobs of each lane had of the device's memory, against the lane's budget. Unknown parts are left out."
    )
    alt = f"Stacked areas of memory by job in {counted(len(lanes), 'lane')} over time, with the lanes' budgets."
    return Chart("memory", "Memory", caption, alt, figure)


def _largest(look: Look, lane: int, samples: list[Sample], edges: Array, alive: dict[str, Attempt]) -> Array:
    """Largest memory of a job in a lane between each two edges; what a sample repeats of an ended attempt is gone."""
    largest = np.zeros(len(edges) - 1)
    columns = np.clip(np.searchsorted(edges, [line.at_s for line in samples], side="right") - 1, 0, len(largest) - 1)
    for column, line in zip(columns, samples, strict=True):
        now_bytes = 0
        for key, each in line.jobs.items():
            attempt = alive.get(key)
            over = attempt is not None and attempt.ended_s is not None and attempt.ended_s < line.at_s
            if each.lane == lane and each.memory_bytes is not None and not over and job_of(key) in look.jobs:
                now_bytes += each.memory_bytes
        largest[column] = max(largest[column], now_bytes)
    return largest


def _peaks(data: RunData, looks: list[Look], attempts: list[Attempt]) -> Chart:
    peaks: dict[str, int] = {}
    for each in attempts:
        if each.peak_bytes is not None:
            peaks[each.job] = max(peaks.get(each.job, 0), each.peak_bytes)
    if not peaks:
        return Chart("memory", "Memory", "Not known: no job's memory was seen.")
    budgets = sorted({lane.budget_bytes for lane in data.lanes().values()})
    near = [each for each in budgets if each <= _FAR * max(peaks.values())]
    factor, unit = byte_unit(max([*peaks.values(), *near]))
    figure, axes = bars_of(looks)
    tips: dict[str, str] = {}
    words: list[str] = []
    for row, look in enumerate(looks):
        known = [peaks[name] for name in look.jobs if name in peaks]
        if not known:
            axes.text(0.0, row, "  not known", va="center")
            continue
        bar = axes.barh(row, max(known) / factor, height=0.62, **look.fill)[0]
        label = ("at most " if len(look.jobs) > 1 else "") + format_size(max(known))
        axes.text(max(known) / factor, row, f"  {label}", va="center")
        words.append(f"{look.label} {label}")
        add_tip(bar, f"memory-{row}", words[-1], tips)
    for budget_bytes in near:
        line = axes.axvline(budget_bytes / factor, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    if near:
        line.set_label("budget of a lane")
        add_legend(figure, [line])
    axes.set_xlim(0.0, 1.15 * max([*peaks.values(), *near]) / factor)
    axes.set_xlabel(unit)
    caption = "The largest memory of each job; its course over time is not known."
    if far := [format_size(each) for each in budgets if each not in near]:
        caption += f" Beyond the axis: the budget of a lane, {' or '.join(far)}."
    return Chart("memory", "Memory", caption, f"Bars of peak memory: {'; '.join(words)}.", figure, tips)
